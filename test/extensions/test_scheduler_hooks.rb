# frozen_string_literal: true

require_relative '../test_helper'
require 'timeout'
require 'zlib'

# Hooks of the scheduler as the running Ruby calls them: what differs between 3.1 and 4.0.
class TestSchedulerHooks < Polyphony::TestCase
  on_every_driver

  # What the code prints in a fiber of Fiber.schedule, in a thread with the scheduler alone.
  def alone(code)
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony/core'
      Thread.report_on_exception = false
      Thread.new do
        Fiber.set_scheduler(Polyphony::Scheduler.new)
        Fiber.schedule { #{code} }
      end.join
    RUBY
    assert_predicate status, :success?, err
    out
  end

  # --- closing --------------------------------------------------------------------------------

  # A thread that waits in stock Ruby's own way, with nobody else to run.
  def reading_thread(reader)
    thread = Thread.new { reader.read(1) }
    thread.report_on_exception = false
    sleep 0.001 until thread.status == 'sleep'
    thread
  end

  def test_an_io_that_another_thread_reads_can_be_closed_from_any_fiber
    closings = { main: ->(io) { io.close }, spun: ->(io) { spin { io.close }.await },
                 blocking: ->(io) { Fiber.new(blocking: true) { io.close }.resume } }
    closings.each do |name, close|
      reader, = pipe_pair
      thread = reading_thread(reader)
      close.call(reader)
      assert_raises(IOError, name.to_s) { thread.value }
    end
  end

  def test_an_io_that_another_thread_reads_can_be_closed_with_the_scheduler_alone
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony/core'
      Thread.report_on_exception = false
      Fiber.set_scheduler(Polyphony::Scheduler.new)
      reader, writer = IO.pipe
      thread = Thread.new { reader.read(1) }
      Thread.pass until thread.status == 'sleep'
      reader.close
      puts((thread.value rescue $!.class))
    RUBY
    assert_equal "IOError\n", out, err
  end

  # --- reading and writing --------------------------------------------------------------------

  def test_pread_and_pwrite_alone
    assert_equal "ell,2,hXYlo\n", alone(<<~RUBY)
      require 'tempfile'
      Tempfile.create do |file|
        file.write('hello')
        file.flush
        puts [file.pread(3, 1), file.pwrite('XY', 1), file.pread(5, 0)].join(',')
      end
    RUBY
  end

  def test_read_nonblock_does_not_wait_alone
    assert_equal "[:wait_readable, \"abc\", nil]\n", alone(<<~RUBY)
      reader, writer = IO.pipe
      results = [reader.read_nonblock(10, exception: false)]
      writer.write('abc')
      results << reader.read_nonblock(10)
      writer.close
      p results << reader.read_nonblock(10, exception: false)
    RUBY
  end

  def test_a_buffer_is_read_into_and_written_from_where_it_says
    skip "Ruby #{RUBY_VERSION} has no offset" unless IO::Buffer.instance_method(:read).arity < 0
    reader, writer = pipe_pair
    spin do
      source = IO::Buffer.for('..hello')
      assert_equal 5, source.write(writer, 5, 2)
      target = IO::Buffer.new(8)
      assert_equal 5, target.read(reader, 5, 3)
      assert_equal "\0\0\0hello", target.get_string
    end.await
  end

  # --- time -----------------------------------------------------------------------------------

  def test_timeout_alone
    assert_equal "Timeout::Error: execution expired,IOError: late,1\n", alone(<<~RUBY)
      require 'timeout'
      results = [[], [IOError, 'late']].map do |args|
        Timeout.timeout(0.001, *args) { sleep }
      rescue Timeout::Error, IOError => e
        "\#{e.class}: \#{e.message}"
      end
      puts [*results, Timeout.timeout(10) { 1 }].join(',')
    RUBY
  end

  def test_an_exception_that_timeout_after_is_given_is_the_one_that_comes_out
    given = IOError.new('over')
    raised = assert_raises(IOError) { Fiber.scheduler.timeout_after(0.001, given, 'over') { sleep } }
    assert_same given, raised
    other = IOError.new('other')
    assert_same other, assert_raises(IOError) { Fiber.scheduler.timeout_after(10, given, 'over') { raise other } }
  end

  # --- Fiber.schedule -------------------------------------------------------------------------

  def test_a_thread_waits_for_what_it_has_scheduled
    done = []
    assert_equal 7, Thread.new { Fiber.schedule { sleep 0.001; done << 1 }; 7 }.value
    assert_equal [1], done
  end

  def test_a_thread_ends_with_the_error_of_what_it_has_scheduled
    thread = Thread.new { Fiber.schedule { sleep 0.001; raise IOError, 'scheduled' } }
    thread.report_on_exception = false
    assert_equal 'scheduled', assert_raises(IOError) { thread.value }.message
  end

  def test_fibers_of_a_thread_that_fails_are_not_left_in_the_lists_of_others
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony/core'
      gate = Thread::Queue.new
      other = Thread.new { gate.pop }
      thread = Thread.new do
        Fiber.set_scheduler(Polyphony::Scheduler.new)
        Fiber.schedule { begin other.join ensure print 'left ' end }
        Fiber.schedule { sleep 0.001; raise IOError }
      end
      thread.report_on_exception = false
      print((thread.join rescue $!.class))
      100.times { Thread.new { Array.new(100) { Object.new } }.join }
      gate << 1
      other.join
    RUBY
    assert_equal 'left IOError', out, err
  end

  # --- work that Ruby lets a scheduler do elsewhere -------------------------------------------

  def pool
    @pool ||= Polyphony::ThreadPool.new(4)
  end

  def teardown
    @pool&.stop
    super
  end

  def test_work_is_not_left_before_it_is_done
    begun, gate = Array.new(2) { Thread::Queue.new }
    order = []
    fiber = spin do
      order << move_on_after(10) { pool.__complete { begun << 1; gate.pop; order << :done; :result } }
      sleep
    end
    begun.pop
    fiber.stop
    3.times { snooze }
    assert_equal :waiting, fiber.state
    gate << 1
    fiber.await
    assert_equal %i[done result], order
  end

  def test_work_that_has_not_begun_is_not_done
    begun, gate = Array.new(2) { Thread::Queue.new }
    all = Array.new(4) { spin { pool.__complete { begun << 1; gate.pop } } }
    4.times { begun.pop }
    assert_nil(move_on_after(0.001) { pool.__complete { flunk } })
  ensure
    4.times { gate << 1 }
    Fiber.await(*all)
  end

  def test_work_raises_what_it_raises
    assert_raises(IOError) { spin { pool.__complete { raise IOError } }.await }
  end

  def asked_since_3_4
    skip "Ruby #{RUBY_VERSION} does not ask" if RUBY_VERSION < '3.4'
  end

  TEXT = Random.new(1).bytes(1 << 20)

  def test_compression_lets_others_run
    asked_since_3_4
    beats = 0
    spin { loop { snooze; beats += 1 } }
    compressed = spin { Zlib.deflate(TEXT, 9) }.await
    assert_operator beats, :>, 10
    assert_equal TEXT, Zlib.inflate(compressed)
  end

  # As in stock Ruby, zlib complains if it is broken off.
  def test_compression_can_be_broken_off
    asked_since_3_4
    text = TEXT * 20
    fiber = spin { Zlib.deflate(text, 9) rescue $!.class }
    snooze
    fiber.stop
    assert_includes [nil, Zlib::DataError, Zlib::BufError], fiber.await
  end

  def test_files_are_looked_at_without_a_switch
    beats = 0
    spin { loop { snooze; beats += 1 } }
    spin do
      snooze
      before = beats
      File.stat(__FILE__)
      assert File.exist?(__FILE__)
      assert_includes Dir.children(__dir__), File.basename(__FILE__)
      assert_includes Dir.glob("#{__dir__}/*.rb"), File.realpath(__FILE__)
      assert_equal before, beats
    end.await
  end
end
