# frozen_string_literal: true

require_relative '../test_helper'

# Faults found by reading the C extension. The tests of hooks that may spin and of scopes that outlive
# their thread say what must stay true; each of the others failed, crashed or hung before.
class TestRegressionsReview < Polyphony::TestCase
  on_every_driver

  class Knock < StandardError; end

  class Compacting
    def to_s
      GC.verify_compaction_references(toward: :empty, **(RUBY_VERSION < '3.2' ? { double_heap: true } : { expand_heap: true }))
      Array.new(3000) { +'QQQQQQQQQ' << 'R' }
      'end'
    end
  end

  def test_short_strings_that_move_while_others_are_gathered_are_written_right
    reader, writer = IO.pipe
    texts = Array.new(20) { |i| +"text#{i}." }
    Polyphony.backend_write(writer, *texts, Compacting.new)
    assert_equal "#{texts.join}end", reader.readpartial(4096)
  ensure
    [reader, writer].each(&:close)
  end

  def test_a_string_emptied_while_its_reader_takes_its_turn_raises
    reader, writer = IO.pipe
    Polyphony.__put_back__(reader, 'abc' * 10)
    buffer = +'x' * 100
    reading = spin { Polyphony.backend_read(reader, buffer, 10, false, -1) }
    spin { buffer.replace('') }
    assert_raises(RuntimeError) { reading.await }
    assert_equal 'abc' * 10, Polyphony.backend_read(reader, nil, 100, false, 0)
  ensure
    [reader, writer].each(&:close)
  end

  def test_an_exception_from_another_thread_replaces_a_plain_wake
    main = Fiber.current
    thread = Thread.current
    other = Thread.new do
      Thread.pass until main.state == :waiting
      main.schedule(1)
      thread.raise(Knock)
    end
    assert_raises(Knock) { Polyphony.backend_sleep(5) }
    assert_nil Polyphony.backend_sleep(0.01)
  ensure
    other&.join
  end

  def test_an_idle_hook_that_waits_gets_an_error_and_the_wait_goes_on_unharmed
    error = nil
    Thread.current.on_idle { error ||= (Polyphony.backend_sleep(0) && nil rescue $!) }
    assert_nil Polyphony.backend_sleep(0.01)
    assert_kind_of ThreadError, error
  ensure
    Thread.current.on_idle
  end

  def test_an_idle_hook_may_spin
    spun = nil
    Thread.current.on_idle { spun ||= spin { :done } }
    Polyphony.backend_sleep(0.01)
    assert_equal :done, spun.await
  ensure
    Thread.current.on_idle
  end

  def test_a_trace_proc_that_writes_does_not_leave_the_readers_buffer_locked
    reader, writer = IO.pipe
    log, log_writer = IO.pipe
    Thread.current.backend.trace_proc = proc { |event| Polyphony.backend_write(log_writer, 'x') if event == :block }
    buffer = +''
    assert_raises(ThreadError) { Polyphony.backend_read(reader, buffer, 5, false, 0) }
    Thread.current.backend.trace_proc = nil
    assert_equal 'free', buffer << 'free'
  ensure
    Thread.current.backend.trace_proc = nil
    [reader, writer, log, log_writer].each(&:close)
  end

  def test_a_child_forked_in_a_stock_signal_handler_lives
    child = nil
    before = trap('USR1') { child = fork { exit!(7) } }
    sender = Thread.new { Kernel.sleep(0.02); Process.kill('USR1', Process.pid) }
    Polyphony.backend_sleep(0.01) until child
    assert_equal 7, Process.wait2(child)[1].exitstatus
  ensure
    sender&.join
    trap('USR1', before || 'DEFAULT')
  end

  def test_a_scope_outlives_its_thread
    face = nil
    Thread.new do
      spin { Polyphony::CancelScope.move_on_after(100, nil) { |scope| face = scope; Polyphony.backend_sleep(1000) } }
      2.times { snooze }
      Thread.current.backend.finalize
    end.join
    assert_same face, face.reset.cancel
  end

  def test_a_raw_buffer_whose_block_has_ended_lives_until_the_reader_is_done
    reader, writer = pipe_pair
    fiber = nil
    Polyphony.__with_raw_buffer__(64) do |buffer|
      fiber = waiting { Polyphony.backend_read(reader, buffer, 64, false, 0) }
    end
    Polyphony.backend_write(writer, 'late')
    assert_raises(ArgumentError) { fiber.await }
  end

  def test_an_interjection_that_closes_what_its_fiber_reads_ends_the_read
    reader, = pipe_pair
    fiber = waiting { Polyphony.backend_read(reader, +'', 1, false, 0) }
    fiber.interject { reader.close }
    assert_kind_of IOError, fiber.await
  end
end
