# frozen_string_literal: true

require_relative '../test_helper'
require 'tmpdir'
require 'fileutils'

# `polyphony run`, driven as a user would, and compared with `ruby`.
class TestRun < Polyphony::TestCase
  on_every_driver
  time_limit 180 # many processes

  EXE = File.expand_path('../../exe/polyphony', __dir__)
  CLEAN = { 'RUBYOPT' => nil, 'RUBYLIB' => nil }.freeze

  def setup
    @folder = File.realpath(Dir.mktmpdir)
  end

  def teardown
    FileUtils.rm_rf(@folder)
  end

  def write(name, text)
    path = File.join(@folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
    name
  end

  def polyphony(*words, **options)
    call(RbConfig.ruby, "-I#{POLYPHONY_LIB}", EXE, *words, **options)
  end

  # @return [Array(String, String, Integer)] output, errors, status (negative: the signal)
  def call(*words, **options)
    result(start(*words, **options))
  end

  def start(*words, input: '', env: {}, at: @folder)
    pipe, writer = track(*IO.pipe)
    started = start_command(CLEAN.merge(env), *words, in: pipe, chdir: at)
    pipe.close
    writer.write(input)
    writer.close
    started
  end

  def result(started)
    out, err, status = started.finish(self, patient(30))
    [out, err, status.exitstatus || -status.termsig]
  end

  # The same words for ruby and for polyphony run have the same effect.
  def assert_like_ruby(*words, status: 0, **options)
    commands = [[RbConfig.ruby], [RbConfig.ruby, "-I#{POLYPHONY_LIB}", EXE, 'run']]
    stock, ours = commands.map { |command| start(*command, *words, **options) }.map { |one| result(one) }
    assert_equal stock, ours
    assert_equal status, ours[2]
    ours[0]
  end

  # --- the script -------------------------------------------------------------------------------

  def test_a_script_finds_everything_as_usual
    write('lib/other.rb', "OTHER = [__FILE__, __dir__]\n")
    script = write('scripts/one.rb', <<~'RUBY')
      # frozen_string_literal: true
      x = 1
      p __FILE__, $0, $PROGRAM_NAME, __dir__, ARGV, $*, self, 'a'.frozen?, __LINE__, __method__, __ENCODING__
      p TOPLEVEL_BINDING.local_variables, TOPLEVEL_BINDING.local_variable_get(:x), binding.local_variables
      def helper = :helped
      p self.class.private_method_defined?(:helper), eval('x + 1', TOPLEVEL_BINDING)
      require_relative '../lib/other'
      p OTHER
      p :main if __FILE__ == $0
      BEGIN { puts 'begin' }
      END { puts 'end' }
      at_exit { p $!; puts 'at exit' }
      text = <<~TEXT
        __END__
      TEXT
      p text, DATA.pos, DATA.class, DATA.path, DATA.lineno, DATA.read, DATA.tap(&:rewind).gets, ENV.keys.grep(/POLYPHONY_RUN|FIBER/)
      p gets, $stdin.read
      y = 2
      exit 4
      __END__
      the data
    RUBY
    out = assert_like_ruby(script, status: 4, input: "first\nrest")
    assert_match(/"the data\\n"/, out)
    assert_like_ruby(write('words.rb', 'p ARGV'), 'a', '-b', '--', '--version', '-e', '')
    assert_like_ruby(File.join(@folder, 'words.rb'), at: '/')
    assert_like_ruby('words.rb', *Array.new(5000) { |n| "a long word with the number #{n}" })
  end

  def test_it_runs_in_a_non_blocking_fiber_which_is_the_main_one
    write('fiber.rb', <<~'RUBY')
      p Fiber.current.blocking?, Fiber.current.main?, Thread.main.main_fiber == Fiber.current, defined?(Polyphony)
      turns = 0
      spin { loop { turns += 1; snooze } }
      r, w = IO.pipe
      spin { sleep 0.01; w.puts 'line' }
      p r.gets, turns > 3
    RUBY
    assert_equal ["false\ntrue\ntrue\n\"constant\"\n\"line\\n\"\ntrue\n", '', 0], polyphony('run', 'fiber.rb')
  end

  def test_a_return_at_the_top_ends_it
    assert_like_ruby(write('return.rb', "puts 1\nbegin; return; ensure; puts 2; end\nputs 3\n"))
    assert_like_ruby('-e', "puts 1\nbegin; return; ensure; puts 2; end\nputs 3\n")
    assert_like_ruby(input: "puts 1\nreturn\nputs 3\n")
  end

  def test_from_standard_input
    script = "p $0, __FILE__, ARGV, gets\nx = 1\np TOPLEVEL_BINDING.local_variables, DATA.read\n__END__\nline\nrest"
    assert_like_ruby(input: script)
    assert_like_ruby('-', input: script)
    assert_like_ruby('-', 'a', 'b', input: 'p $0, ARGV')
    assert_like_ruby(input: '')
  end

  def test_an_empty_script_and_one_of_comments
    assert_like_ruby(write('empty.rb', ''))
    assert_like_ruby(write('comment.rb', "# nothing\n"))
  end

  def test_it_recurses_as_deep_as_in_the_main_fiber
    assert_like_ruby(write('deep.rb', "def f(n) = n.zero? ? 0 : 1 + f(n - 1)\np f(8000)\ndef g(n) = n.zero? ? 0 : [1].sum { g(n - 1) }\np g(2500)\n"))
  end

  # --- options of Ruby --------------------------------------------------------------------------

  def test_options
    write('lib/mine.rb', "puts 'mine'\n")
    write('sub/two.rb', "p Dir.pwd, ARGV\n")
    assert_like_ruby('-Ilib', '-rmine', '-e', 'p $LOADED_FEATURES.grep(/mine/).size, $0, ARGV', 'a', '-b')
    assert_like_ruby('-I', 'lib', '-r', 'mine', '-e', 'p 1', '-e', 'p __LINE__', '--', '-a')
    assert_like_ruby('-w', write('warn.rb', "p $VERBOSE\nunused = 1\ndef a; end\ndef a; end\n"))
    assert_like_ruby('-we', 'p $VERBOSE')
    assert_like_ruby('-ep __FILE__', '-Ilib', '-rmine', 'a')
    assert_like_ruby('-e', status: 1)
    assert_like_ruby('-W0', '-e', 'p $VERBOSE')
    assert_like_ruby('-C', 'sub', 'two.rb', 'a')
    assert_like_ruby('-E', 'ISO-8859-1', '-e', 'p Encoding.default_external')
    assert_like_ruby('--encoding', 'ISO-8859-1', '--disable', 'did_you_mean', '-e', 'p Encoding.default_external')
    assert_like_ruby('--', 'sub/two.rb', '--', 'a')
    assert_like_ruby('-c', 'sub/two.rb')
    assert_like_ruby('-ne', 'puts $_.upcase', input: "a\nb\n")
    assert_like_ruby('-s', write('s.rb', 'p $x, ARGV'), '-x', 'a')
    assert_like_ruby('--version')
  end

  def test_options_in_the_first_line
    assert_like_ruby(write('w.rb', "#!/usr/bin/env ruby -w\np $VERBOSE\n"))
    assert_like_ruby(write('plain.rb', "#!/usr/bin/env ruby\np $VERBOSE\n"))
    assert_like_ruby(write('sh.rb', "#!/bin/sh\necho\n"), status: 1)
  end

  # --- errors -----------------------------------------------------------------------------------

  def test_errors_are_reported_as_ruby_does
    write('fails.rb', <<~'RUBY')
      def inner = raise(ArgumentError, 'inner')
      def outer
        inner
      rescue ArgumentError
        raise IOError, 'outer'
      end
      [1].each { outer }
    RUBY
    assert_like_ruby('fails.rb', status: 1)
    assert_like_ruby(File.join(@folder, 'fails.rb'), status: 1)
    assert_like_ruby('-e', 'raise "x"', status: 1)
    assert_like_ruby(input: "\nnone.size", status: 1)
    assert_like_ruby(write('abort.rb', "at_exit { puts 'at exit' }\nabort 'enough'"), status: 1)
    assert_like_ruby(write('load.rb', "require 'no_such_library'"), status: 1)
    assert_like_ruby(write('rescued.rb', "begin; raise 'x'; rescue => e; p e.backtrace, e.full_message(highlight: false); end"))
    assert_like_ruby(write('bang.rb', 'exit! 5'), status: 5)
    assert_like_ruby(write('throw.rb', 'throw :x'), status: 1)
  end

  def test_what_cannot_be_run_is_refused_as_ruby_does
    assert_like_ruby('nothing.rb', 'a', status: 1)
    assert_like_ruby('.', status: 1)
    assert_like_ruby(write('syntax.rb', "p 1\np (\n"), status: 1)
    assert_like_ruby('-e', 'p (', status: 1)
    assert_like_ruby(input: 'p (', status: 1)
    assert_like_ruby('--no-such-option', status: 1)
  end

  # --- signals, fibers at the end ---------------------------------------------------------------

  def test_signals_come_to_the_script
    assert_like_ruby(write('int.rb', "begin; Process.kill('INT', $$); sleep; rescue Interrupt; puts 'interrupted'; end"))
    assert_like_ruby(write('term.rb', "at_exit { puts 'at exit' }\nbegin; Process.kill('TERM', $$); sleep; ensure; puts 'ensured'; end"), status: -15)
    assert_like_ruby(write('trap.rb', "trap('INT') { puts 'trapped'; exit 3 }\nProcess.kill('INT', $$)\nsleep"), status: 3)
    out, _, status = polyphony('run', '-e', "Thread.new { Process.kill('INT', $$) }\nloop { }")
    assert_equal ['', -2], [out, status]
  end

  def test_fibers_end_with_the_script_behind_at_exit
    write('fibers.rb', <<~'RUBY')
      at_exit { puts "at exit, #{spin { sleep 0.001; :spun }.await}" }
      spin { begin; sleep; ensure; sleep 0.001; puts 'ended' end }
      spin { snooze; snooze; exit 6 }
      begin
        sleep
      ensure
        puts 'script'
      end
    RUBY
    assert_equal ["script\nat exit, spun\nended\n", '', 6], polyphony('run', 'fibers.rb')
  end

  def test_exit_in_at_exit
    assert_like_ruby(write('late.rb', "at_exit { at_exit { exit 3 }; exit 2 }"), status: 3)
    assert_like_ruby('-e', "at_exit { p $!; exit 3 }\nexit 2", status: 3)
  end

  def test_an_error_of_a_fiber_ends_the_script
    out, err, status = polyphony('run', '-e', "spin { raise IOError, 'in a fiber' }\nsleep")
    assert_equal ['', 1], [out, status]
    assert_match(/\A-e:1:in .*in a fiber \(IOError\)/, err)
    refute_match(/polyphony/, err)
  end

  def test_it_forks_threads_and_runs_children
    assert_like_ruby(write('mixed.rb', <<~'RUBY'))
      $stdout.sync = true
      Process.wait(fork { puts 'child'; exit 3 })
      p $?.exitstatus, `echo out`, Thread.new { Thread.current == Thread.main }.value
      puts IO.popen('cat', 'r+') { |io| io.puts 'through'; io.close_write; io.read }
      p [3, 1, 2].each_with_index.next, Enumerator.new { |y| y << `echo in`; y << 2 }.take(2)
      q = Queue.new
      Thread.new { sleep 0.01; q << 1 }
      p q.pop
      m = Mutex.new
      p m.synchronize { m.owned? }
      catch(:done) { [1].each { throw :done } }
      require 'timeout'
      p((Timeout.timeout(0.01) { sleep } rescue $!.class))
    RUBY
  end

  # --- the command ------------------------------------------------------------------------------

  def test_help
    %w[--help -h].each do |word|
      out, err, status = polyphony('run', word)
      assert_equal ['', 0], [err, status]
      assert_match(/\Ausage: polyphony run/, out)
    end
    assert_match(/^  run /, polyphony('help')[0])
  end

  def test_a_forgotten_word
    out, err, status = polyphony(write('script.rb', 'puts 1'), 'a')
    assert_equal ['', 64], [out, status]
    assert_match(/no such command: script.rb\nto run a script: polyphony run script.rb a$/, err)
  end
end
