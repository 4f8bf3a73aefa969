# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'

# The pieces that a Rack application meets, without a server around them.
class TestRackParts < Polyphony::TestCase
  on_every_driver

  Handler = Polyphony::HTTP::RackHandler
  BadResponse = Polyphony::HTTP::BadResponse

  # A request whose body comes in these pieces.
  class Pieces
    attr_reader :asked

    def initialize(*pieces)
      @pieces = pieces.map { |piece| String.new(piece, encoding: Encoding::BINARY) }
      @asked = 0
    end

    def __read_into(_string, _most)
      nil
    end

    def read_chunk
      @asked += 1
      @pieces.shift
    end
  end

  def input(*pieces)
    Handler::Input.new(Pieces.new(*pieces))
  end

  def rewindable(*pieces)
    Handler::RewindableInput.new(Pieces.new(*pieces))
  end

  # --- rack.input -------------------------------------------------------------------------------

  def test_read_without_a_length_is_all_of_it_and_then_empty
    body = input('one', 'two', 'three')
    assert_equal 'onetwothree', body.read
    assert_equal '', body.read
    assert_nil body.read(1)
  end

  def test_read_with_a_length_is_short_only_at_the_end
    body = input('ab', 'cd', 'efg')
    assert_equal ['abc', 'def', 'g', nil], Array.new(4) { body.read(3) }
    assert_equal '', body.read
    assert_equal '', body.read(0)
  end

  def test_read_asks_for_no_more_than_it_needs
    pieces = Pieces.new('abc', 'def')
    body = Handler::Input.new(pieces)
    assert_equal 'ab', body.read(2)
    assert_equal 1, pieces.asked
  end

  def test_read_fills_the_buffer_that_it_is_given
    body = input('hello')
    buffer = +'old'
    assert_same buffer, body.read(4, buffer)
    assert_equal 'hell', buffer
    body.read(4, buffer)
    assert_nil body.read(4, buffer)
    assert_equal '', buffer
    assert_same buffer, body.read(nil, buffer)
  end

  def test_what_is_read_is_binary
    body = input("\u00e9", 'x')
    assert_equal [Encoding::BINARY] * 3, [body.read(1), body.gets, body.read].map(&:encoding)
    assert_equal Encoding::BINARY, body.external_encoding
  end

  def test_gets_finds_lines_across_pieces
    body = input("a\nb", "c\n", "\n", 'end')
    assert_equal ["a\n", "bc\n", "\n", 'end', nil], Array.new(5) { body.gets }
  end

  def test_each_yields_all_and_begins_where_read_has_stopped
    body = input('abc', 'def', 'ghi')
    body.read(1)
    assert_equal 'bcdefghi', body.each.to_a.join
    assert_predicate body, :eof?
  end

  def test_readpartial_is_what_is_there
    body = input('abc', 'def')
    assert_equal %w[ab c def], [body.readpartial(2), body.readpartial(9), body.readpartial(9)]
    assert_raises(EOFError) { body.readpartial(1) }
  end

  def test_a_closed_input_is_closed
    body = input('abc')
    body.close
    assert_predicate body, :closed?
    assert_raises(IOError) { body.read }
  end

  def test_a_negative_length_is_refused
    assert_raises(ArgumentError) { input('x').read(-1) }
  end

  def test_the_plain_input_cannot_be_rewound
    refute_respond_to input('x'), :rewind
  end

  def test_a_rewindable_input_begins_again_wherever_it_was
    body = rewindable('abc', 'def', 'ghi')
    assert_equal 'abcd', body.read(4)
    body.rewind
    assert_equal 'abcde', body.read(5)
    body.rewind
    assert_equal 'abcdefghi', body.read
    body.rewind
    assert_equal 'abcdefghi', body.each.to_a.join
    body.__release
  end

  def test_a_long_rewindable_input_is_kept_in_a_file_that_does_not_stay
    big = 'x' * 100_000
    body = rewindable(big, 'y' * 100_000, 'z' * 10)
    first = body.read
    body.rewind
    assert_equal first, body.read
    path = body.instance_variable_get(:@tape).path
    assert_path_exists path
    body.__release
    refute_path_exists path
  end

  def test_no_body_is_an_empty_input
    body = Handler::EmptyInput.new.freeze
    assert_equal ['', nil, nil, '', 0], [body.read, body.read(3), body.gets, body.read(0), body.rewind]
    assert_empty body.each.to_a
    assert_predicate body, :eof?
    assert_equal '', body.read(nil, +'x')
    assert_raises(EOFError) { body.readpartial(1) }
  end

  # --- bodies that are chunked already ---------------------------------------------------------

  def dechunk(*pieces)
    dechunker = Handler::Dechunker.new
    out = +''
    pieces.each { |piece| dechunker.feed(piece) { |data| out << data } }
    dechunker.finish
    out
  end

  def test_chunks_are_taken_apart_however_they_are_cut
    whole = "5\r\nhello\r\n6;name=v\r\n world\r\nA\r\n0123456789\r\n0\r\nx-trailer: 1\r\n\r\n"
    (1...whole.size).each do |cut|
      assert_equal 'hello world0123456789', dechunk(whole[0, cut], whole[cut..]), "cut at #{cut}"
    end
    assert_equal 'hello world0123456789', dechunk(*whole.chars)
  end

  def test_what_is_not_chunked_is_refused
    ['hello', "5\r\nhelloXX", "\r\n", 'f' * 5000, "-1\r\n", "5 5\r\n"].each do |text|
      error = assert_raises(BadResponse, text[0, 20]) { dechunk(text) }
      assert_match(/not in chunks/, error.message)
    end
    assert_raises(BadResponse) { dechunk("5\r\nhel") }
    assert_raises(BadResponse) { dechunk("5\r\nhello\r\n") }
  end

  # --- sockets for those who take over ----------------------------------------------------------

  def pump
    client, server = tcp_pair
    limits = Polyphony::HTTP::Limits.new(write_stall: 1)
    stream = Polyphony::HTTP::Stream.new(Polyphony::HTTP::Transport.new(server, limits), String.new('early ', encoding: 'BINARY'))
    [client, Handler::Pump.new(stream).start]
  end

  def test_a_pump_carries_both_ways_and_first_what_came_before
    client, pump = pump()
    client << 'hello'
    assert_equal 'early hello', pump.socket.read(11)
    pump.socket.write('answer')
    assert_equal 'answer', client.read(6)
    pump.socket.close
    assert_nil client.read(1)
    client.close
    assert_nil pump.wait
  end

  def test_a_pump_ends_when_the_application_closes
    client, pump = pump()
    pump.socket.read(6)
    pump.socket.close
    pump.wait
    assert_nil client.read(1)
  end

  def test_each_side_of_a_pump_may_stop_talking_first
    client, pump = pump()
    client << 'question'
    client.close_write
    assert_equal 'early question', pump.socket.read
    pump.socket.write('answer')
    pump.socket.close_write
    assert_equal 'answer', client.read
    assert_nil pump.wait
    pump.socket.close
  end

  def test_the_application_may_go_on_reading_after_its_last_word
    client, pump = pump()
    pump.socket.write('bye')
    pump.socket.close_write
    assert_equal 'bye', client.read
    client << 'more'
    client.close
    assert_equal 'early more', pump.socket.read
    pump.wait
    pump.socket.close
  end

  def test_the_application_sees_the_end_when_the_client_is_reset
    client, pump = pump()
    pump.socket.read(6)
    client.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    client.close
    assert_nil pump.socket.read(1)
    pump.wait
    pump.socket.close
  end

  def test_another_thread_may_use_the_socket_of_a_pump
    client, pump = pump()
    thread = Thread.new(pump.socket) do |socket|
      socket.write(socket.readpartial(100).upcase)
      socket.close
    end
    assert_equal 'EARLY ', client.read(6)
    pump.wait
    thread.join
  end

  def test_what_is_no_application_is_refused
    error = assert_raises(ArgumentError) { Handler.new('app') }
    assert_match(/responds to call, got "app"/, error.message)
    assert_raises(ArgumentError) { Handler.load('/nowhere/config.ru') }
    assert_raises(ArgumentError) { Handler.new(proc {}, early_hints: 1) }
  end
end
