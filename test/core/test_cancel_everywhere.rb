# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Whatever waits can be ended at each of its wait points, and nothing is lost or left.
class TestCancelEverywhere < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver
  time_limit 120

  def nothing_pending
    stats = Thread.current.backend.stats
    assert_equal [0, 0], stats.values_at(:pending_ops, :pending_timers)
  end

  # The helper itself: it has to find every wait point, and to end the scenario there.
  def test_every_wait_point_is_visited
    ends = Hash.new(0)
    points = cancel_everywhere do |run|
      steps = 0
      run.scenario { 4.times { steps += 1; snooze } }
      run.check { |finished| ends[finished ? :finished : steps] += 1 }
    end
    assert_equal 4 * 5, points # before the first run, and at each of four snoozes
    assert_equal({ 0 => 4, 1 => 4, 2 => 4, 3 => 4, 4 => 4, finished: 4 }, ends)
  end

  def test_snooze_and_suspend
    cancel_everywhere do |run|
      run.scenario { 3.times { snooze; Polyphony.backend_wait_event(true) } }
      run.beside do
        fiber = Fiber.current.parent.children.first
        8.times { snooze; fiber.schedule unless fiber.dead? }
      end
      run.check { nothing_pending }
    end
  end

  def test_sleep
    points = cancel_everywhere do |run|
      run.scenario { 3.times { sleep 0.0002 } }
      run.check { nothing_pending }
    end
    assert_operator points, :>=, 4 * 4
  end

  def test_nested_timeouts
    cancel_everywhere do |run|
      run.scenario do
        move_on_after(0.0003) { move_on_after(0.0002) { sleep 1 }; sleep 1 }
        cancel_after(1) { snooze }
      end
      run.check { nothing_pending }
    end
  end

  def test_a_queue_loses_no_item
    cancel_everywhere do |run|
      queue = Polyphony::Queue.new
      taken = []
      run.scenario { 3.times { taken << queue.shift } }
      run.beside { 3.times { |i| queue << i; 2.times { snooze } } }
      run.check do
        assert_equal [0, 1, 2], taken + queue.shift_all
        assert_equal 0, queue.num_waiting
      end
    end
  end

  def test_a_queue_passes_the_wake_on_to_the_next_shifter
    cancel_everywhere do |run|
      queue = Polyphony::Queue.new
      taken = []
      run.scenario { taken << queue.shift }
      run.beside { taken << queue.shift }
      run.beside { 2.times { snooze }; queue << :a; queue << :b }
      run.check do |finished|
        assert_equal finished ? 2 : 1, taken.size unless queue.empty? && taken.size == 2
        assert_equal %i[a b], (taken + queue.shift_all).sort
        queue << :again
        assert_equal :again, queue.shift, 'the queue works as before'
      end
    end
  end

  def test_a_capped_queue_loses_no_item_and_no_room
    cancel_everywhere do |run|
      queue = Polyphony::Queue.new(1)
      pushed = 0
      taken = []
      run.scenario { 4.times { |i| queue.push(i); pushed += 1 } }
      run.beside { 12.times { snooze; taken << queue.shift(true) unless queue.empty? } }
      run.check do
        all = taken + queue.shift_all
        assert_equal Array.new(all.size) { |i| i }, all
        assert_equal pushed, all.size
        queue.push(:x)
        assert_equal :x, queue.shift
      end
    end
  end

  def test_two_pushers_of_a_capped_queue
    cancel_everywhere do |run|
      queue = Polyphony::Queue.new(1)
      pushed = []
      taken = []
      run.scenario { 2.times { |i| queue.push([:a, i]); pushed << [:a, i] } }
      run.beside { 2.times { |i| queue.push([:b, i]); pushed << [:b, i] } }
      run.beside { 16.times { snooze; taken << queue.shift(true) unless queue.empty? } }
      run.check do
        assert_equal pushed.sort, (taken + queue.shift_all).sort
        assert_equal 0, queue.num_waiting
      end
    end
  end

  def test_an_event_keeps_its_signal
    cancel_everywhere do |run|
      event = Polyphony::Event.new
      got = []
      run.scenario { got << event.await }
      run.beside { 3.times { snooze }; event.signal(:value) }
      run.check { assert_equal [:value], got.empty? ? [event.await] : got }
    end
  end

  def test_a_waitlist_passes_the_wake_on
    cancel_everywhere do |run|
      list = Polyphony::WaitList.new
      woken = []
      run.scenario { list.park; woken << :scenario }
      run.beside { list.park; woken << :beside }
      run.beside do
        2.times { snooze }
        list.wake
        6.times { snooze }
        list.wake
      end
      run.check do
        assert_includes woken, :beside
        assert list.empty?
        assert_equal 0, list.woken
      end
    end
  end

  def test_a_waitlist_with_a_timeout
    cancel_everywhere do |run|
      list = Polyphony::WaitList.new
      run.scenario { list.park(0.0003); list.park(1) }
      run.beside { 4.times { snooze }; sleep 0.001; list.wake }
      run.check do
        nothing_pending
        assert list.empty?
        assert_equal 0, list.woken
      end
    end
  end

  def test_a_pipe_read_loses_no_byte
    heavy
    each_stream do |kind, reader, writer|
      cancel_everywhere do |run|
        got = +''
        run.scenario { 3.times { got << Polyphony.backend_read(reader, +'', 2, false, 0) } }
        run.beside { 'abcdef'.scan(/../) { |two| Polyphony.backend_write(writer, two); snooze } }
        run.check do
          nothing_pending
          got << Polyphony.backend_read(reader, +'', 6 - got.size, true, 0) if got.size < 6
          assert_equal 'abcdef', got, kind
        end
      end
    end
  end

  def test_a_read_to_a_length_loses_no_byte
    reader, writer = pipe_pair
    cancel_everywhere do |run|
      buffer = +''
      run.scenario { Polyphony.backend_read(reader, buffer, 6, true, 0) }
      run.beside { 'abcdef'.each_char { |char| Polyphony.backend_write(writer, char); snooze } }
      run.check do
        Polyphony.backend_read(reader, buffer, 6 - buffer.size, true, -1) if buffer.size < 6
        assert_equal 'abcdef', buffer
      end
    end
  end

  # What was written before it was ended has been written once and in order.
  def test_a_write_to_a_full_pipe_writes_a_prefix
    data = Array.new(40_000) { |i| (i ^ i >> 8) & 255 }.pack('C*') * 4
    cancel_everywhere do |run|
      reader, writer = IO.pipe(binmode: true)
      got = +''.b
      run.scenario { Polyphony.backend_write(writer, data) }
      run.beside do
        20.times do
          chunk = reader.read_nonblock(10_000, exception: false)
          got << chunk if chunk.is_a?(String)
          snooze
        end
      end
      run.check do |finished|
        writer.close
        got << reader.read
        reader.close
        assert_equal data.bytesize, got.bytesize if finished
        assert data.start_with?(got), 'bytes are missing or doubled'
        nothing_pending
      end
    end
  end

  def test_accept_leaves_no_descriptor_and_loses_no_connection
    server = track(TCPServer.new('127.0.0.1', 0))
    port = server.local_address.ip_port
    cancel_everywhere do |run|
      accepted = []
      clients = []
      run.scenario { 2.times { accepted << Polyphony.backend_accept(server, TCPSocket) } }
      run.beside do
        2.times do
          clients << Socket.tcp('127.0.0.1', port)
          snooze
        end
      end
      run.check do |finished|
        nothing_pending
        assert_equal 2, accepted.size if finished
        (accepted + clients).each(&:close)
        # What is left in the backlog is taken, so that the next run begins with none.
        loop { server.accept_nonblock.close }
      rescue IO::WaitReadable
        nil
      end
    end
  end

  def test_awaiting_children
    cancel_everywhere do |run|
      ended = 0
      begun = 0
      run.scenario do
        3.times do
          spin do
            begun += 1
            snooze
            snooze
          ensure
            snooze
            ended += 1
          end
        end
        Fiber.current.await_all_children
      end
      run.check { assert_equal begun, ended }
    end
  end

  def test_receiving_messages
    cancel_everywhere do |run|
      got = []
      fiber = nil
      run.scenario do
        fiber = Fiber.current
        3.times { got << receive }
      end
      run.beside { snooze until fiber || run.point.zero?; 3.times { |i| fiber << i; snooze } if fiber }
      run.check do
        next unless fiber

        kept = got + fiber.receive_all_pending # those that came after its end are dropped, and counted
        assert_equal [0, 1, 2].first(3 - fiber.mailbox.dropped), kept
      end
    end
  end

  def test_closing_and_opening_files
    cancel_everywhere do |run|
      fd = nil
      run.scenario do
        fd = Polyphony.backend_open('/dev/null')
        Polyphony.backend_stat('/dev/null')
        Polyphony.backend_close(fd)
        fd = nil
      end
      run.check do
        nothing_pending
        begin
          IO.for_fd(fd).close if fd
        rescue Errno::EBADF
          nil # ended when the kernel had closed it already
        end
      end
    end
  end
end
