# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require 'fcntl'
require 'pty'

# What the tests of splicing share.
module SpliceHelpers
  STREAMS = %i[pipe unix tcp].freeze
  DATA = Random.new(3).bytes(700_000).freeze

  def setup
    skip 'splice(2) exists on Linux only' unless RUBY_PLATFORM.include?('linux')
  end

  # @return [Array(IO, IO)] reader and writer
  def stream(kind)
    case kind
    when :pipe then pipe_pair
    when :unix then socket_pair
    when :tcp  then tcp_pair
    end
  end

  # Under GC.stress not all of them: a pair of pipes, none, and one.
  def each_pair_of_streams(targets = STREAMS)
    pairs = STREAMS.product(targets)
    pairs &= [%i[pipe pipe], %i[unix unix], %i[unix pipe]] if Polyphony::GCPressure::MODE == 'stress'
    pairs.each do |from, to|
      source, feed = stream(from)
      sink, target = stream(to)
      yield source, feed, sink, target, "#{from} to #{to}"
      [source, feed, sink, target].each { |io| io.close unless io.closed? }
    end
  end

  def feed(io, data)
    spin do
      Polyphony.backend_write(io, data)
      io.close
    end
  end

  def drain(io)
    spin do
      got = String.new
      while (chunk = Polyphony.backend_read(io, String.new, 1 << 16, false, 0))
        got << chunk
      end
      got
    end
  end

  def read(io, length)
    Polyphony.backend_read(io, String.new, length, false, 0)
  end

  def read_exactly(io, length)
    Polyphony.backend_read(io, String.new, length, true, 0)
  end

  # Not for TCP, which passes on what it has after it has refused to take more.
  def fill(writer)
    [1 << 16, 1].each { |size| nil while write_now(writer, 'x' * size) }
    writer
  end

  def write_now(writer, text)
    writer.write_nonblock(text, exception: false) != :wait_writable
  end

  def file_with(data)
    file = Tempfile.new('splice')
    file.binmode
    file.write(data)
    file.flush
    file.rewind
    (@files ||= []) << file
    file
  end

  def after_teardown
    @files&.each(&:close!)
    super
  end

  def blocking(io)
    io.fcntl(Fcntl::F_SETFL, io.fcntl(Fcntl::F_GETFL) & ~Fcntl::O_NONBLOCK)
    io
  end

  def nothing_pending
    assert_equal 0, Thread.current.backend.stats[:pending_ops]
  end
end

class TestSplice < Polyphony::TestCase
  include SpliceHelpers
  include Polyphony::Testing::CancelEverywhere
  on_every_driver
  time_limit 180

  def splice(source, target, maxlen)
    Polyphony.backend_splice(source, target, maxlen)
  end

  def test_one_splice_moves_what_is_there_and_no_more_than_asked
    each_pair_of_streams do |source, feed, sink, target, name|
      Polyphony.backend_write(feed, 'abcdef')
      assert_equal 4, splice(source, target, 4), name
      assert_equal 2, splice(source, target, 4), name
      assert_equal 'abcdef', read_exactly(sink, 6), name
    end
  end

  def test_the_end_of_the_source_is_zero
    each_pair_of_streams do |source, feed, _sink, target, name|
      feed.close
      assert_equal 0, splice(source, target, 4), name
    end
  end

  def test_a_splice_of_nothing_is_a_switchpoint
    reader, = pipe_pair
    _, writer = pipe_pair
    turns = 0
    spin { turns += 1 }
    assert_equal [0, 1], [splice(reader, writer, 0), turns]
  end

  def test_a_negative_length_goes_on_until_the_end
    heavy
    each_pair_of_streams do |source, feed, sink, target, name|
      feeder = feed(feed, DATA)
      got = drain(sink)
      assert_equal DATA.size, splice(source, target, -50_000), name
      target.close
      assert_equal DATA, got.await, name
      feeder.await
    end
  end

  # SPLICE_F_NONBLOCK is about pipes only: a socket in blocking mode would hold up everybody.
  def test_descriptors_in_blocking_mode_do_not_block_the_thread
    heavy
    each_pair_of_streams do |source, feed, sink, target, name|
      blocking(source)
      blocking(target)
      flags = [source, target].map { |io| io.fcntl(Fcntl::F_GETFL) }
      spliced = spin { splice(source, target, -50_000) }
      3.times { snooze }
      feed(feed, DATA)
      got = drain(sink)
      assert_equal DATA.size, spliced.await, name
      assert_equal flags, [source, target].map { |io| io.fcntl(Fcntl::F_GETFL) }
      target.close
      assert_equal DATA, got.await, name
    end
  end

  def test_files_are_sources_and_targets
    STREAMS.each do |kind|
      sink, target = stream(kind)
      got = drain(sink)
      assert_equal DATA.size, splice(file_with(DATA), target, -100_000), kind
      target.close
      assert_equal DATA, got.await, kind

      source, feed = stream(kind)
      feed(feed, DATA)
      file = file_with('')
      assert_equal DATA.size, splice(source, file, -100_000), kind
      assert_equal DATA, File.binread(file.path), kind
    end
    copy = file_with('')
    assert_equal DATA.size, splice(file_with(DATA), copy, -100_000)
    assert_equal DATA, File.binread(copy.path)
  end

  def test_a_file_that_is_not_in_the_page_cache
    file = file_with(DATA)
    file.fsync
    file.advise(:dontneed)
    sink, target = socket_pair
    got = drain(sink)
    assert_equal DATA.size, splice(file, target, -100_000)
    target.close
    assert_equal DATA, got.await
  end

  def test_what_does_not_know_splice_is_copied
    path = file_with('before ').path
    reader, writer = pipe_pair
    Polyphony.backend_write(writer, 'behind')
    File.open(path, 'a') { |file| assert_equal 6, splice(reader, file, 100) }
    assert_equal 'before behind', File.read(path)

    File.open('/proc/self/status') do |status|
      sink, target = pipe_pair
      splice(status, target, -4096)
      target.close
      assert_match(/\AName:.*^Threads:/m, drain(sink).await)
    end
  end

  def test_a_terminal_is_spliced_from_and_to
    controller, terminal = track(*PTY.open)
    reader, writer = pipe_pair
    Polyphony.backend_write(writer, 'out')
    splice(reader, terminal, 10)
    assert_equal 'out', read(controller, 10)
    spliced = spin { splice(terminal, writer, 10) }
    2.times { snooze }
    Polyphony.backend_write(controller, "in\n")
    assert_equal 3, spliced.await
    assert_equal "in\n", read(reader, 10)
  end

  PIPE = Polyphony.pipe # for ever: only the GC closes both of its ends

  def test_pipes_numbers_and_objects_with_an_io_will_do
    reader, writer = pipe_pair
    wrapped = Struct.new(:to_io).new(writer)
    Polyphony.backend_write(writer, 'text')
    assert_equal 4, splice(reader.fileno, PIPE, 10)
    assert_equal 4, splice(PIPE, wrapped, 10)
    assert_equal 'text', read(reader, 10)
  end

  def test_what_a_cancelled_read_had_taken_comes_first
    each_pair_of_streams do |source, feed, sink, target, name|
      cancel_everywhere do |run|
        got = nil
        run.scenario { got = read(source, 4) }
        run.beside { Polyphony.backend_write(feed, 'abcd') }
        run.check do
          if got
            Polyphony.backend_write(target, got)
          else
            assert_equal 3, splice(source, target, 3), name
            assert_equal 1, splice(source, target, 3), name
          end
          assert_equal 'abcd', read_exactly(sink, 4), name
        end
      end
    end
  end

  def test_what_ruby_has_buffered_comes_first
    reader, writer = pipe_pair
    writer << "line\nrest"
    writer.flush
    assert_equal "line\n", reader.gets
    sink, target = pipe_pair
    assert_equal 2, splice(reader, target, 2)
    assert_equal 2, splice(reader, target, 10)
    assert_equal 'rest', read(sink, 10)
  end

  def test_a_cancelled_splice_leaves_what_ruby_had_buffered_in_order
    reader, writer = pipe_pair
    writer << "line\nrest"
    writer.flush
    reader.gets
    _, target = pipe_pair
    spliced = waiting { splice(reader, fill(target), 2) }
    spliced.stop
    spliced.await
    assert_equal 'rest', reader.readpartial(10)
  end

  def test_what_ruby_has_buffered_for_the_target_is_written_before
    reader, writer = pipe_pair
    sink, target = pipe_pair
    target.sync = false
    target.write('first ')
    Polyphony.backend_write(writer, 'second')
    splice(reader, target, 10)
    assert_equal 'first second', read(sink, 20)
  end

  # Each byte is in the target or still in the source, whatever is cancelled when.
  def test_a_cancelled_splice_loses_no_byte
    each_pair_of_streams do |source, feed, sink, target, name|
      cancel_everywhere do |run|
        run.scenario { 3.times { splice(source, target, 2) } }
        run.beside { %w[abcd efgh].each { |text| Polyphony.backend_write(feed, text); snooze } }
        run.check do
          nothing_pending
          rest = spin { splice(source, target, -100) }
          assert_equal 'abcdefgh', read_exactly(sink, 8), name
          rest.stop
          rest.await
        end
      end
    end
  end

  def test_a_splice_cancelled_at_a_full_target_loses_no_byte
    each_pair_of_streams(%i[pipe unix]) do |source, feed, _sink, target, name|
      fill(target)
      Polyphony.backend_write(feed, 'abcd')
      spliced = waiting { splice(source, target, 4) }
      spliced.stop
      spliced.await
      assert_equal 'abcd', read_exactly(source, 4), name
    end
  end

  def test_a_splice_of_a_file_that_is_cancelled_at_a_full_target_winds_back
    file = file_with('abcdefgh')
    _, target = socket_pair
    spliced = waiting { splice(file, fill(target), 4) }
    spliced.stop
    spliced.await
    assert_equal 'abcdefgh', file.read
  end

  def test_a_target_nobody_reads_is_epipe_and_the_bytes_stay
    STREAMS.product(%i[pipe unix]) do |from, to|
      source, feed = stream(from)
      sink, target = stream(to)
      sink.close
      Polyphony.backend_write(feed, 'abcd')
      assert_raises(Errno::EPIPE, "#{from} to #{to}") { splice(source, target, 4) }
      assert_equal 'abcd', read_exactly(source, 4)
    end
  end

  def test_a_source_that_was_reset_is_an_error
    client, server = tcp_pair
    _, target = pipe_pair
    server.setsockopt(Socket::Option.linger(true, 0))
    server.close
    assert_raises(Errno::ECONNRESET) { splice(client, target, 4) }
  end

  def test_nonsense_is_refused
    reader, writer = pipe_pair
    assert_raises(Errno::EINVAL) { splice(reader, writer, 4) } # the same pipe
    assert_raises(Errno::EBADF, IOError) { splice(writer, reader, 4) }
    assert_raises(Errno::EBADF) { splice(1_000_000, writer, 4) }
    assert_raises(TypeError) { splice('source', writer, 4) }
    reader.close
    assert_raises(IOError) { splice(reader, writer, 4) }
  end

  def test_closing_the_source_ends_a_waiting_splice_with_io_error
    each_pair_of_streams do |source, _feed, _sink, target, name|
      spliced = waiting { splice(source, target, 4) }
      Polyphony.backend_close(source)
      assert_kind_of IOError, spliced.await, name
    end
  end

  def test_closing_the_target_ends_a_waiting_splice_with_io_error
    each_pair_of_streams(%i[pipe unix]) do |source, feed, _sink, target, name|
      fill(target)
      Polyphony.backend_write(feed, 'abcd')
      spliced = waiting { splice(source, target, 4) }
      Polyphony.backend_close(target)
      assert_kind_of IOError, spliced.await, name
      assert_equal 'abcd', read_exactly(source, 4), name
    end
  end
end

class TestDoubleSplice < Polyphony::TestCase
  include SpliceHelpers
  on_every_driver

  def test_everything_is_moved_until_the_end
    heavy
    each_pair_of_streams do |source, feed, sink, target, name|
      feed(feed, DATA)
      got = drain(sink)
      assert_equal DATA.size, Polyphony.backend_double_splice(source, target), name
      target.close
      assert_equal DATA, got.await, name
    end
  end

  def test_others_run_meanwhile
    heavy
    reader, writer = pipe_pair
    sink, target = pipe_pair
    feed(writer, DATA)
    got = drain(sink)
    turns = 0
    other = spin { loop { turns += 1; snooze } }
    Polyphony.backend_double_splice(reader, target)
    other.stop
    assert_operator turns, :>, 3
    target.close
    assert_equal DATA, got.await
  end

  def test_closing_ends_it_with_io_error
    source, = socket_pair
    _, target = socket_pair
    spliced = waiting { Polyphony.backend_double_splice(source, target) }
    Polyphony.backend_close(source)
    assert_kind_of IOError, spliced.await
  end
end

class TestTee < Polyphony::TestCase
  include SpliceHelpers
  on_every_driver

  def test_bytes_are_copied_and_stay_in_the_source
    reader, writer = pipe_pair
    sink, target = pipe_pair
    Polyphony.backend_write(writer, 'abcdef')
    assert_equal 4, Polyphony.backend_tee(reader, target, 4)
    assert_equal %w[abcd abcdef], [read(sink, 10), read(reader, 10)]
  end

  def test_it_waits_for_bytes_and_for_room
    reader, writer = pipe_pair
    sink, target = pipe_pair
    teed = waiting { Polyphony.backend_tee(reader, target, 4) }
    Polyphony.backend_write(writer, 'a')
    assert_equal 1, teed.await
    fill(target)
    teed = waiting { Polyphony.backend_tee(reader, target, 4) }
    read(sink, 1 << 20)
    assert_equal 1, teed.await
  end

  def test_what_a_cancelled_read_had_taken_is_copied_and_stays
    reader, writer = pipe_pair
    sink, target = pipe_pair
    reading = waiting { read(reader, 10) }
    writer.write_nonblock('abcd')
    reading.stop # on io_uring the kernel may have read by now
    reading.await
    assert_equal 4, Polyphony.backend_tee(reader, target, 10)
    assert_equal %w[abcd abcd], [read(sink, 10), read(reader, 10)]
  end

  def test_the_end_of_the_source_is_zero
    reader, writer = pipe_pair
    _, target = pipe_pair
    writer.close
    assert_equal 0, Polyphony.backend_tee(reader, target, 4)
  end

  def test_only_pipes_can_be_copied
    left, = socket_pair
    reader, target = pipe_pair
    assert_raises(Errno::EINVAL) { Polyphony.backend_tee(left, target, 4) }
    assert_raises(ArgumentError) { Polyphony.backend_tee(reader, target, -1) }
  end

  def test_closing_ends_a_waiting_tee_with_io_error
    reader, = pipe_pair
    _, target = pipe_pair
    teed = waiting { Polyphony.backend_tee(reader, target, 4) }
    Polyphony.backend_close(reader)
    assert_kind_of IOError, teed.await
  end
end

class TestSpliceChunks < Polyphony::TestCase
  include SpliceHelpers
  on_every_driver

  def splice_chunks(source, target, *affixes, size)
    Thread.current.backend.splice_chunks(source, target, *affixes, size)
  end

  def test_chunks_are_framed
    each_pair_of_streams do |source, feed, sink, target, name|
      feed(feed, 'abcdefghij').await
      got = drain(sink)
      framed = 'P<4:abcd><4:efgh><2:ij>S'
      total = splice_chunks(source, target, 'P', 'S', ->(length) { "<#{length}:" }, '>', 4)
      target.close
      assert_equal [framed.size, framed], [total, got.await], name
    end
  end

  def test_affixes_may_be_left_out
    reader, writer = pipe_pair
    sink, target = pipe_pair
    feed(writer, 'abcd').await
    assert_equal 4, splice_chunks(reader, target, nil, nil, nil, nil, 3)
    assert_equal 'abcd', read(sink, 10)
  end

  def test_a_long_source
    heavy
    source, feed = socket_pair
    sink, target = socket_pair
    feed(feed, DATA)
    got = drain(sink)
    lengths = []
    splice_chunks(source, target, nil, nil, ->(length) { lengths << length; nil }, nil, 10_000)
    target.close
    assert_equal DATA, got.await
    assert_equal DATA.size, lengths.sum
    assert_operator lengths.max, :<=, 10_000
  end

  def test_a_chunk_whose_prefix_raises_stays_in_the_source
    each_pair_of_streams do |source, feed, _sink, target, name|
      Polyphony.backend_write(feed, 'abcdef')
      assert_raises(ZeroDivisionError) { splice_chunks(source, target, nil, nil, ->(_) { 1 / 0 }, nil, 4) }
      assert_equal 'abcdef', read_exactly(source, 6), name
    end
  end

  def test_a_chunk_has_a_size
    reader, = pipe_pair
    _, target = pipe_pair
    [0, -1].each do |size|
      assert_raises(ArgumentError) { splice_chunks(reader, target, nil, nil, nil, nil, size) }
    end
  end

  def test_closing_ends_it_with_io_error
    source, = socket_pair
    _, target = socket_pair
    spliced = waiting { splice_chunks(source, target, nil, nil, nil, nil, 10) }
    Polyphony.backend_close(source)
    assert_kind_of IOError, spliced.await
  end
end

class TestChain < Polyphony::TestCase
  include SpliceHelpers
  on_every_driver

  def chain(*operations)
    Thread.current.backend.chain(*operations)
  end

  def test_operations_are_done_in_order_and_the_last_result_is_returned
    reader, writer = pipe_pair
    left, right = socket_pair
    assert_equal 5, chain([:write, writer, 'one '], [:send, left, 'two', 0], [:write, writer, 'three'])
    assert_equal ['one three', 'two'], [read(reader, 20), read(right, 20)]
  end

  def test_no_operation_at_all_is_nil
    assert_nil chain
  end

  def test_a_splice_stands_between_writes
    reader, writer = pipe_pair
    left, right = socket_pair
    Polyphony.backend_write(writer, 'body')
    assert_equal 1, chain([:send, left, '<', 0], [:splice, reader, left, 10], [:send, left, '>', 0])
    assert_equal '<body>', read_exactly(right, 6)
    Polyphony.backend_write(writer, 'body')
    assert_equal 4, chain([:write, left, '<'], [:splice, reader, left, 10])
  end

  # A write that takes a part breaks the kernel's chain; we go on from the right byte.
  def test_what_does_not_fit_at_once_is_written_in_order
    reader, writer = pipe_pair
    left, right = socket_pair
    got = [drain(reader), drain(right)]
    texts = %w[a b c].map { |char| char * 150_000 }
    operations = texts.map { |text| [:write, writer, text] } + texts.map { |text| [:send, left, text, 0] }
    assert_equal 150_000, chain(*operations)
    [writer, left].each(&:close)
    assert_equal [texts.join] * 2, got.map(&:await)
  end

  def test_more_operations_than_are_linked_at_once
    reader, writer = pipe_pair
    chain(*Array.new(100) { |i| [:write, writer, (97 + i % 26).chr] })
    assert_equal Array.new(100) { |i| (97 + i % 26).chr }.join, read(reader, 200)
  end

  def test_buffers_of_other_kinds_will_do
    reader, writer = pipe_pair
    Polyphony.__with_raw_buffer__(4) do |raw|
      Polyphony.__raw_buffer_set__(raw, 'raw!')
      chain([:write, writer, :symbol], [:write, writer, raw])
    end
    assert_equal 'symbolraw!', read(reader, 20)
  end

  def test_a_failure_ends_the_chain
    reader, writer = pipe_pair
    gone, broken = pipe_pair
    gone.close
    assert_raises(Errno::EPIPE) do
      chain([:write, writer, 'one'], [:write, broken, 'two'], [:write, writer, 'three'])
    end
    assert_equal 'one', read(reader, 20)
    assert_nil reader.wait_readable(0)
  end

  def test_a_bad_operation_is_refused_before_anything_is_done
    reader, writer = pipe_pair
    bad = [[:read, reader, 1], [:write, writer], [:send, writer, 'x'], [:send, writer, 'x', nil],
           [:splice, reader, writer, nil], 1, nil, [], 'write']
    bad.each do |operation|
      error = assert_raises(RuntimeError) { chain([:write, writer, 'x'], operation) }
      assert_includes error.message, operation.inspect
    end
    assert_raises(TypeError) { chain([:write, writer, 'x'], [:write, nil, 'x']) }
    assert_nil reader.wait_readable(0)
  end

  def test_a_cancelled_chain_has_done_a_part_from_the_start
    heavy
    5.times do |turns|
      reader, writer = IO.pipe
      fiber = spin { chain([:write, writer, 'a' * 70_000], [:write, writer, 'b'], [:write, writer, 'c']) }
      turns.times { snooze }
      fiber.stop
      fiber.await
      nothing_pending
      writer.close
      got = reader.read
      assert_equal ('a' * 70_000 + 'bc')[0, got.size], got
      reader.close
    end
  end

  def test_an_interjection_does_not_end_the_chain
    heavy
    reader, writer = pipe_pair
    fiber = spin { chain([:write, writer, 'a' * 100_000], [:write, writer, 'b'], [:write, writer, 'c']) }
    snooze until fiber.state == :waiting
    ran = []
    fiber.interject { ran << :interjection }
    snooze until ran.any?
    assert_equal 'a' * 100_000 + 'bc', read_exactly(reader, 100_002)
    assert_equal 1, fiber.await
  end

  def test_closing_ends_a_waiting_chain_with_io_error
    _, writer = pipe_pair
    chained = waiting { chain([:write, writer, 'a' * 100_000], [:write, writer, 'b']) }
    Polyphony.backend_close(writer)
    assert_kind_of IOError, chained.await
  end
end
