# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Pipe: both ends in one object.
class TestPipe < Polyphony::TestCase
  on_every_driver

  # Each test runs in a fiber with a pipe of its own. The end for reading goes with the object, and
  # nothing refers to that when the stack of the fiber is gone.
  def self.method_added(name)
    return if !name.start_with?('test_') || @wrapping

    @wrapping = true
    body = instance_method(name)
    remove_method(name)
    define_method(name) do
      spin do
        @pipe = Polyphony.pipe
        body.bind_call(self)
        @pipe.close unless @pipe.closed?
        nil # the fiber itself may be found on the stack for a while, and its result with it
      ensure
        @pipe = nil
      end.await
    end
    @wrapping = false
  end

  def test_what_is_written_can_be_read
    assert_equal 5, @pipe.write('hello')
    assert_equal 'hello', @pipe.readpartial(10)
    assert_same @pipe, (@pipe << 'more')
    assert_equal 'more', @pipe.read(4)
  end

  def test_write_takes_several_buffers
    assert_equal 6, @pipe.write('ab', 'cd', 'ef')
    assert_equal 'abcdef', @pipe.read(6)
  end

  def test_read_without_length_reads_until_it_is_closed
    spin { @pipe << 'one'; snooze; @pipe << 'two'; @pipe.close }
    assert_equal 'onetwo', @pipe.read
    assert_equal '', @pipe.read
    assert_nil @pipe.read(1)
  end

  def test_read_takes_a_buffer_and_a_position
    @pipe << 'XY'
    buffer = +'abc'
    assert_same buffer, @pipe.read(2, buffer, -1)
    assert_equal 'abcXY', buffer
    @pipe << 'Z'
    assert_equal 'aZ', @pipe.readpartial(5, buffer, 1)
  end

  def test_readpartial_waits_for_something
    fiber = spin { @pipe.readpartial(10) }
    snooze
    assert_equal :waiting, fiber.state
    @pipe << 'now'
    assert_equal 'now', fiber.await
  end

  def test_readpartial_at_the_end_raises_or_is_nil
    @pipe.close
    assert_raises(EOFError) { @pipe.readpartial(1) }
    assert_nil @pipe.readpartial(1, +'', 0, false)
  end

  def test_fds_are_two_open_descriptors_that_close_on_exec
    fds = @pipe.fds
    assert_equal 2, fds.uniq.size
    modes = %w[r w]
    fds.zip(modes) { |fd, mode| assert IO.for_fd(fd, mode, autoclose: false).close_on_exec? }
  end

  def test_close_closes_the_end_for_writing
    refute @pipe.closed?
    @pipe << 'kept'
    @pipe.close
    assert @pipe.closed?
    assert_equal 'kept', @pipe.read
    assert_raises(Polyphony::Pipe::ClosedPipeError) { @pipe << 'x' }
    assert_raises(RuntimeError) { @pipe.close }
  end

  def test_close_ends_a_waiting_write_and_a_waiting_read
    reading = spin { @pipe.readpartial(1, +'', 0, false) }
    snooze
    @pipe.close
    assert_nil reading.await
  end

  def test_close_ends_a_waiting_write_with_io_error
    fiber = spin do
      @pipe << 'x' * 1_000_000
    rescue IOError, Polyphony::Pipe::ClosedPipeError => e
      e.class
    end
    snooze until fiber.state == :waiting
    @pipe.close
    assert_includes [IOError, Polyphony::Pipe::ClosedPipeError], fiber.await
  end

  def test_large_data
    data = Random.new(9).bytes(500_000)
    spin { @pipe << data; @pipe.close }
    assert @pipe.read.b == data
  end

  def test_read_loop_and_feed_loop
    spin { 3.times { |i| @pipe << i.to_s; 3.times { snooze } }; @pipe.close }
    chunks = []
    assert_same(@pipe, @pipe.read_loop { |chunk| chunks << chunk })
    assert_equal '012', chunks.join
    @pipe = Polyphony.pipe
    @pipe << 'fed'
    @pipe.close
    fed = []
    assert_same @pipe, @pipe.feed_loop(->(chunk) { fed << chunk })
    assert_equal ['fed'], fed
  end

  def test_read_loop_takes_a_length
    @pipe << 'abcdef'
    @pipe.close
    chunks = []
    @pipe.read_loop(4) { |chunk| chunks << chunk }
    assert_equal %w[abcd ef], chunks
  end

  def test_wait_readable_and_wait_writable
    assert_nil @pipe.wait_readable(0.001)
    assert_same @pipe, @pipe.wait_writable
    @pipe << 'x'
    assert_same @pipe, @pipe.wait_readable
    assert_same @pipe, @pipe.wait_readable(1)
    @pipe.write('x' * 65_535)
    assert_nil @pipe.wait_writable(0.001)
  end

  def test_gets_getc_and_getbyte
    @pipe << "line one\nline two\nab"
    @pipe.close
    assert_equal "line one\n", @pipe.gets
    assert_equal "line two\n", @pipe.gets
    assert_equal 'a', @pipe.getc
    assert_equal 98, @pipe.getbyte
    assert_nil @pipe.gets
  end

  def test_getc_takes_whole_characters
    @pipe << 'é€𝄞'
    @pipe.close
    assert_equal ['é', '€', '𝄞', nil], Array.new(4) { @pipe.getc }
  end

  def test_a_line_that_is_broken_off_is_still_there
    @pipe << 'half a '
    assert_nil move_on_after(0.001) { @pipe.gets }
    @pipe << "line\nrest"
    assert_equal "half a line\n", @pipe.gets
    @pipe.close
    assert_equal 'rest', @pipe.gets
  end

  def test_gets_with_another_separator_and_without_one_at_the_end
    @pipe << 'a--b'
    @pipe.close
    assert_equal ['a--', 'b', nil], Array.new(3) { @pipe.gets('--') }
  end

  def test_puts
    @pipe.puts 'a', 'b'
    @pipe.close
    assert_equal "a\nb\n", @pipe.read
  end

  def test_splice_from_moves_bytes
    source = Polyphony.pipe
    source << 'spliced'
    assert_equal 7, @pipe.splice_from(source, 100)
    assert_equal 'spliced', @pipe.read(7)
    source.close
  end

  def test_tee_from_copies_bytes
    source = Polyphony.pipe
    source << 'teed'
    assert_equal 4, @pipe.tee_from(source, 100)
    assert_equal %w[teed teed], [@pipe.read(4), source.read(4)]
    source.close
  end

  def test_two_fibers_through_a_pipe
    consumer = spin { [].tap { |got| @pipe.read_loop(1) { |byte| got << byte } } }
    'hello'.each_char { |char| @pipe << char }
    @pipe.close
    assert_equal %w[h e l l o], consumer.await
  end

  def test_a_pipe_between_threads
    thread = Thread.new { @pipe.read }
    3.times { |i| @pipe << i.to_s }
    @pipe.close
    assert_equal '012', thread.value
  end

  def test_an_abandoned_pipe_is_closed_by_the_garbage_collector
    before = Dir.children('/proc/self/fd').size
    spin { 50.times { Polyphony.pipe } }.await
    GC.start
    assert_operator Dir.children('/proc/self/fd').size, :<=, before + 10
  end

  def test_an_uninitialized_pipe_is_refused
    assert_raises(RuntimeError) { Polyphony::Pipe.allocate.read(1) }
    assert_raises(RuntimeError) { Polyphony::Pipe.allocate << 'x' }
  end
end
