# frozen_string_literal: true

require_relative '../test_helper'

# fork, exec and daemon by all their names, from wherever they can be called; and Polyphony.fork.
class TestForkWays < Polyphony::TestCase
  on_every_driver

  PRELUDE = <<~'RUBY'
    require 'polyphony'
    $stdout.sync = true
    beats = 0
    heart = spin { loop { beats += 1; sleep 0.0005 } }
    def status(pid)
      Process.wait(pid)
      $?.exitstatus || "signal #{$?.termsig}"
    end
    def work
      reader, writer = IO.pipe
      fiber = spin { Polyphony.backend_read(reader, nil, 10, false, 0) }
      spin { sleep 0.0005; Polyphony.backend_write(writer, 'bytes') }
      fiber.await == 'bytes' && Fiber.current.main? ? 7 : 1
    end
    sleep 0.001
  RUBY

  # Runs a program that forks; all it prints, parent and child, line by line.
  def lines_of(code, errors: nil)
    out, err, status = run_ruby("#{PRELUDE}\n#{code}")
    assert status.success?, "#{err}\n#{out}"
    errors ? assert_match(errors, err) : assert_empty(err)
    out.lines(chomp: true)
  end

  PLACES = {
    'the_main_fiber' => '%s', 'a_spun_fiber' => 'spin { %s }.await',
    'a_fiber_deep_down' => 'spin { spin { spin { %s }.await }.await }.await',
    'a_generator' => 'Enumerator.new { |y| y << (%s) }.next',
    'a_generator_in_a_spun_fiber' => 'spin { Enumerator.new { |y| y << (%s) }.next }.await',
    'a_fiber_of_ruby' => 'Fiber.new { %s }.resume', 'a_thread' => 'Thread.new { %s }.value',
    'a_fiber_of_a_thread' => 'Thread.new { spin { sleep }; spin { %s }.await }.value'
  }.freeze

  WAYS = {
    'fork' => 'fork { exit!(work) }', 'fork_without_a_block' => 'fork || exit!(work)',
    'process_fork' => 'Process.fork { exit work }', 'process_fork_without_a_block' => 'Process.fork || exit(work)',
    'polyphony_fork' => 'Polyphony.fork { exit work }',
    'popen' => "IO.popen('-').then { |io| io ? io.pid : exit!(work) }",
    'exec' => "fork { sleep 0.0005; exec('exit 7') }", 'exec_without_a_block' => "fork || exec('sh', '-c', 'exit 7')",
    'spawn' => "spawn('exit 7')"
  }.freeze

  PLACES.each do |place, frame|
    define_method("test_every_way_to_fork_works_in_#{place}") do
      code = WAYS.map { |_, way| "p status(#{frame % way})" }.join("\n")
      assert_equal ['7'] * WAYS.size + ['true'], lines_of("#{code}\nbefore = beats\nsleep 0.01\np beats > before")
    end
  end

  # --- as stock Ruby does ---------------------------------------------------------------------

  ENDINGS = <<~'RUBY'
    $stderr.reopen(File::NULL)
    at_exit { puts "at exit, #{$$ == PARENT ? 'parent' : 'child'}" }
    PARENT = $$
    END_OF = ->(pid) { Process.wait(pid); puts $?.inspect.sub(/pid \d+/, 'pid N') }
    ways = {
      nothing: -> {}, exit: -> { exit 3 }, exit!: -> { exit! 4 }, abort: -> { abort }, raise: -> { raise 'x' },
      throw: -> { throw :x }, exec: -> { exec 'exit 5' }, no_exec: -> { exec '/nonexistent/x' }, kill: -> { Process.kill(:KILL, $$) },
      term: -> { Process.kill(:TERM, $$); sleep }, int: -> { Process.kill(:INT, $$); sleep },
      at_exit: -> { at_exit { puts 'own' } }, thread: -> { Thread.new { sleep }; Thread.pass }
    }
    ways.each { |name, way| puts name; END_OF[fork(&way)] }
    ways.each { |name, way| puts name; END_OF[Process.fork(&way)] }
    print 'not flushed twice: stdout, '
    END_OF[fork {}]
    File.open(ARGV[0], 'w') { |file| file.write('a file is, as stock '); END_OF[fork {}] }
    puts File.read(ARGV[0])
  RUBY

  def test_endings_handlers_and_buffers_are_stock_rubys
    file = Tempfile.new('fork')
    expected, = run_ruby(ENDINGS, file.path)
    assert_operator expected.lines.size, :>, 50
    ["require 'polyphony'\n%s", "require 'polyphony'; spin { sleep }\nsleep 0.001\n%s",
     "require 'polyphony'; spin { %s }.await"].each do |frame|
      actual, = run_ruby(format(frame, ENDINGS), file.path)
      assert_equal expected, actual, frame
    end
  ensure
    file&.close!
  end

  def test_fibers_of_the_parent_do_not_run_their_ensure_blocks_in_the_child
    assert_equal %w[7 7 parent], lines_of(<<~RUBY)
      parent = $$
      spin do
        sleep
      ensure
        puts(parent == $$ ? 'parent' : 'child')
      end
      sleep 0.001
      p status(fork { exit 7 })
      p status(spin { Polyphony.fork { exit 7 } }.await)
    RUBY
  end

  def test_an_exec_from_a_fiber_takes_no_descriptors_along
    skip 'no /proc/self/fd' unless File.directory?('/proc/self/fd')
    command = "exec('cd /proc/self/fd && echo *')"
    expected, = run_ruby(command)
    assert_equal expected.lines(chomp: true), lines_of(<<~RUBY)
      reader, = IO.pipe
      spin { Polyphony.backend_read(reader, nil, 1, false, 0) }
      pid = spawn('sleep 0.05')
      spin { Process.wait(pid) }
      spin { Process.wait(-1) }
      sleep 0.001
      spin { #{command} }.await
    RUBY
  end

  # --- daemon ---------------------------------------------------------------------------------

  def test_a_daemon_goes_on_with_the_fiber_that_called
    assert_equal %w[7 true 0 true true], lines_of(<<~'RUBY')
      reader, writer = IO.pipe
      pid = Process.pid
      fork do
        foreign = 0
        spin { loop { foreign += 1; sleep 0.0005 } }
        sleep 0.002
        spin do
          Process.daemon(true, true)
          before = foreign
          code = work
          writer.puts code, Fiber.current.main?, foreign - before, Process.pid != pid, Process.getpgrp == Process.getsid
          exit!
        end.await
      end
      writer.close
      Process.waitall
      puts Polyphony.backend_read(reader, nil, 1000, true, 0)
    RUBY
  end

  # --- Polyphony.fork -------------------------------------------------------------------------

  def test_what_surrounds_the_fork_stays_behind
    assert_equal ['no limit, nil, nil, main', '7'], lines_of(<<~'RUBY')
      pid = spin do
        Fiber[:key] = :value
        cancel_after(0.005) do
          deadline(0.005) do
            Polyphony.fork do
              sleep 0.02
              puts "no limit, #{Polyphony.deadline.inspect}, #{Fiber[:key].inspect}, #{Fiber.current.tag}"
              exit 7
            end
          end
        end
      end.await
      p status(pid)
    RUBY
  end

  def test_fibers_of_the_block_are_shut_down_at_its_end
    assert_equal ['working', 'tidy', 'at exit: working in at_exit', '0'], lines_of(<<~'RUBY')
      at_exit { puts "at exit: #{spin { sleep 0.001; 'working in at_exit' }.await}" if $child }
      pid = Polyphony.fork do
        $child = true
        spin do
          puts 'working'
          sleep
        ensure
          sleep 0.001
          puts 'tidy'
        end
        snooze
      end
      p status(pid)
    RUBY
  end

  def test_handlers_of_the_parent_stay_behind
    assert_equal ['signal 15', 'signal 2', 'own 15', '3', 'parent'], lines_of(<<~'RUBY', errors: /Interrupt/)
      trap('TERM') { puts 'parent' }
      trap('INT') { puts 'parent' }
      strike = lambda do |signal, &block|
        reader, writer = IO.pipe
        pid = Polyphony.fork { block&.call; writer.write('x'); sleep }
        Polyphony.backend_read(reader, nil, 1, false, 0)
        Process.kill(signal, pid)
        status(pid)
      end
      puts strike['TERM'], strike['INT']
      puts strike.call('TERM') { trap('TERM') { |n| puts "own #{n}"; exit 3 } }
      Process.kill('TERM', $$)
      sleep 0.001
      trap('TERM', 'DEFAULT')
    RUBY
  end

  def test_how_it_ends
    assert_equal %w[0 3 4 0 0 1], lines_of(<<~'RUBY', errors: /gone wrong/)
      p status(Polyphony.fork { :value }), status(Polyphony.fork { exit 3 }), status(Polyphony.fork { spin { exit 4 }; sleep })
      p status(Polyphony.fork { main = Fiber.current; spin { main.stop }; sleep })
      p status(Polyphony.fork { Thread.new { sleep } })
      p status(Polyphony.fork { raise 'gone wrong' })
    RUBY
  end

  def test_a_block_is_needed
    error = assert_raises(ArgumentError) { Polyphony.fork }
    assert_equal 'Polyphony.fork needs a block to run in the child', error.message
  end
end
