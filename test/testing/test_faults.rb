# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# Operations that go wrong on purpose: Polyphony::Testing.faults and POLYPHONY_FAULTS.
class TestFaults < Polyphony::TestCase
  on_every_driver

  HARMLESS = { short_read: 0.3, short_write: 0.3, eintr: 0.2, eagain: 0.2, ecanceled: 0.2 }.freeze
  BYTES = Random.new(1).bytes(300_000).freeze

  def faults(**chances, &block)
    Polyphony::Testing.faults(seed: 7, **chances, &block)
  end

  def test_harmless_ones_lose_no_byte
    each_stream do |name, reader, writer|
      faults(**HARMLESS) do |all|
        spin { BYTES.bytes.each_slice(7000) { |slice| writer.write(slice.pack('C*')) }; writer.close }
        assert reader.read.b == BYTES, "#{name}: other bytes arrived"
        assert all.counts.values.all?(&:positive?), "#{name}: #{all.counts}"
      end
    end
  end

  def test_lines_files_and_many_buffers_arrive_whole
    lines = Array.new(2000) { |i| "line #{i}\n" }
    faults(**HARMLESS) do
      Tempfile.create('faults') do |file|
        file.sync = true
        lines.each_slice(3) { |some| file.write(*some) }
        file.rewind
        assert_equal lines, file.each_line.to_a
      end
      left, right = socket_pair
      spin { left.write(*lines); left.close }
      assert_equal lines, right.readlines
    end
  end

  def test_connections_are_made
    faults(eintr: 0.3, eagain: 0.3, ecanceled: 0.3) do
      server = track(TCPServer.new('127.0.0.1', 0))
      spin { 20.times { |i| socket = server.accept; socket << i.to_s; socket.close } }
      texts = Array.new(20) { socket = TCPSocket.new('127.0.0.1', server.local_address.ip_port); socket.read.tap { socket.close } }
      assert_equal Array.new(20, &:to_s), texts
    end
  end

  def test_datagrams_are_not_cut
    left, right = track(*UNIXSocket.pair(:DGRAM))
    faults(short_read: 1, short_write: 1) do |all|
      left.send('datagram', 0)
      assert_equal 'datagram', right.recv(100)
      assert_equal [0, 0], all.counts.values
    end
  end

  def test_an_operation_that_is_put_off_can_be_cancelled_and_loses_nothing
    reader, writer = pipe_pair
    faults(eagain: 1) do
      20.times do |i|
        fiber = spin { reader.readpartial(10) }
        snooze
        fiber.stop
        fiber.await
        writer << "text #{i}"
        assert_equal "text #{i}", reader.readpartial(10)
      end
    end
  end

  def test_the_others_are_raised
    reader, writer = pipe_pair
    left, = socket_pair
    writer << 'x'
    faults(enomem: 1) { assert_raises(Errno::ENOMEM, NoMemoryError) { Polyphony.backend_read(reader, +'', 1, false, 0) } }
    faults(eio: 1) { assert_raises(Errno::EIO) { Polyphony.backend_read(reader, +'', 1, false, 0) } }
    faults(econnreset: 1) do |all|
      assert_raises(Errno::ECONNRESET) { Polyphony.backend_send(left, 'x', 0) }
      assert_equal({ econnreset: 1 }, all.counts)
    end
    assert_equal 'x', reader.readpartial(1)
  end

  def test_the_same_seed_has_the_same_faults
    run = lambda do |seed|
      reader, writer = pipe_pair
      Polyphony::Testing.faults(seed: seed, short_read: 0.5, eintr: 0.5) do |all|
        sizes = Array.new(50) { writer << 'abcdefgh'; Polyphony.backend_read(reader, +'', 8, false, 0).bytesize }
        [sizes, all.counts]
      end
    end
    assert_equal run.call(3), run.call(3)
    refute_equal run.call(3), run.call(4)
  end

  def test_after_the_block_all_is_well_and_blocks_nest
    faults(eintr: 0.5) do
      faults(eagain: 0.5) { |all| assert_equal [:eagain], all.counts.keys }
      assert_equal [:eintr], Polyphony::Faults.counts.keys
    end
    assert_empty Polyphony::Faults.counts
    assert_equal '#<Polyphony::Faults off>', Polyphony::Faults.inspect
  end

  def test_the_seed_is_told
    _, told = capture_io { assert_raises(IOError) { faults(eintr: 0.1) { raise IOError } } }
    assert_equal "polyphony: faults came from seed 7; POLYPHONY_SEED=7 repeats it\n", told
  end

  def test_unknown_words_are_refused_with_the_known_ones
    error = assert_raises(ArgumentError) { faults(typo: 1) { flunk } }
    assert_match(/no fault typo; there are short_read, .*enospc, and seed/, error.message)
    assert_match(/chance of eintr .*2/, assert_raises(ArgumentError) { faults(eintr: 2) { flunk } }.message)
    assert_raises(ArgumentError) { Polyphony::Testing.faults(eintr: 1) }
  end

  def test_the_environment_has_them_for_a_whole_program
    code = "require 'polyphony'; r, w = IO.pipe; spin { w << 'x' * 1000; w.close }; p r.read.size, Polyphony::Faults.counts"
    out, err, = run_ruby(code, env: { 'POLYPHONY_FAULTS' => 'short_read:0.9,eintr:0.5,seed:7' })
    assert_match(/\A1000\n\{(:short_read=>|short_read: )[1-9]\d*, (:eintr=>|eintr: )[1-9]\d*\}\n\z/, out, err) # Ruby 3.4 writes the latter
    { 'typo:1' => /POLYPHONY_FAULTS: there is no fault typo; there are short_read/, 'eintr' => /POLYPHONY_FAULTS: expected name:chance.*"eintr"/,
      'eintr:x' => /expected name:chance/, 'eintr:7' => /chance of eintr/ }.each do |text, message|
      assert_match(message, run_ruby(code, env: { 'POLYPHONY_FAULTS' => text })[1])
    end
  end

  def test_a_part_of_our_suite_passes_with_them
    heavy
    all = 'short_read:0.2,short_write:0.2,eintr:0.2,eagain:0.1,ecanceled:0.2,seed:7'
    out, err, status = run_ruby("load '#{POLYPHONY_ROOT}/test/core/test_no_byte_lost.rb'", gems: true, timeout: 120, options: ["-I#{$LOAD_PATH.grep(/minitest/).first}"],
                                env: { 'POLYPHONY_FAULTS' => all, 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil })
    assert_predicate status, :success?, out + err
    assert_match(/\d runs, \d+ assertions, 0 failures, 0 errors/, out)
  end
end
