# frozen_string_literal: true

require 'socket'

# Frames of HTTP/2 by hand. Headers are sent as plain literals; of the answer's only the status is decoded.
class HTTP2Client
  PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b.freeze
  TYPES = %i[data headers priority rst_stream settings push_promise ping goaway window_update continuation].freeze
  CODES = %i[NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR
             REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM].freeze
  STATUSES = { 8 => 200, 9 => 204, 10 => 206, 11 => 304, 12 => 400, 13 => 404, 14 => 500 }.freeze
  # Digits of HPACK's Huffman code, as bits.
  DIGITS = (0..9).to_h { |i| [i < 3 ? format('%05b', i) : format('%06b', 0x19 + i - 3), i.to_s] }.freeze
  Frame = Struct.new(:type, :flags, :stream, :payload) do
    def end_stream?
      flags.anybits?(1)
    end

    def code
      CODES[payload.unpack1(type == :goaway ? 'x4N' : 'N')]
    end
  end

  attr_reader :io, :frames, :bodies, :statuses, :resets, :ended, :settings
  attr_accessor :acknowledge, :replenish

  # @param io [Socket] is connected
  def initialize(io, settings: {}, preface: true)
    @io = io
    @buffer = String.new(encoding: Encoding::BINARY)
    @frames = []
    @bodies = Hash.new { |hash, id| hash[id] = +''.b }
    @statuses = {}
    @resets = {}
    @ended = {}
    @settings = {}
    @acknowledge = @replenish = true
    write(PREFACE + settings_frame({ 1 => 0, **settings })) if preface
  end

  def write(bytes)
    @io.write(bytes)
    self
  end

  def frame(type, flags = 0, stream = 0, payload = '', length: payload.bytesize)
    type = TYPES.index(type) unless type.is_a?(Integer)
    [length >> 16, length & 0xffff, type, flags, stream].pack('CnCCN') + payload.b
  end

  def settings_frame(values, flags = 0)
    frame(:settings, flags, 0, values.map { |id, value| [id, value].pack('nN') }.join)
  end

  def literal(text)
    raise ArgumentError, 'only short ones' if text.bytesize > 0x7f + 127

    size = text.bytesize
    (size < 127 ? [size] : [127, size - 127]).pack('C*') + text.b
  end

  def block(fields)
    fields.map { |name, value| "\0".b + literal(name) + literal(value) }.join
  end

  def fields(verb = 'GET', path = '/', authority: 'test', **more)
    { ':method' => verb, ':scheme' => 'http', ':path' => path, ':authority' => authority }.merge(more.transform_keys(&:to_s)).to_a
  end

  def headers(id, list = fields, flags: 5)
    frame(:headers, flags, id, block(list))
  end

  def data(id, bytes, last: false)
    frame(:data, last ? 1 : 0, id, bytes)
  end

  def window(id, size)
    frame(:window_update, 0, id, [size].pack('N'))
  end

  def reset(id, code = 8)
    frame(:rst_stream, 0, id, [code].pack('N'))
  end

  # Reads frames until the block is true for one.
  # @return [Frame, nil] nil at the end of the connection
  def until_frame
    while (frame = next_frame)
      take(frame)
      return frame if yield(frame)
    end
  end

  # @return [Integer, Symbol, nil] status, or why it was reset; nil: the connection ended
  def await(id)
    until_frame { @ended[id] || @resets[id] } unless @ended[id] || @resets[id]
    @resets[id] || (@ended[id] && @statuses[id])
  end

  # @return [Symbol, nil] the code of a GOAWAY, whose last one counts
  def goaway
    nil while until_frame { false }
    @frames.reverse.find { |frame| frame.type == :goaway }&.code
  end

  def get(id, path = '/')
    write(headers(id, fields('GET', path)))
    await(id)
  end

  # @return [Integer] the last stream of a frame GOAWAY
  def last_id(frame)
    frame.payload.unpack1('N')
  end

  private

  def next_frame
    fill(9) or return
    high, low, type, flags, id = @buffer.unpack('CnCCN')
    length = (high << 16) | low
    fill(9 + length) or return
    payload = @buffer.slice!(0, 9 + length).byteslice(9..)
    Frame.new(TYPES[type] || type, flags, id & 0x7fffffff, payload)
  end

  def fill(size)
    @buffer << @io.readpartial(65_536) while @buffer.bytesize < size
    true
  rescue EOFError, Errno::ECONNRESET, Errno::EPIPE
    @io.close # as a client does who was asked to go
    nil
  end

  def take(frame)
    @frames << frame
    id = frame.stream
    case frame.type
    when :headers then take_headers(frame)
    when :data then take_data(frame)
    when :rst_stream then @resets[id] = frame.code
    when :settings then take_settings(frame)
    end
    @ended[id] = true if %i[headers data].include?(frame.type) && frame.end_stream?
  end

  def take_headers(frame)
    status = status_of(frame.payload)
    @statuses[frame.stream] = status if status && !(@statuses[frame.stream].to_i > 199)
  end

  def take_settings(frame)
    return if frame.flags.anybits?(1)

    frame.payload.unpack('nN' * (frame.payload.bytesize / 6)).each_slice(2) { |id, value| @settings[id] = value }
    write(settings_frame({}, 1)) if @acknowledge
  rescue Errno::EPIPE, Errno::ECONNRESET
    nil
  end

  def take_data(frame)
    @bodies[frame.stream] << frame.payload
    return if !@replenish || frame.payload.empty?

    write(window(0, frame.payload.bytesize) + (frame.end_stream? ? '' : window(frame.stream, frame.payload.bytesize)))
  rescue Errno::EPIPE, Errno::ECONNRESET
    nil
  end

  def status_of(block)
    block = block.byteslice(1..) while block.getbyte(0)&.between?(0x20, 0x3f) # updates of the table's size
    first = block.getbyte(0) or return
    return STATUSES[first & 0x7f] if first >= 0x80

    length = block.getbyte(1)
    text = block.byteslice(2, length & 0x7f)
    (length >= 0x80 ? digits(text.unpack1('B*')) : text).to_i
  end

  def digits(bits)
    text = +''
    while (code = DIGITS.keys.find { |key| bits.start_with?(key) }) && text.size < 3
      text << DIGITS[code]
      bits = bits[code.size..]
    end
    text
  end
end
