# frozen_string_literal: true

require 'test_helper'
require 'stringio'
require 'zlib'

# What IO has beside the stock methods.
class TestIOAdditions < Polyphony::TestCase
  TEXT = Array.new(3000) { |i| "line #{i} #{i * i}\n" }.join.freeze

  def filled(text)
    reader, writer = pipe_pair
    spin { writer.write(text); writer.close }
    reader
  end

  # Counts turns of another fiber meanwhile.
  def turns
    count = 0
    other = spin { loop { count += 1; snooze } }
    yield
    count
  ensure
    other.stop
  end

  # --- more arguments -----------------------------------------------------------------------------

  def test_readpartial_into_a_buffer_at_a_position
    reader = filled('abcdef')
    buffer = +'12345'
    assert_same buffer, reader.readpartial(2, buffer, 2)
    assert_equal '12ab', buffer
    assert_equal '12abcd', reader.readpartial(2, buffer, -1)
    assert_equal 'ef', reader.readpartial(2, buffer, 0, false)
    assert_nil reader.readpartial(2, buffer, 0, false)
    assert_raises(EOFError) { reader.readpartial(2, buffer, 0) }
    assert_raises(EOFError) { reader.readpartial(2, nil, 0, true) }
    assert_raises(ArgumentError) { reader.readpartial(2, buffer, 0, true, 5) }
    assert_raises(ArgumentError) { reader.readpartial(2, buffer, exception: false) }
  end

  def test_read_into_a_buffer_at_a_position
    reader = filled("line\nabcdef")
    reader.gets
    buffer = +'12345'
    assert_equal '12abc', reader.read(3, buffer, 2)
    assert_equal '12abcdef', reader.read(nil, buffer, -1)
    assert_nil reader.read(3, buffer, 0)
    assert_equal '', reader.read(nil, nil, 0)
    error = assert_raises(ArgumentError) { reader.read(1, +'', 0, 0) }
    assert_equal 'wrong number of arguments (given 4, expected 0..2)', error.message
  end

  def test_they_refuse_what_cannot_be_read
    _, writer = pipe_pair
    assert_raises(IOError) { writer.readpartial(2, +'', 0, false) }
    assert_raises(IOError) { writer.read(2, +'', 0) }
    assert_raises(FrozenError) { filled('abc').readpartial(2, 'frozen'.freeze, 0) }
  end

  # --- loops and splices --------------------------------------------------------------------------

  def test_read_loop
    chunks = []
    reader = filled('x' * 100)
    assert_same reader, reader.read_loop(30) { |chunk| chunks << chunk }
    assert_equal 'x' * 100, chunks.join
    assert_operator chunks.map(&:size).max, :<=, 30
    assert_raises(ArgumentError) { reader.read_loop }
  end

  def test_feed_loop
    fed = []
    reader = filled('abc')
    assert_same reader, reader.feed_loop(->(chunk) { fed << chunk })
    parser = Object.new
    def parser.parse(chunk) = yield(chunk.upcase)
    filled('def').feed_loop(parser, :parse) { |chunk| fed << chunk }
    assert_equal 'abcDEF', fed.join
  end

  def test_splicing
    reader, writer = pipe_pair
    assert_equal 3, IO.splice(filled('abcdef'), writer, 3)
    assert_equal 6, writer.splice_from(filled('ghijkl'), -2)
    source = filled('mno')
    source.wait_readable
    assert_equal 3, writer.tee_from(source, 10)
    assert_equal 3, IO.tee(source, writer, 10)
    assert_equal 3, IO.double_splice(source, writer)
    writer.close
    assert_equal 'abcghijklmnomnomno', reader.read
  end

  def test_a_chunked_body
    reader, writer = pipe_pair
    assert_same writer, IO.http1_splice_chunked(filled('hello world'), writer, 8)
    writer.close
    body = reader.read
    assert_equal 'hello world', body.scan(/\h+\r\n(.+?)\r\n/).join
    assert body.end_with?("\r\n0\r\n\r\n")
  end

  # --- compression --------------------------------------------------------------------------------

  def test_there_and_back
    packed = +''
    size = IO.deflate(TEXT, packed)
    assert_equal packed.bytesize, size
    assert_equal TEXT, Zlib::Inflate.inflate(packed)
    assert_equal TEXT.bytesize, IO.inflate(packed, text = +'')
    assert_equal TEXT, text
  end

  def test_every_kind_of_end
    sources = { string: -> { TEXT }, io: -> { filled(TEXT) }, object: -> { StringIO.new(TEXT) },
                pipe: -> { pipe_with(TEXT) }, call: -> { parts = StringIO.new(TEXT); ->(n) { parts.read(n) } },
                socket: -> { a, b = socket_pair; spin { a << TEXT; a.close }; b } }
    sources.each do |kind, source|
      targets.each do |name, (target, result)|
        IO.gzip(source.call, target)
        target.close if target.respond_to?(:close) && !target.is_a?(StringIO)
        assert_equal TEXT, Zlib.gunzip(result.call), "#{kind} to #{name}"
      end
    end
  end

  def pipe_with(text)
    Polyphony.pipe.tap { |pipe| spin { pipe << text; pipe.close } }
  end

  def targets
    reader, writer = pipe_pair
    taken = spin { reader.read }
    pipe = Polyphony.pipe
    piped = spin { pipe.read }
    parts = []
    { string: [text = +'', -> { text }], io: [writer, -> { taken.await }], pipe: [pipe, -> { piped.await }],
      object: [io = StringIO.new, -> { io.string }], call: [->(part) { parts << part }, -> { parts.join }] }
  end

  def test_an_object_says_how_it_is_used
    inner = filled(TEXT)
    source = Object.new
    source.define_singleton_method(:__read_method__) { :readpartial }
    source.define_singleton_method(:readpartial) { |length| inner.readpartial(length) }
    written = []
    target = Object.new
    target.define_singleton_method(:__write_method__) { :call }
    target.define_singleton_method(:call) { |part| written << part }
    IO.deflate(source, target)
    assert_equal TEXT, Zlib::Inflate.inflate(written.join)
  end

  def test_gzip_tells_about_the_file
    IO.gzip('text', packed = +'', mtime: Time.at(1_000_000), orig_name: 'name', comment: 'said')
    info = {}
    IO.gunzip(packed, text = +'', info)
    assert_equal ['text', { mtime: Time.at(1_000_000), orig_name: 'name', comment: 'said' }], [text, info]
    IO.gzip('text', packed = +'', mtime: false)
    IO.gunzip(packed, +'', info = {})
    assert_equal 0, info[:mtime].to_i
    IO.gzip('text', packed = +'')
    IO.gunzip(packed, +'', info = {})
    assert_in_delta Time.now.to_i, info[:mtime].to_i, 60
    assert_raises(ArgumentError) { IO.gzip('text', +'', level: 3) }
  end

  def test_what_comes_behind_is_left_in_the_source
    IO.deflate(TEXT, packed = +''.b)
    reader = filled(packed + 'behind')
    IO.inflate(reader, text = +'')
    assert_equal [TEXT, 'behind'], [text, reader.read]

    IO.gzip(TEXT, packed = +''.b)
    reader = filled("#{packed}#{packed}\0\0behind")
    IO.gunzip(reader, text = +'')
    assert_equal [TEXT * 2, 'behind'], [text, reader.read]
  end

  def test_damage_is_an_error
    IO.deflate(TEXT, deflated = +''.b)
    IO.gzip(TEXT, zipped = +''.b)
    assert_raises(Zlib::BufError) { IO.inflate(deflated[0..-5], +'') }
    assert_raises(Zlib::Error) { IO.inflate('not compressed', +'') }
    assert_raises(Zlib::GzipFile::Error) { IO.gunzip(zipped[0..-5], +'') }
    assert_raises(Zlib::GzipFile::Error) { IO.gunzip('not compressed', +'') }
    assert_raises(FrozenError) { IO.gzip('text', 'frozen'.freeze) }
    assert_match(/got 5\z/, assert_raises(TypeError) { IO.gzip(5, +'') }.message)
    assert_raises(TypeError) { IO.gzip('text', nil) }
  end

  def test_others_run_meanwhile
    assert_operator turns { IO.gzip('x' * 1_000_000, +'') }, :>, 20
    IO.deflate('x' * 10_000_000, packed = +'')
    assert_operator turns { IO.inflate(packed, +'') }, :>, 20
    assert_operator(spin { turns { IO.deflate('x' * 1_000_000, +'') } }.await, :>, 20)
  end

  def test_a_compression_that_is_broken_off
    reader, writer = pipe_pair
    writer.write('never ending')
    assert_nil(move_on_after(0.002) { IO.gzip(reader, +'') })
    assert_nil(move_on_after(0.002) { IO.deflate(reader, +'') })
  end
end
