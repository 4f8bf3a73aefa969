# frozen_string_literal: true

require_relative '../test_helper'
require 'pty'

# Reading and writing through the backend: buffers of every kind, positions, EOF, errors, closing.
class TestReadWrite < Polyphony::TestCase
  on_every_driver

  def read(io, buffer = +'', length = nil, to_eof = false, pos = 0)
    Polyphony.backend_read(io, buffer, length, to_eof, pos)
  end

  def write(io, *buffers)
    Polyphony.backend_write(io, *buffers)
  end

  def file(content = '')
    path = Tempfile.create('polyphony').tap { |f| f.write(content); f.close }.path
    @paths = (@paths || []) << path
    path
  end

  def teardown
    @paths&.each { |path| File.unlink(path) }
    super
  end

  # Without showing megabytes when they differ.
  def assert_bytes(expected, actual, message = nil)
    assert_equal expected.bytesize, actual.bytesize, message
    assert expected.b == actual.b, "#{message}: the bytes differ"
  end

  # What ends the read of a fiber, without its parent getting it.
  def error_of
    spin do
      yield
    rescue SystemCallError, IOError => e
      e.class
    end
  end

  # --- reading into a String ------------------------------------------------------------------------

  def test_a_read_returns_the_buffer_it_was_given
    each_stream do |kind, reader, writer|
      buffer = +''
      writer.syswrite('hello')
      assert_same buffer, read(reader, buffer, 100), kind
      assert_equal 'hello', buffer
    end
  end

  def test_a_read_waits_for_the_first_bytes_and_takes_no_more_than_asked
    each_stream do |kind, reader, writer|
      fiber = spin { read(reader, +'', 3) }
      snooze
      assert_equal :waiting, fiber.state, kind
      write(writer, 'abcdef')
      assert_equal 'abc', fiber.await
      assert_equal 'def', read(reader, +'', 3)
    end
  end

  def test_a_read_at_eof_is_nil
    each_stream do |kind, reader, writer|
      writer.close
      assert_nil read(reader, +'', 10), kind
      assert_nil read(reader, +'', 10, true), kind
      assert_nil read(reader), kind
    end
  end

  def test_a_read_of_nothing_is_no_eof
    reader, = pipe_pair
    assert_equal '', read(reader, +'', 0)
  end

  def test_a_read_without_length_takes_everything_until_eof
    each_stream do |kind, reader, writer|
      data = Random.new(1).bytes(300_000)
      spin { write(writer, data); writer.close }
      assert_bytes data, read(reader), kind
    end
  end

  def test_a_read_to_eof_with_a_length_goes_on_until_it_is_reached
    each_stream do |kind, reader, writer|
      spin { 10.times { |i| write(writer, i.to_s * 10); snooze } }
      assert_equal (0..9).map { |i| i.to_s * 10 }.join, read(reader, +'', 100, true), kind
    end
  end

  def test_a_read_to_eof_gives_what_there_was_when_eof_comes_first
    each_stream do |kind, reader, writer|
      spin { write(writer, 'short'); writer.close }
      assert_equal 'short', read(reader, +'', 100, true), kind
    end
  end

  def test_bytes_go_to_the_position_and_what_was_behind_it_is_cut
    reader, writer = pipe_pair
    write(writer, 'XY')
    assert_equal 'abXY', read(reader, +'abcdef', 10, false, 2)
    write(writer, 'XY')
    assert_equal 'XY', read(reader, +'abcdef', 10, false, 0)
  end

  def test_a_negative_position_counts_from_the_end
    reader, writer = pipe_pair
    write(writer, 'XY')
    assert_equal 'abcXY', read(reader, +'abc', 10, false, -1)
    write(writer, 'XY')
    assert_equal 'abXY', read(reader, +'abc', 10, false, -2)
  end

  def test_a_position_outside_is_an_error
    reader, = pipe_pair
    assert_raises(IndexError) { read(reader, +'abc', 1, false, 4) }
    assert_raises(IndexError) { read(reader, +'abc', 1, false, -5) }
  end

  def test_eof_at_a_position_keeps_what_was_before_it
    reader, writer = pipe_pair
    writer.close
    buffer = +'abc'
    assert_nil read(reader, buffer, 10, false, -1)
    assert_equal 'abc', buffer
  end

  def test_a_nil_buffer_means_a_new_string
    reader, writer = pipe_pair
    write(writer, 'fresh')
    assert_equal 'fresh', read(reader, nil, 10)
  end

  def test_the_encoding_of_the_given_string_stays
    reader, writer = pipe_pair
    write(writer, 'äö')
    buffer = String.new(encoding: 'UTF-8')
    assert_equal 'äö', read(reader, buffer, 10)
    assert_equal Encoding::UTF_8, buffer.encoding
    assert buffer.valid_encoding?
  end

  def test_a_shared_string_is_not_written_through
    reader, writer = pipe_pair
    original = 'x' * 100
    copy = original.dup
    write(writer, 'y' * 50)
    read(reader, copy, 50)
    assert_equal 'y' * 50, copy
    assert_equal 'x' * 100, original
  end

  def test_a_frozen_buffer_is_refused_before_anything_is_read
    reader, writer = pipe_pair
    write(writer, 'keep')
    assert_raises(FrozenError) { read(reader, 'frozen', 4) }
    assert_equal 'keep', read(reader, +'', 4)
  end

  def test_a_negative_length_is_refused
    reader, = pipe_pair
    assert_raises(ArgumentError) { read(reader, +'', -1) }
  end

  def test_objects_that_are_no_buffers_are_refused
    reader, = pipe_pair
    [:symbol, Object.new, [], 1.5].each do |object|
      assert_raises(TypeError) { read(reader, object, 1) }
    end
    assert_raises(ArgumentError) { read(reader, 12_345, 1) }
  end

  def test_objects_that_are_no_ios_are_refused
    assert_raises(TypeError) { read(Object.new, +'', 1) }
    assert_raises(TypeError) { read(nil, +'', 1) }
    assert_raises(TypeError) { write('no io', 'x') }
    assert_raises(ArgumentError) { read(-1, +'', 1) }
  end

  def test_a_length_that_is_no_number_is_refused
    reader, = pipe_pair
    assert_raises(TypeError) { read(reader, +'', '1') }
  end

  # --- a buffer that is lent ---------------------------------------------------------------------------

  def test_a_string_that_is_being_read_into_is_locked
    reader, writer = pipe_pair
    buffer = +'abc'
    fiber = spin { read(reader, buffer, 10) }
    snooze
    assert_match(/temporarily locked/, assert_raises(RuntimeError) { buffer << 'x' }.message)
    assert_match(/temporarily locked/, assert_raises(RuntimeError) { buffer.replace('x') }.message)
    write(writer, 'done')
    fiber.await
    buffer << '!'
    assert_equal 'done!', buffer
  end

  def test_two_reads_into_the_same_string_are_refused
    reader, writer = pipe_pair
    other, = pipe_pair
    buffer = +''
    fiber = spin { read(reader, buffer, 10) }
    snooze
    assert_match(/temporarily locked/, assert_raises(RuntimeError) { read(other, buffer, 10) }.message)
    write(writer, 'fine')
    assert_equal 'fine', fiber.await
  end

  def test_a_cancelled_read_unlocks_its_string
    reader, = pipe_pair
    buffer = +'abc'
    assert_nil(move_on_after(0.001) { read(reader, buffer, 10, false, -1) })
    buffer << 'd'
    assert_equal 'abcd', buffer
  end

  def test_a_failed_read_unlocks_its_string
    buffer = +'abc'
    Dir.mktmpdir do |dir|
      File.open(dir) { |folder| assert_raises(Errno::EISDIR) { read(folder, buffer, 10, false, -1) } }
    end
    buffer << 'd'
    assert_equal 'abcd', buffer
  end

  def test_a_string_that_is_being_written_may_be_changed_and_the_old_bytes_are_written
    reader, writer = pipe_pair
    data = +('a' * 200_000)
    fiber = spin { write(writer, data) }
    snooze
    data.replace('b' * 200_000)
    assert_equal 'a' * 200_000, read(reader, +'', 200_000, true)
    assert_equal 200_000, fiber.await
  end

  # Their bytes are in the operation, and so need no copy that Ruby would have to keep: see decision 191.
  def test_a_few_bytes_that_are_being_written_may_be_changed_and_the_old_ones_are_written
    [1, 23, 24, 167, 168, 169].each do |length|
      reader, writer = pipe_pair
      filled = fill(writer)
      data = +('a' * length)
      fiber = spin { write(writer, data) }
      snooze
      data.replace('b' * length)
      GC.start
      assert_bytes 'x' * filled + 'a' * length, read(reader, +'', filled + length, true), length
      assert_equal length, fiber.await
    end
  end

  # @return [Integer] how many bytes it took until there was no room
  def fill(writer)
    filled = 0
    while (count = writer.write_nonblock('x' * 65_536, exception: false)) != :wait_writable do filled += count end
    filled += 1 while writer.write_nonblock('x', exception: false) != :wait_writable
    filled
  end

  # --- IO::Buffer and raw buffers -------------------------------------------------------------------------

  def with_io_buffer(size)
    without_announcement { yield IO::Buffer.new(size) }
  end

  def io_buffer_bytes(buffer, length)
    buffer.respond_to?(:get_string) ? buffer.get_string(0, length) : buffer.to_str[0, length]
  end

  def test_reading_into_an_io_buffer_gives_the_number_of_bytes
    each_stream do |kind, reader, writer|
      with_io_buffer(16) do |buffer|
        write(writer, 'hello')
        assert_equal 5, read(reader, buffer, 16), kind
        assert_equal 'hello', io_buffer_bytes(buffer, 5)
        write(writer, 'HE')
        assert_equal 2, read(reader, buffer, 2, false, 3)
        assert_equal 'helHE', io_buffer_bytes(buffer, 5)
        writer.close
        assert_nil read(reader, buffer, 16)
      end
    end
  end

  def test_an_io_buffer_takes_no_more_than_it_has_room_for
    reader, writer = pipe_pair
    with_io_buffer(4) do |buffer|
      write(writer, 'abcdefgh')
      assert_equal 4, read(reader, buffer, 100)
      assert_equal 'abcd', io_buffer_bytes(buffer, 4)
      assert_equal 2, read(reader, buffer, nil, false, 2)
      assert_equal 'abef', io_buffer_bytes(buffer, 4)
      assert_raises(IndexError) { read(reader, buffer, 1, false, 5) }
    end
  end

  def test_an_io_buffer_is_locked_while_it_is_lent_and_free_afterwards
    reader, writer = pipe_pair
    with_io_buffer(16) do |buffer|
      fiber = spin { read(reader, buffer, 16) }
      snooze
      assert buffer.locked?
      assert_raises(IO::Buffer::LockedError) { buffer.free }
      write(writer, 'x')
      fiber.await
      refute buffer.locked?
      move_on_after(0.001) { read(reader, buffer, 16) }
      refute buffer.locked?
    end
  end

  def test_writing_an_io_buffer
    reader, writer = pipe_pair
    with_io_buffer(5) do |buffer|
      source, sink = pipe_pair
      write(sink, 'bytes')
      read(source, buffer, 5)
      assert_equal 5, write(writer, buffer)
      assert_equal 'bytes', read(reader, +'', 10)
      assert_equal 11, write(writer, 'a', buffer, buffer)
      assert_equal 'abytesbytes', read(reader, +'', 20)
    end
  end

  def test_raw_buffers_are_read_into_and_written
    each_stream do |kind, reader, writer|
      Polyphony.__with_raw_buffer__(16) do |raw|
        assert_equal 16, Polyphony.__raw_buffer_size__(raw)
        Polyphony.__raw_buffer_set__(raw, 'hello')
        assert_equal 5, write(writer, raw), kind
        Polyphony.__raw_buffer_set__(raw, '')
        assert_equal 5, read(reader, raw, 16)
        assert_equal 'hello', Polyphony.__raw_buffer_get__(raw)
        assert_equal 'he', Polyphony.__raw_buffer_get__(raw, 2)
        write(writer, '!!')
        assert_equal 2, read(reader, raw, 16, false, -1)
        assert_equal 'hello!!', Polyphony.__raw_buffer_get__(raw)
      end
    end
  end

  def test_a_raw_buffer_is_valid_within_its_block_only
    reader, = pipe_pair
    raw = Polyphony.__with_raw_buffer__(16) { |buffer| buffer }
    assert_raises(ArgumentError) { read(reader, raw, 1) }
    assert_raises(ArgumentError) { Polyphony.__raw_buffer_get__(raw) }
    assert_raises(ArgumentError) { Polyphony.__raw_buffer_size__(0) }
  end

  def test_raw_buffers_have_limits
    assert_raises(ArgumentError) { Polyphony.__with_raw_buffer__(-1) { nil } }
    Polyphony.__with_raw_buffer__(4) do |raw|
      assert_raises(ArgumentError) { Polyphony.__raw_buffer_set__(raw, '12345') }
      assert_equal '', Polyphony.__raw_buffer_get__(raw)
      reader, writer = pipe_pair
      write(writer, 'abcdefgh')
      assert_equal 4, read(reader, raw, 100)
    end
  end

  def test_what_with_raw_buffer_s_block_returns_is_returned
    assert_equal(:x, Polyphony.__with_raw_buffer__(1) { :x })
  end

  # A handle that leaves its block while the kernel still has the bytes must not be freed under it.
  def test_a_raw_buffer_outlives_the_read_that_is_cancelled_with_its_block
    reader, writer = pipe_pair
    20.times do
      fiber = spin { Polyphony.__with_raw_buffer__(4096) { |raw| read(reader, raw, 4096) } }
      snooze
      fiber.stop
      fiber.await
    end
    write(writer, 'x')
    assert_equal 'x', read(reader, +'', 1)
  end

  # --- loops -----------------------------------------------------------------------------------------------

  def test_read_loop_yields_each_chunk_until_eof_and_returns_the_io
    each_stream do |kind, reader, writer|
      chunks = []
      spin { 3.times { |i| write(writer, "chunk#{i}"); 3.times { snooze } }; writer.close }
      assert_same reader, (Polyphony.backend_read_loop(reader, 100) { |chunk| chunks << chunk }), kind
      assert_equal 'chunk0chunk1chunk2', chunks.join
      assert_equal chunks.size, chunks.map(&:object_id).uniq.size
    end
  end

  def test_read_loop_never_yields_more_than_maxlen
    reader, writer = pipe_pair
    write(writer, 'abcdefgh')
    writer.close
    chunks = []
    Polyphony.backend_read_loop(reader, 3) { |chunk| chunks << chunk }
    assert_equal %w[abc def gh], chunks
  end

  def test_chunks_of_a_read_loop_are_the_takers_own_and_a_time_limit_ends_it_without_loss
    [10, 100_000].each do |maxlen| # read to memory of the loop's, or to Strings
      reader, writer = pipe_pair
      chunks = []
      spin { %w[one two].each { |text| writer.syswrite(text); snooze until chunks.include?(text) } }
      assert_equal(:over, move_on_after(0.01, with_value: :over) { Polyphony.backend_read_loop(reader, maxlen) { |chunk| chunks << chunk } })
      assert_equal %w[one two], chunks
      writer.syswrite('three')
      assert_equal 'three', reader.readpartial(10)
    end
  end

  def test_read_loop_can_be_left_with_break_and_loses_nothing
    reader, writer = pipe_pair
    write(writer, 'abcdef')
    assert_equal('abc', Polyphony.backend_read_loop(reader, 3) { |chunk| break chunk })
    assert_equal 'def', read(reader, +'', 10)
  end

  def test_read_loop_needs_a_block_and_a_positive_length
    reader, = pipe_pair
    assert_raises(ArgumentError) { Polyphony.backend_read_loop(reader, 10) }
    assert_raises(ArgumentError) { Polyphony.backend_read_loop(reader, 0) { nil } }
    assert_raises(ArgumentError) { Polyphony.backend_read_loop(reader, -1) { nil } }
  end

  class Receiver
    attr_reader :got

    def initialize
      @got = +''
    end

    def call(chunk)
      @got << chunk
      yield chunk.bytesize if block_given?
    end
    alias feed call
  end

  def test_feed_loop_calls_the_receivers_method_with_each_chunk
    each_stream do |kind, reader, writer|
      receiver = Receiver.new
      sizes = []
      spin { write(writer, 'fed'); 3.times { snooze }; write(writer, 'more'); writer.close }
      result = Polyphony.backend_feed_loop(reader, receiver, :feed) { |size| sizes << size }
      assert_same reader, result, kind
      assert_equal 'fedmore', receiver.got
      assert_equal 7, sizes.sum
    end
  end

  def test_feed_loop_works_without_a_block
    reader, writer = pipe_pair
    write(writer, 'x')
    writer.close
    receiver = Receiver.new
    Polyphony.backend_feed_loop(reader, receiver, :call)
    assert_equal 'x', receiver.got
  end

  # --- writing ----------------------------------------------------------------------------------------------

  def test_write_returns_the_number_of_bytes
    each_stream do |kind, reader, writer|
      assert_equal 5, write(writer, 'hello'), kind
      assert_equal 6, write(writer, 'ab', 'cd', 'ef')
      assert_equal 0, write(writer)
      assert_equal 0, write(writer, '')
      assert_equal 0, write(writer, '', '')
      assert_equal 'helloabcdef', read(reader, +'', 11, true)
    end
  end

  def test_what_is_no_string_is_written_as_its_to_s
    reader, writer = pipe_pair
    write(writer, :symbol, nil, 1.5)
    assert_equal 'symbol1.5', read(reader, +'', 100)
  end

  def test_large_data_goes_through_a_small_pipe_in_order
    each_stream do |kind, reader, writer|
      data = Random.new(2).bytes(3_000_000)
      fiber = spin { count = write(writer, data); writer.close; count }
      assert_bytes data, read(reader), kind
      assert_equal data.bytesize, fiber.await
    end
  end

  def test_more_buffers_than_one_vector_takes_are_written_in_order
    heavy
    each_stream do |kind, reader, writer|
      buffers = Array.new(5_000) { |i| "#{i}," }
      fiber = spin { count = write(writer, *buffers); writer.close; count }
      assert_bytes buffers.join, read(reader), kind
      assert_equal buffers.sum(&:bytesize), fiber.await
    end
  end

  def test_large_buffers_of_a_vector_are_continued_where_the_kernel_stopped
    each_stream do |kind, reader, writer|
      random = Random.new(3)
      buffers = Array.new(50) { random.bytes(random.rand(40_000)) }
      spin { write(writer, *buffers); writer.close }
      assert_bytes buffers.join, read(reader), kind
    end
  end

  def test_two_fibers_write_to_a_full_pipe_and_nothing_is_lost
    reader, writer = pipe_pair
    a = spin { write(writer, 'a' * 300_000) }
    b = spin { write(writer, 'b' * 300_000) }
    spin { Fiber.await(a, b); writer.close }
    bytes = read(reader)
    assert_equal [300_000, 300_000], [bytes.count('a'), bytes.count('b')]
  end

  def test_what_ruby_has_buffered_is_written_before
    reader, writer = pipe_pair
    writer.sync = false
    writer.print 'first,'
    write(writer, 'second')
    assert_equal 'first,second', read(reader, +'', 100)
  end

  def test_bytes_that_gets_has_taken_come_first
    each_stream do |kind, reader, writer|
      writer.syswrite("line\nrest of it")
      assert_equal "line\n", reader.gets, kind
      assert_equal 're', read(reader, +'', 2)
      assert_equal 'st of', read(reader, +'', 5)
      writer.syswrite('!')
      writer.close
      assert_equal ' it!', read(reader)
    end
  end

  def test_bytes_put_back_with_ungetc_come_first
    reader, writer = pipe_pair
    writer.syswrite('bc')
    reader.ungetbyte('a')
    assert_equal 'abc', read(reader, +'', 3, true)
  end

  # --- other kinds of file ------------------------------------------------------------------------------------

  def test_a_regular_file_is_read_from_its_position_on
    File.open(file('0123456789')) do |io|
      assert_equal '0123', read(io, +'', 4)
      assert_equal '456789', read(io)
      assert_nil read(io)
      io.pos = 8
      assert_equal '89', read(io, +'', 10)
    end
  end

  def test_a_large_regular_file_is_read_whole
    data = Random.new(4).bytes(5_000_000)
    File.open(file(data)) { |io| assert_bytes data, read(io) }
  end

  def test_a_regular_file_is_written_at_its_position
    path = file
    File.open(path, 'w') do |io|
      assert_equal 6, write(io, 'abc', 'def')
      assert_equal 3, write(io, 'ghi')
    end
    assert_equal 'abcdefghi', File.read(path)
    File.open(path, 'a') { |io| write(io, 'jkl') }
    assert_equal 'abcdefghijkl', File.read(path)
  end

  def test_dev_null_takes_everything_and_gives_nothing
    File.open('/dev/null', 'r+') do |io|
      assert_equal 1_000_000, write(io, 'x' * 1_000_000)
      assert_nil read(io, +'', 10)
    end
  end

  def test_dev_zero_gives_as_much_as_one_wants
    File.open('/dev/zero') do |io|
      assert_equal "\0" * 100_000, read(io, +'', 100_000, true)
    end
  end

  def test_a_terminal_is_read_and_written
    master, slave = PTY.open
    track(master, slave)
    fiber = spin { read(slave, +'', 100) }
    snooze
    assert_equal :waiting, fiber.state
    write(master, "typed\n")
    assert_equal "typed\n", fiber.await
    write(slave, 'answer')
    assert_includes read(master, +'', 100), 'typed'
  end

  def test_a_descriptor_number_will_do
    reader, writer = pipe_pair
    assert_equal 3, write(writer.fileno, 'abc')
    assert_equal 'abc', read(reader.fileno, +'', 3)
  end

  def test_an_object_with_an_io_inside_will_do
    reader, writer = pipe_pair
    wrapper = Class.new do
      def initialize(io)
        @io = io
      end
    end
    write(wrapper.new(writer), 'abc')
    assert_equal 'abc', read(wrapper.new(wrapper.new(reader)), +'', 3)
  end

  def test_an_object_with_to_io_will_do
    reader, writer = pipe_pair
    write(Struct.new(:to_io).new(writer), 'abc')
    assert_equal 'abc', read(Struct.new(:to_io).new(reader), +'', 3)
  end

  # --- open, stat, fsync, close -----------------------------------------------------------------------------

  def test_open_gives_a_descriptor_that_close_closes
    path = file('content')
    fd = Polyphony.backend_open(path)
    assert_equal 'content', read(fd)
    assert_nil Polyphony.backend_close(fd)
    assert_raises(Errno::EBADF) { read(fd, +'', 1) }
    assert_raises(Errno::EBADF) { Polyphony.backend_close(fd) }
  end

  def test_open_takes_flags_and_mode_and_closes_on_exec
    path = "#{file}.new"
    @paths << path
    fd = Polyphony.backend_open(path, File::WRONLY | File::CREAT | File::EXCL, 0o640)
    assert_equal 4, write(fd, 'made')
    io = IO.for_fd(fd)
    assert io.close_on_exec?
    io.close
    assert_equal 'made', File.read(path)
    assert_equal 0o640, File.stat(path).mode & 0o777 & ~File.umask | 0o640 & File.umask
    error = assert_raises(Errno::EEXIST) { Polyphony.backend_open(path, File::CREAT | File::EXCL) }
    assert_includes error.message, path
  end

  def test_open_of_what_is_not_there_names_it
    error = assert_raises(Errno::ENOENT) { Polyphony.backend_open('/no/such/file') }
    assert_includes error.message, '/no/such/file'
    assert_raises(ArgumentError) { Polyphony.backend_open("a\0b") }
    assert_raises(TypeError) { Polyphony.backend_open(nil) }
  end

  def test_stat_tells_what_file_stat_tells
    path = file('12345')
    stock = File.stat(path)
    ours = Polyphony.backend_stat(path)
    %i[size mode ino nlink uid gid blocks mtime].each do |name|
      assert_equal stock.public_send(name), ours[name], name
    end
    File.open(path) { |io| assert_equal 5, Polyphony.backend_stat(io)[:size] }
    reader, = pipe_pair
    assert_equal File::Stat.new("/proc/self/fd/#{reader.fileno}").ino, Polyphony.backend_stat(reader)[:ino]
    assert_includes assert_raises(Errno::ENOENT) { Polyphony.backend_stat('/no/file') }.message, '/no/file'
  end

  def test_fsync_answers_zero_and_refuses_what_cannot_be_synced
    File.open(file, 'w') do |io|
      io.write 'x'
      assert_equal 0, Polyphony.backend_fsync(io)
      assert_equal 0, Polyphony.backend_fsync(io, true)
      assert_equal 1, io.size
    end
    _reader, writer = pipe_pair
    assert_raises(Errno::EINVAL) { Polyphony.backend_fsync(writer) }
  end

  def test_close_closes_an_io_for_ruby_too
    reader, writer = pipe_pair
    assert_nil Polyphony.backend_close(writer)
    assert writer.closed?
    assert_nil read(reader, +'', 1)
    assert_nil Polyphony.backend_close(writer), 'closing twice is no error, as in Ruby'
  end

  # --- errors -------------------------------------------------------------------------------------------------

  def test_a_closed_io_is_an_io_error
    reader, writer = pipe_pair
    reader.close
    writer.close
    assert_raises(IOError) { read(reader, +'', 1) }
    assert_raises(IOError) { write(writer, 'x') }
  end

  def test_a_descriptor_that_is_not_open_is_ebadf
    reader, writer = IO.pipe
    numbers = [reader.fileno, writer.fileno]
    reader.close
    writer.close
    assert_raises(Errno::EBADF) { read(numbers[0], +'', 1) }
    assert_raises(Errno::EBADF) { write(numbers[1], 'x') }
    assert_raises(Errno::EBADF) { write(numbers[1], 'x', 'y') }
    assert_raises(Errno::EBADF) { Polyphony.backend_wait_io(numbers[0], false) }
  end

  def test_reading_what_is_open_for_writing_only_is_an_error
    _reader, writer = pipe_pair
    assert_raises(Errno::EBADF) { read(writer.fileno, +'', 1) }
    File.open(file, 'w') { |io| assert_raises(Errno::EBADF) { read(io.fileno, +'', 1) } }
    File.open(file, 'r') { |io| assert_raises(Errno::EBADF) { write(io.fileno, 'x') } }
  end

  def test_a_write_nobody_can_read_is_epipe
    each_stream do |kind, reader, writer|
      reader.close
      error = assert_raises(SystemCallError, kind) { 3.times { write(writer, 'x' * 10); snooze } }
      assert_includes [Errno::EPIPE, Errno::ECONNRESET], error.class
    end
  end

  def test_a_waiting_write_gets_epipe_when_the_reader_goes
    reader, writer = pipe_pair
    fiber = spin { write(writer, 'x' * 1_000_000) }
    snooze until fiber.state == :waiting
    reader.close
    assert_raises(Errno::EPIPE) { fiber.await }
  end

  def test_a_waiting_read_gets_eof_when_the_writer_goes
    each_stream do |kind, reader, writer|
      fiber = spin { read(reader, +'', 1) }
      snooze
      writer.close
      assert_nil fiber.await, kind
    end
  end

  def test_a_reset_connection_is_an_error
    client, server = tcp_pair
    fiber = spin { read(server, +'', 1) }
    snooze
    client.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    client.close
    assert_raises(Errno::ECONNRESET) { fiber.await }
  end

  def test_reading_a_folder_is_an_error
    File.open('/tmp') { |folder| assert_raises(Errno::EISDIR) { read(folder, +'', 1) } }
  end

  # --- closed while somebody waits ------------------------------------------------------------------------------

  def assert_closing_ends_the_read
    each_stream do |kind, reader, _writer|
      fiber = error_of { read(reader, +'', 1) }
      snooze
      yield reader
      assert_equal IOError, fiber.await, kind
      assert reader.closed?
    end
  end

  def test_closing_with_the_backend_ends_a_waiting_read_with_io_error
    assert_closing_ends_the_read { |io| Polyphony.backend_close(io) }
  end

  def test_closing_with_rubys_close_ends_a_waiting_read_with_io_error
    assert_closing_ends_the_read(&:close)
  end

  def test_closing_from_another_fiber_ends_a_waiting_read_with_io_error
    assert_closing_ends_the_read { |io| spin { io.close }.await }
  end

  def test_closing_from_another_thread_ends_a_waiting_read_with_io_error
    assert_closing_ends_the_read { |io| Thread.new { io.close }.join }
  end

  def test_closing_ends_a_waiting_write_with_io_error
    _reader, writer = pipe_pair
    fiber = error_of { write(writer, 'x' * 1_000_000) }
    snooze until fiber.state == :waiting
    writer.close
    assert_equal IOError, fiber.await
  end

  # The number may be another file's by then, which must not get the rest.
  def test_closing_between_two_parts_of_a_write_ends_it_with_io_error
    [['x' * 1_000_000], ['x' * 500_000, 'y' * 500_000]].each do |buffers|
      reader, writer = pipe_pair
      fiber = error_of { write(writer, *buffers) }
      read(reader, +'', 1_000) until fiber.state == :runnable
      writer.close
      assert_equal IOError, fiber.await
    end
  end

  def test_closing_ends_waiting_for_readiness_with_io_error
    reader, = pipe_pair
    fiber = error_of { Polyphony.backend_wait_io(reader, false) }
    snooze
    Polyphony.backend_close(reader)
    assert_equal IOError, fiber.await
  end

  def test_closing_ends_all_who_wait_on_it
    reader, = pipe_pair
    fibers = Array.new(3) { error_of { read(reader, +'', 1) } }
    snooze
    reader.close
    assert_equal [IOError] * 3, Fiber.await(fibers)
  end

  def test_a_number_that_is_reused_after_closing_gets_no_old_bytes
    reader, writer = IO.pipe
    number = reader.fileno
    writer.syswrite('old bytes')
    fiber = spin { read(reader, +'', 100) }
    move_on_after(0) { fiber.await }
    fiber.stop
    fiber.await
    reader.close
    writer.close
    again, pen = pipe_pair
    skip 'the number was not reused' unless again.fileno == number
    pen.syswrite('new')
    assert_equal 'new', read(again, +'', 100)
  end

  # --- switchpoints, readiness ------------------------------------------------------------------------------------

  def test_every_operation_is_a_switchpoint_even_when_it_need_not_wait
    reader, writer = pipe_pair
    operations = {
      write: -> { write(writer, 'x') }, read: -> { read(reader, +'', 1) },
      empty_write: -> { write(writer, '') }, wait_io: -> { Polyphony.backend_wait_io(writer, true) },
      stat: -> { Polyphony.backend_stat(reader) }
    }
    operations.each do |name, operation|
      ran = false
      spin { ran = true }
      operation.call
      assert ran, "#{name} let no other fiber run"
    end
  end

  def test_wait_io_returns_the_io_when_it_is_ready
    reader, writer = pipe_pair
    fiber = spin { Polyphony.backend_wait_io(reader, false) }
    snooze
    assert_equal :waiting, fiber.state
    writer.syswrite('x')
    assert_same reader, fiber.await
    assert_same writer, Polyphony.backend_wait_io(writer, true)
    assert_equal 'x', read(reader, +'', 10)
  end

  def test_a_plain_wake_does_not_end_a_read
    reader, writer = pipe_pair
    fiber = spin { read(reader, +'', 5) }
    snooze
    fiber.schedule(:nonsense)
    2.times { snooze }
    assert_equal :waiting, fiber.state
    write(writer, 'bytes')
    assert_equal 'bytes', fiber.await
  end

  def test_verify_blocking_mode_sets_the_flag
    reader, = pipe_pair
    nonblock = -> { File.read("/proc/self/fdinfo/#{reader.fileno}")[/flags:\s+(\d+)/, 1].to_i(8) & File::NONBLOCK != 0 }
    skip 'no /proc/self/fdinfo' unless File.exist?("/proc/self/fdinfo/#{reader.fileno}")
    Polyphony.backend_verify_blocking_mode(reader, true)
    refute nonblock.call
    Polyphony.backend_verify_blocking_mode(reader, false)
    assert nonblock.call
  end

  def test_the_backend_object_has_the_same_methods
    reader, writer = pipe_pair
    backend = Thread.current.backend
    assert_equal 2, backend.write(writer, 'hi')
    assert_equal 'hi', backend.read(reader, +'', 2, false, 0)
    assert_same Polyphony.backend_kind, backend.kind
  end

  def test_three_hundred_reads_wait_at_the_same_time
    heavy
    pairs = Array.new(300) { pipe_pair }
    fibers = pairs.map { |reader, _| spin { read(reader, +'', 10) } }
    snooze
    pairs.each_with_index { |(_, writer), i| write(writer, i.to_s) }
    assert_equal Array.new(300, &:to_s), Fiber.await(fibers)
  end
end
