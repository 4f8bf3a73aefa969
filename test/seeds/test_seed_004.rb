# frozen_string_literal: true

require_relative 'seed_case'

# "Explaining Ruby fibers". Left out: the two programs that ask STDIN and a timer in turn, and the one on
# the gem `ever`, which show how to do without this library; STDIN.read in a fiber, and puts as a switchpoint,
# which need the stock methods to be fiber-aware. Polyphony::Pipe stands in for the io of gets_with_timeout.
class TestSeed004 < Polyphony::SeedCase
  on_every_driver

  def test_fibers_switch_by_hand
    assert_prints <<~OUT, <<~'RUBY'
      Hi from main fiber
      Hi from f1
      Hi from f2
      Hi again from f1
      Bye from main fiber
    OUT
      require 'fiber'

      @f1 = Fiber.new do
        puts 'Hi from f1'
        @f2.transfer
        puts 'Hi again from f1'
      end

      @f2 = Fiber.new do
        puts 'Hi from f2'
        @f1.transfer
      end

      puts 'Hi from main fiber'
      @f1.transfer
      puts 'Bye from main fiber'
    RUBY
  end

  def test_a_switch_carries_a_value
    assert_prints "ping\npong\nping\npong\nping\npong\n", <<~'RUBY'
      ping = Fiber.new do |peer|
        3.times do
          msg = peer.transfer('ping')
          puts msg
        end
      end

      pong = Fiber.new do |msg|
        loop do
          puts msg
          msg = ping.transfer('pong')
        end
      end

      ping.transfer(pong)
    RUBY
  end

  def test_the_value_of_a_switch_controls_a_fiber
    assert_prints [1, 2, 3, 0, 1, 2, 3].map { |n| "count = #{n}\n" }.join, <<~'RUBY'
      main = Fiber.current
      f = Fiber.new do |msg|
        count = 0
        loop do
          case msg
          when :reset
            count = 0
          when :increment
            count += 1
          end
          puts "count = #{count}"
          msg = main.transfer
        end
      end

      3.times { |i| f.transfer(:increment) }
      f.transfer(:reset)
      3.times { |i| f.transfer(:increment) }
    RUBY
  end

  def test_two_endless_fibers_go_on_side_by_side
    assert_prints "Time\nhello\nTime\nTime\n", <<~'RUBY'
      input = Polyphony.pipe
      main = Fiber.current
      echo_printer = spin { loop { puts input.readpartial(1024) } }
      time_printer = spin do
        1.upto(Float::INFINITY) do |tick|
          sleep 0.02
          puts 'Time'
          input << "hello\n" if tick == 1 # the user's fingers
          main.raise Interrupt if tick == 3
        end
      end

      begin
        Fiber.await(echo_printer, time_printer)
      rescue Interrupt
        # Ctrl-C: otherwise main waits for ever
      end
    RUBY
  end

  # A spun fiber is in the run queue until the current one leaves the floor, then waits outside of it.
  def test_fibers_enter_and_leave_the_run_queue
    length = -> { Thread.current.backend.stats[:runqueue_length] }
    before = length.call
    printer = spin { loop { sleep 0.005 } }
    assert_equal before + 1, length.call
    suspended = spin { loop { suspend } }
    assert_equal before + 2, length.call
    snooze
    assert_equal before, length.call
    assert_equal %i[waiting waiting], [printer, suspended].map(&:state)
    suspended.schedule
    assert_equal before + 1, length.call
  end

  def test_the_run_queue_is_first_in_first_out
    log = []
    fibers = Array.new(4) { |i| spin { suspend; log << i } }
    snooze
    fibers.values_at(2, 0, 3, 1).each(&:schedule)
    Fiber.await(fibers)
    assert_equal [2, 0, 3, 1], log
  end

  def test_a_fiber_is_scheduled_with_a_message
    assert_prints "Got O hi!\n" * 3, <<~'RUBY'
      lazy = spin do
        loop do
          msg = suspend
          puts "Got #{msg}"
        end
      end

      ticks = 0
      every(0.02) { (ticks += 1) == 4 ? break : lazy.schedule('O hi!') }
    RUBY
  end

  def test_a_sleep_raises_an_exception_it_is_resumed_with
    fiber = spin { sleep 10 }
    snooze
    fiber.schedule(IOError.new('resumed with'))
    assert_equal 'resumed with', assert_raises(IOError) { fiber.await }.message
  end

  # The fibers of the document switch in puts; these snooze.
  def test_fibers_that_schedule_each_other_do_not_starve_what_waits
    reader, writer = pipe_pair
    @f1 = spin { loop { @f2.schedule; snooze } }
    @f2 = spin { loop { @f1.schedule; snooze } }
    read = spin { Polyphony.backend_read(reader, nil, 10, false, 0) }
    snooze
    writer.write('completed')
    assert_equal('completed', cancel_after(patient(20)) { read.await })
  end

  def gets_and_move_on(io, timeout)
    move_on_after(timeout) { io.gets }
  end

  def gets_and_cancel(io, timeout)
    cancel_after(timeout) { io.gets }
  rescue Polyphony::Cancel
    'gets was cancelled!'
  end

  def test_move_on_after_gives_up_on_a_line
    pipe = Polyphony.pipe
    assert_nil gets_and_move_on(pipe, 0.005)
    pipe << "a line\n"
    assert_equal "a line\n", gets_and_move_on(pipe, 10)
  end

  def test_cancel_after_raises_for_a_line
    pipe = Polyphony.pipe
    assert_equal 'gets was cancelled!', gets_and_cancel(pipe, 0.005)
    pipe << "a line\n"
    assert_equal "a line\n", gets_and_cancel(pipe, 10)
  end

  def test_suspend_snooze_schedule_and_terminate_change_the_state
    suspended = spin { suspend }
    snoozing = spin { loop { snooze } }
    snooze
    assert_equal %i[waiting runnable], [suspended, snoozing].map(&:state)
    suspended.schedule
    assert_equal :runnable, suspended.state
    snoozing.terminate
    Fiber.await(suspended, snoozing)
    assert_equal %i[dead dead], [suspended, snoozing].map(&:state)
  end
end
