# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Frames of WebSocket, as wrong as one likes.
      class WSClient
        KEY = 'dGhlIHNhbXBsZSBub25jZQ=='
        # What a server makes of that key (RFC 6455, 1.3).
        ACCEPT = 's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
        MASK = [0x37, 0xfa, 0x21, 0x3d].freeze
        OPCODES = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 }.freeze
        private_constant :MASK

        class << self
          # @param opcode [Symbol, Integer]
          # @param flags [Integer] FIN and RSV bits, as they stand in the first byte
          # @param length [Integer] what is said, if it is to be something else
          # @param form [Integer, nil] 16 or 64: the length in so many bits, even if it needs fewer
          # @return [String] a frame
          def frame(opcode, payload = '', flags: 0x80, mask: true, length: payload.bytesize, form: nil)
            opcode = OPCODES.fetch(opcode) unless opcode.is_a?(Integer)
            bytes = [flags | opcode].pack('C') + length_bytes(length, mask, form)
            return bytes + payload.b unless mask

            bytes + MASK.pack('C4') + masked(payload.b)
          end

          private

          def length_bytes(length, mask, form)
            bit = mask ? 0x80 : 0
            if form == 64 || length > 0xffff then [bit | 127, length].pack('CQ>')
            elsif form == 16 || length > 125 then [bit | 126, length].pack('Cn')
            else [bit | length].pack('C')
            end
          end

          def masked(payload)
            payload.each_byte.with_index.map { |byte, i| byte ^ MASK[i & 3] }.pack('C*')
          end
        end

        # @return [Wire]
        attr_reader :wire
        # @return [Integer, nil] of the server's close frame; 1005 if it has none
        attr_reader :close_code
        # @return [Array<Array(Integer, String)>] opcode and payload of the frames that came
        attr_reader :frames
        # @return [Answers::Answer, nil] to the handshake
        attr_reader :answer

        # @param wire [Wire]
        # @param target [Target]
        def initialize(wire, target)
          @wire = wire
          @target = target
          @frames = []
        end

        # @param path [String]
        # @return [String] the request of a good handshake; what is given replaces a line, or takes it away with nil
        def handshake(path, verb: 'GET', version: '1.1', **lines)
          all = { host: @target.authority, upgrade: 'websocket', connection: 'Upgrade', sec_websocket_key: KEY,
                  sec_websocket_version: '13' }.merge(lines).compact
          fields = all.map { |name, value| "#{name.to_s.tr('_', '-')}: #{value}\r\n" }.join
          "#{verb} #{path} HTTP/#{version}\r\n#{fields}\r\n"
        end

        # @return [Boolean] whether it is open
        def open(path, extra: '', **lines)
          @wire.send(handshake(path, **lines) + extra)
          @wire.read(5) { @wire.received.include?("\r\n\r\n") }
          head, = @wire.received.partition("\r\n\r\n")
          @answer = Answers.new("#{head}\r\n\r\n", ended: true).finals.first
          return false unless @answer&.status == 101

          @wire.received.slice!(0, head.bytesize + 4)
          true
        end

        # @return [Integer] how many bytes were taken
        def send(*frames, **options)
          @wire.send(frames.join, **options)
        end

        # Reads frames until the block is content, the connection ends or the time is over.
        def pump(within)
          @wire.read(within) do
            parse
            block_given? && yield
          end
        ensure
          parse
        end

        # @return [Outcome]
        def outcome(note: nil)
          Outcome.new(close_code: @close_code, closed: @wire.closed?, note: note)
        end

        private

        def parse
          buffer = @wire.received
          while buffer.bytesize >= 2
            first, second = buffer.unpack('CC')
            length, size = measure(buffer, second & 0x7f)
            break if size.nil? || buffer.bytesize < size + length

            payload = buffer.byteslice(size, length)
            buffer.slice!(0, size + length)
            take(first & 0x0f, payload)
          end
        end

        # @return [Array(Integer, Integer)] length of the payload and of what stands before it
        def measure(buffer, length)
          case length
          when 126 then buffer.bytesize >= 4 ? [buffer.unpack1('@2n'), 4] : nil
          when 127 then buffer.bytesize >= 10 ? [buffer.unpack1('@2Q>'), 10] : nil
          else [length, 2]
          end
        end

        def take(opcode, payload)
          @frames << [opcode, payload]
          @close_code ||= payload.unpack1('n') || 1005 if opcode == 8
        end
      end
    end
  end
end
