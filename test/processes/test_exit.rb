# frozen_string_literal: true

require_relative '../test_helper'

# How a program ends: by itself, by exit, by a signal. Each in a process of its own.
class TestExit < Polyphony::TestCase
  on_every_driver

  # Runs the code, sends each signal when the program says "ready", and waits for its end.
  # @return [Array(Array<String>, Process::Status)] what it said besides
  def run_program(code, *signals)
    reader, writer = track(*IO.pipe)
    pid = Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, "-I#{POLYPHONY_LIB}", '-e', <<~RUBY, out: writer, err: File::NULL)
      require 'polyphony'
      $stdout.sync = true
      def lasting
        sleep
      ensure
        yield
      end
      #{code}
    RUBY
    writer.close
    said = follow(reader, pid, signals)
    [said, wait_for(pid, patient(20))]
  end

  def follow(reader, pid, signals)
    said = []
    Polyphony.backend_read_loop(reader, 1000) do |chunk|
      chunk.each_line(chomp: true) do |line|
        line == 'ready' ? Process.kill(signals.shift || flunk('no signal left'), pid) : said << line
      end
    end
    said
  end

  def assert_killed_by(signal, status)
    assert status.signaled?, status.inspect
    assert_equal Signal.list[signal], status.termsig
  end

  # --- by itself and by exit ------------------------------------------------------------------

  def test_children_end_with_the_main_fiber_in_reverse_order_and_may_wait
    said, status = run_program(<<~RUBY)
      2.times { |n| spin { lasting { sleep 0.01 * n; puts "child \#{n}" } } }
      snooze
      puts 'main'
    RUBY
    assert_equal ['main', 'child 0', 'child 1'].sort, said.sort
    assert_equal 'main', said.first
    assert status.success?
  end

  def test_handlers_of_at_exit_keep_their_order
    said, = run_program(<<~RUBY)
      spin { lasting { puts 'child' } }
      at_exit { puts 'first' }
      at_exit { puts 'second' }
      snooze
    RUBY
    assert_equal %w[second first child], said
  end

  def test_fibers_may_be_used_in_at_exit
    said, = run_program("at_exit { puts spin { sleep 0.001; 'in a fiber' }.await }")
    assert_equal ['in a fiber'], said
  end

  def test_exit_in_a_fiber_ends_the_program_with_its_status
    said, status = run_program(<<~RUBY)
      spin { spin { lasting { puts 'nephew' } }; sleep }
      spin { spin { 3.times { snooze }; exit 3 }.await; puts 'never' }
      begin
        sleep
      ensure
        puts 'main'
      end
    RUBY
    assert_equal [%w[main nephew], 3], [said, status.exitstatus]
  end

  def test_nobody_between_stops_an_exit
    said, status = run_program(<<~RUBY)
      spin do
        child = spin { snooze; exit 4 }
        child.monitor(Fiber.current)
        Fiber.current.monitor_mailbox.shift
        sleep
      end
      sleep
    RUBY
    assert_equal [[], 4], [said, status.exitstatus]
  end

  def test_an_error_of_a_child_is_the_programs
    _, status = run_program("spin { snooze; raise IOError }\nsleep")
    assert_equal 1, status.exitstatus
    _, status = run_program("spin { lasting { raise IOError } }\nsnooze")
    assert_equal 1, status.exitstatus
  end

  def test_no_error_is_lost_at_the_end
    _, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      shield do
        3.times { |n| spin { raise IOError, "error \#{n}" } }
        3.times { snooze }
      end
    RUBY
    assert_equal 1, status.exitstatus
    assert_equal [0, 1, 2], err.scan(/error (\d)/).flatten.map(&:to_i).sort
  end

  def test_who_stops_the_main_fiber_ends_the_program
    %w[stop(3) terminate interrupt].each do |way|
      said, status = run_program("main = Fiber.current\nspin { main.#{way} }\nbegin; sleep; ensure; puts 'main'; end\nputs 'never'")
      assert_equal [['main'], 0], [said, status.exitstatus], way
    end
  end

  # --- by signals -----------------------------------------------------------------------------

  { 'waits' => 'sleep', 'snoozes' => 'loop { snooze }', 'computes' => 'loop { }' }.each do |name, work|
    %w[INT TERM].each do |signal|
      define_method("test_#{signal}_ends_a_program_whose_fiber_#{name}") do
        said, status = run_program(<<~RUBY, signal)
          spin { spin { puts 'ready'; #{work} }; sleep }
          begin
            sleep
          ensure
            puts 'main'
          end
        RUBY
        assert_killed_by signal, status
        assert_equal ['main'], said
      end
    end
  end

  def test_a_second_signal_ends_the_program_at_once
    said, status = run_program(<<~RUBY, 'INT', 'INT')
      spin { puts 'ready'; lasting { puts 'ready'; sleep } }
      sleep
    RUBY
    assert_killed_by 'INT', status
    assert_equal [], said
  end

  def test_a_second_signal_while_the_main_fiber_cleans_up
    said, status = run_program(<<~RUBY, 'INT', 'INT')
      spin { lasting { sleep } }
      begin
        puts 'ready'
        sleep
      ensure
        puts 'ready'
        sleep
        puts 'never'
      end
    RUBY
    assert_killed_by 'INT', status
    assert_equal [], said
  end

  def test_a_second_signal_when_a_computing_fiber_keeps_the_first_from_the_main_fiber
    _, status = run_program(<<~RUBY, 'INT', 'INT')
      spin { puts 'ready'; puts 'ready'; loop { } }
      sleep
    RUBY
    assert_killed_by 'INT', status
  end

  def test_the_first_signal_is_no_second_one_because_another_error_waits
    said, status = run_program(<<~RUBY, 'INT')
      main = Fiber.current
      spin do
        main.raise('another')
        puts 'ready'
        begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        Thread.pass while Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun < 0.5
      end
      begin
        2.times { sleep rescue puts $!.message }
      rescue Interrupt
        puts 'interrupt'
      end
    RUBY
    assert_equal [%w[another interrupt], true], [said, status.success?]
  end

  def test_an_interrupt_that_is_rescued_harms_no_fiber
    said, status = run_program(<<~RUBY, 'INT', 'INT')
      turns = 0
      spin { loop { turns += 1; snooze } }
      2.times do
        puts 'ready'
        sleep
      rescue Interrupt => e
        puts "rescued \#{e.message.inspect}"
      end
      before = turns
      3.times { snooze }
      puts turns > before
    RUBY
    assert_equal ['rescued ""', 'rescued ""', 'true'], said
    assert status.success?
  end

  def test_handlers_of_the_program_are_left_alone
    said, status = run_program(<<~RUBY, 'INT')
      trap('INT') { puts 'mine'; exit 7 }
      spin { lasting { puts 'child' } }
      snooze
      puts 'ready'
      sleep
    RUBY
    assert_equal [%w[mine child], 7], [said, status.exitstatus]
    asked = "puts trap('USR1', 'IGNORE').inspect, trap('HUP', 'IGNORE').inspect"
    expected, = run_ruby(asked) # not the default, if nohup runs the tests
    said, = run_program(asked)
    assert_equal expected.lines(chomp: true), said
  end

  def test_a_forked_child_ends_by_its_own_signal
    said, status = run_program(<<~'RUBY')
      reader, writer = IO.pipe
      pid = fork do
        spin { lasting { writer.write("child of the child\n") } }
        snooze
        writer.write("go\n")
        sleep
      end
      Polyphony.backend_read(reader, nil, 10, false, 0)
      Process.kill('TERM', pid)
      _, status = Polyphony.backend_waitpid(pid)
      puts Polyphony.backend_read(reader, nil, 100, false, 0)
      puts status
    RUBY
    assert status.success?
    assert_equal ['child of the child', Signal.list['TERM'].to_s], said
  end
end
