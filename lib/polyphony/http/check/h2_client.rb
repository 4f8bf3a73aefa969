# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Frames of HTTP/2, as wrong as one likes. It writes headers as literals, asks the server not to use
      # HPACK's table, and reads no more of an answer than its status and how many bytes it has.
      class H2Client
        PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".b.freeze
        TYPES = { data: 0, headers: 1, priority: 2, rst_stream: 3, settings: 4, push_promise: 5, ping: 6, goaway: 7,
                  window_update: 8, continuation: 9 }.freeze
        ERRORS = %w[NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED
                    FRAME_SIZE_ERROR REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM
                    INADEQUATE_SECURITY HTTP_1_1_REQUIRED].freeze
        END_STREAM = 1
        ACK = 1
        END_HEADERS = 4
        PADDED = 8
        # Statuses in HPACK's static table, by index.
        STATIC_STATUS = { 8 => 200, 9 => 204, 10 => 206, 11 => 304, 12 => 400, 13 => 404, 14 => 500 }.freeze
        # Digits in HPACK's Huffman code: those of five bits, then those of six.
        DIGITS_5 = { 0 => '0', 1 => '1', 2 => '2' }.freeze
        DIGITS_6 = (0..6).to_h { |i| [0x19 + i, (3 + i).to_s] }.freeze
        private_constant :STATIC_STATUS, :DIGITS_5, :DIGITS_6

        class << self
          # @param type [Symbol, Integer]
          # @return [String] a frame
          def frame(type, flags = 0, stream = 0, payload = '', length: payload.bytesize)
            type = TYPES.fetch(type) unless type.is_a?(Integer)
            [length >> 16, length & 0xffff, type, flags, stream].pack('CnCCN') + payload.b
          end

          # @param fields [Array<Array(String, String)>]
          # @return [String] a header block of literals that are not indexed
          def block(fields)
            fields.map { |name, value| "\0".b + string(name) + string(value) }.join
          end

          # @return [String] length, then bytes, without Huffman
          def string(text)
            text = text.b
            integer(text.bytesize, 7) + text
          end

          # @return [String] an integer of HPACK, with +first+ in the bits above its prefix
          def integer(value, prefix, first = 0)
            limit = (1 << prefix) - 1
            return (first | value).chr.b if value < limit

            bytes = [first | limit]
            value -= limit
            while value >= 128
              bytes << (value % 128 + 128)
              value /= 128
            end
            (bytes << value).pack('C*')
          end

          # @param values [Hash{Integer => Integer}]
          # @return [String] payload of a SETTINGS frame
          def settings(values)
            values.map { |id, value| [id, value].pack('nN') }.join
          end
        end

        # @return [Wire]
        attr_reader :wire
        # @return [String, nil] the error's name
        attr_reader :goaway
        # @return [Integer, nil] the last stream that the server's GOAWAY says it has taken
        attr_reader :last_id
        # @return [Hash{Integer => String}] stream => name of the error
        attr_reader :resets
        # @return [Hash{Integer => Integer}] stream => status
        attr_reader :statuses
        # @return [Hash{Integer => Integer}] stream => bytes of its body
        attr_reader :bytes
        # @return [Hash{Integer => true}] streams whose answer is whole
        attr_reader :ended
        # @return [Integer] answers to our PINGs
        attr_reader :pongs
        # @return [Hash{Integer => Integer}] of the server
        attr_reader :settings
        # @return [Boolean] whether it acknowledges the server's SETTINGS
        attr_accessor :acknowledge
        # @return [Boolean] whether it lets the server go on when it has got something
        attr_accessor :replenish

        # @param wire [Wire]
        def initialize(wire)
          @wire = wire
          @resets = {}
          @statuses = {}
          @bytes = Hash.new(0)
          @ended = {}
          @settings = {}
          @pongs = 0
          @acknowledge = true
          @replenish = true
        end

        # Preface and SETTINGS.
        # @param values [Hash{Integer => Integer}] besides a header table of no size
        def start(values = {})
          @wire.send(PREFACE + frame(:settings, 0, 0, self.class.settings({ 1 => 0 }.merge(values))))
          self
        end

        # @return [Boolean] whether the server's SETTINGS are here
        def settled?
          @settled == true
        end

        def frame(*args, **options)
          self.class.frame(*args, **options)
        end

        # @return [Integer] how many bytes were taken
        def send(*frames, **options)
          @wire.send(frames.join, **options)
        end

        # @return [String] a HEADERS frame
        def headers(stream, fields, flags: END_STREAM | END_HEADERS)
          frame(:headers, flags, stream, self.class.block(fields))
        end

        # Reads frames until the block is content, the connection ends or the time is over.
        # @return [Symbol] as Wire#read
        def pump(within)
          @wire.read(within) do
            parse
            block_given? ? yield : !@goaway.nil? && @wire.closed?
          end
        ensure
          parse
        end

        # @return [Outcome]
        def outcome(note: nil)
          Outcome.new(statuses: @statuses.values, resets: @resets.values, goaway: @goaway, closed: @wire.closed?, note: note,
                      bytes: @texts.to_s)
        end

        private

        def parse
          buffer = @wire.received
          offset = 0
          while buffer.bytesize - offset >= 9
            high, low, type, flags, stream = buffer.byteslice(offset, 9).unpack('CnCCN')
            length = (high << 16) | low
            break if buffer.bytesize - offset - 9 < length

            take(type, flags, stream & 0x7fff_ffff, buffer.byteslice(offset + 9, length))
            offset += 9 + length
          end
          buffer.slice!(0, offset) if offset.positive?
        end

        def take(type, flags, stream, payload)
          case type
          when 0 then take_data(flags, stream, payload)
          when 1 then take_headers(flags, stream, payload)
          when 3 then @resets[stream] = ERRORS.fetch(payload.unpack1('N'), 'unknown error')
          when 4 then take_settings(flags, payload)
          when 6 then @pongs += 1 if flags.anybits?(ACK)
          when 7 then take_goaway(payload)
          end
        end

        def take_goaway(payload)
          last, code = payload.unpack('NN')
          @last_id = last & 0x7fff_ffff
          name = ERRORS.fetch(code, 'unknown error')
          @goaway = name unless @goaway && @goaway != 'NO_ERROR' # a polite one may come first
          @texts = payload.byteslice(8..)
        end

        def take_settings(flags, payload)
          return if flags.anybits?(ACK)

          payload.unpack('nN' * (payload.bytesize / 6)).each_slice(2) { |id, value| @settings[id] = value }
          @settled = true
          @wire.send(frame(:settings, ACK)) if @acknowledge && !@wire.closed?
        end

        def take_data(flags, stream, payload)
          @bytes[stream] += payload.bytesize
          @ended[stream] = true if flags.anybits?(END_STREAM)
          return if !@replenish || payload.empty? || @wire.closed?

          step = [payload.bytesize].pack('N')
          @wire.send(frame(:window_update, 0, 0, step) + (@ended[stream] ? '' : frame(:window_update, 0, stream, step)))
        end

        def take_headers(flags, stream, payload)
          status = status_of(payload)
          @statuses[stream] = status if status && status >= 200
          @ended[stream] = true if flags.anybits?(END_STREAM)
        end

        # It is the first field, but for an update of the table's size.
        def status_of(block)
          block = block.sub(/\A(?:\x3f[\x80-\xff]*[\x00-\x7f]|[\x20-\x3e])+/n, '')
          first = block.getbyte(0) or return
          return STATIC_STATUS[first & 0x7f] if first >= 0x80

          length = block.getbyte(1) or return
          text = block.byteslice(2, length & 0x7f)
          (length >= 0x80 ? digits(text) : text).to_i
        end

        def digits(bytes)
          bits = bytes.unpack1('B*')
          text = +''
          while bits.size >= 5
            if (digit = DIGITS_5[bits[0, 5].to_i(2)]) then bits = bits[5..]
            elsif bits.size >= 6 && (digit = DIGITS_6[bits[0, 6].to_i(2)]) then bits = bits[6..]
            else break
            end
            text << digit
          end
          text
        end
      end
    end
  end
end
