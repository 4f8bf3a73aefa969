# frozen_string_literal: true

require 'test_helper'
require 'support/terminal'

# IRB, Pry and debug at a terminal, while other fibers go on.
class TestRepl < Polyphony::TestCase
  time_limit 120

  PROGRAM = <<~'RUBY'
    require 'polyphony'
    $beats = 0
    heart = spin { loop { sleep 0.001; $beats += 1 } }
    def secret = 42
    stop_here = -> { local = :here; %<stop>s; puts "after: #{local}" }
    %<run>s
    puts "beats: #{$beats > 0}"
  RUBY
  PLACES = { main: 'stop_here.call', spun: 'spin { stop_here.call }.await' }.freeze

  # What is typed at a prompt; waiting for the heart to beat takes as many beats as it takes.
  BEATS = "before = $beats; sleep 0.001 until $beats > before + 3; p beating: true\n"

  def at_terminal(run, stop, *options, env: {})
    file = track(Tempfile.new(['program', '.rb']))
    file.write(format(PROGRAM, run: run, stop: stop))
    file.flush
    env = { 'RUBYOPT' => nil, 'TERM' => 'xterm', 'HOME' => Dir.tmpdir, 'PAGER' => 'cat' }.merge(env)
    Terminal.run(env, RbConfig.ruby, "-I#{POLYPHONY_LIB}", *options, file.path, limit: patient(40)) { |it| yield it }
  end

  # The prompt waits while nobody types: background fibers run in that time.
  def beats_at_the_prompt(terminal, prompt)
    terminal.type("idle = $beats\n")
    terminal.expect(/=> \d+/)
    terminal.expect(prompt)
    sleep 0.02
    terminal.type("p waited: $beats > idle\n")
    terminal.expect(/waited: true|:waited=>true/)
    terminal.expect(prompt)
  end

  IRB_PROMPT = /irb\(main\)\S*[>*] /.freeze

  def test_signals_while_irb_is_at_its_prompt_and_while_it_computes
    at_terminal(PLACES[:main], 'binding.irb') do |terminal|
      terminal.expect(IRB_PROMPT)
      terminal.type("1 + \x03")
      terminal.expect(IRB_PROMPT)
      terminal.type("trap('USR1') { Mutex.new.synchronize { sleep 0.001; puts 'hand' + 'led' } }\n")
      terminal.expect(/=> "DEFAULT"/)
      terminal.expect(IRB_PROMPT)
      terminal.type("Process.kill('USR1', $$)\n")
      terminal.expect(/handled/)
      terminal.type("\n")
      terminal.expect(IRB_PROMPT)
      terminal.type("puts 'be' + 'gun'; loop { }\n")
      terminal.expect(/begun/)
      terminal.type("\x03")
      terminal.expect(/abort then interrupt|Interrupt|Abort/)
      terminal.expect(IRB_PROMPT)
      terminal.type("exit\n")
      terminal.expect(/after: here/)
    end
  end

  PLACES.each do |place, run|
    define_method(:"test_irb_in_the_#{place}_fiber") do
      at_terminal(run, 'binding.irb') do |terminal|
        terminal.expect(IRB_PROMPT)
        terminal.type("[local, secret]\n")
        terminal.expect(/=> \[:here, 42\]/)
        terminal.expect(IRB_PROMPT)
        terminal.type(BEATS)
        terminal.expect(/beating.*true/)
        terminal.expect(IRB_PROMPT)
        beats_at_the_prompt(terminal, IRB_PROMPT)
        terminal.type("raise 'oops'\n")
        terminal.expect(/oops/)
        terminal.expect(IRB_PROMPT)
        terminal.type("spin { :spun_from_irb }.await\n")
        terminal.expect(/=> :spun_from_irb/)
        terminal.expect(IRB_PROMPT)
        terminal.type("exit\n")
        terminal.expect(/after: here.*beats: true/m)
        assert terminal.status.success?
      end
    end
  end

  def test_ctrl_c_at_the_prompt_of_irb
    at_terminal(PLACES[:main], 'binding.irb') do |terminal|
      terminal.expect(IRB_PROMPT)
      terminal.type('1 + ')
      terminal.expect(/1 \+/)
      terminal.type("\C-c")
      terminal.expect(IRB_PROMPT)
      terminal.type("print 'as', 'leep'; sleep\n")
      terminal.expect(/asleep/)
      terminal.type("\C-c")
      terminal.expect(/IRB::Abort|Interrupt/i)
      terminal.expect(IRB_PROMPT)
      terminal.type("exit\n")
      terminal.expect(/after: here/)
      assert terminal.status.success?
    end
  end

  PRY_PROMPT = /\[\d+\] pry\(\S+\)> /.freeze

  PLACES.each do |place, run|
    define_method(:"test_pry_in_the_#{place}_fiber") do
      at_terminal(run, 'require "polyphony/adapters/readline"; require "pry"; binding.pry', *gem_paths('pry')) do |terminal|
        terminal.expect(PRY_PROMPT)
        terminal.type("[local, secret]\n")
        terminal.expect(/=> \[:here, 42\]/)
        terminal.expect(PRY_PROMPT)
        terminal.type(BEATS)
        terminal.expect(/beating.*true/)
        terminal.expect(PRY_PROMPT)
        beats_at_the_prompt(terminal, PRY_PROMPT)
        terminal.type("exit\n")
        terminal.expect(/after: here.*beats: true/m)
        assert terminal.status.success?
      end
    end
  end

  DEBUG_PROMPT = /\(ruby\) |\(rdbg\) /.freeze

  # It comes with Ruby, as a gem that is not in the bundle.
  STOCK_GEMS = { 'BUNDLER_SETUP' => nil, 'GEM_HOME' => nil, 'GEM_PATH' => Gem.default_path.join(File::PATH_SEPARATOR) }.freeze
  DEBUGGER = Gem.default_path.any? { |path| Dir["#{path}/gems/debug-*/lib/debug.rb"].any? } ||
             $LOAD_PATH.any? { |path| File.exist?("#{path}/debug/session.rb") }

  # The debugger stops the thread at its prompt, as it is meant to: fibers go on with +continue+.
  PLACES.each do |place, run|
    define_method(:"test_debug_in_the_#{place}_fiber") do
      skip 'Ruby came without its debugger' unless DEBUGGER
      at_terminal(run, 'require "debug"; binding.break', env: STOCK_GEMS) do |terminal|
        terminal.expect(DEBUG_PROMPT)
        terminal.type("[local, secret]\n")
        terminal.expect(/\[:here, 42\]/)
        terminal.expect(DEBUG_PROMPT)
        terminal.type("next\n")
        terminal.expect(DEBUG_PROMPT)
        terminal.type("continue\n")
        terminal.expect(/after: here.*beats: true/m)
        assert terminal.status.success?
      end
    end
  end

  # Folders of a gem and what it needs, for a Ruby without bundler.
  def gem_paths(name)
    spec = Gem.loaded_specs[name] || Gem::Specification.find_by_name(name)
    [spec, *spec.runtime_dependencies.map { |needed| Gem::Specification.find_by_name(needed.name) }]
      .flat_map { |found| found.full_require_paths.map { |path| "-I#{path}" } }
  rescue Gem::MissingSpecError
    skip "the gem #{name} is not installed: bin/setup does it"
  end
end
