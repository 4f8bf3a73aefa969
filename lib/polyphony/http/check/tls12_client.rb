# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # A client of TLS 1.2 that can do what a library keeps one from: ask for a new handshake, refused or not, as often as it
      # likes (RFC 5246, RFC 5746). ECDHE on P-256 and AES-128-GCM, which whoever speaks 1.2 in earnest has. Certificates are
      # not looked at: it has nothing to hide.
      class TLS12Client
        # ECDHE with ECDSA or RSA, AES-128-GCM, SHA-256.
        CIPHERS = [0xc02b, 0xc02f].freeze
        # P-256; uncompressed points; signatures by ECDSA, RSA and RSA-PSS.
        EXTENSIONS = [['000a000400020017', '000b00020100', '000d000e000c', '040305030401050108040805'].join].pack('H*').freeze
        CHANGE_CIPHER = 20
        ALERT = 21
        HANDSHAKE = 22
        DATA = 23
        NO_RENEGOTIATION = "\x01\x64".b.freeze
        private_constant :CIPHERS, :EXTENSIONS, :CHANGE_CIPHER, :ALERT, :HANDSHAKE, :DATA

        # Why the handshake came to nothing.
        class Refused < StandardError; end

        # @return [Integer] how often a new handshake was refused
        attr_reader :refusals
        # @return [String] what the server said to a request
        attr_reader :answer

        # @param wire [Wire] without TLS
        def initialize(wire)
          @wire = wire
          @said = String.new(encoding: Encoding::BINARY) # in the handshake, by both
          @answer = String.new(encoding: Encoding::BINARY)
          @messages = []
          @offset = @refusals = @sent = @taken = 0
          @verify_data = ''.b
        end

        # The handshake.
        # @param within [Numeric] seconds for each of its halves
        # @return [self]
        # @raise [Refused]
        def start(within: 5)
          @random = ::OpenSSL::Random.random_bytes(32)
          say(handshake(1, hello))
          pump(within) { message(14) }
          agree(*message(2), *message(12))
          pump(within) { message(20) } # under the new keys
          self
        end

        # @return [Boolean] whether the server has begun another handshake
        def renegotiated?
          !message(2).nil?
        end

        # @param count [Integer] how often to ask for a new handshake, without waiting for an answer
        def renegotiate(count, within: 10)
          @messages.clear
          count.times { @wire.send(record(HANDSHAKE, handshake(1, hello)), within: within) && take }
        end

        # @param bytes [String]
        def send(bytes)
          @wire.send(record(DATA, bytes))
        end

        # Takes what comes until the block is content.
        # @return [Boolean] whether it was
        # @raise [Refused] if it ended before the keys were agreed on
        def pump(within, &enough)
          ended = @wire.read(within) { take && enough.call } != :done
          raise Refused, @alert || 'closed' if ended && !@verified

          !ended
        end

        private

        # --- what is said -------------------------------------------------------------------------

        # With the proof of RFC 5746 that it is the same client, or with the announcement that it will be given.
        def hello
          proof = [0xff01, @verify_data.bytesize + 1, @verify_data.bytesize].pack('nnC') + @verify_data
          extensions = EXTENSIONS + proof
          [0x0303].pack('n') + @random + [0, CIPHERS.size * 2, *CIPHERS, 1, 0, extensions.bytesize].pack('Cnn2CCn') + extensions
        end

        def handshake(kind, body)
          [kind, body.bytesize >> 16, body.bytesize & 0xffff].pack('CCn') + body
        end

        def say(text)
          @said << text
          @wire.send(record(HANDSHAKE, text))
        end

        def record(kind, text)
          text = seal(kind, text) if @write_key
          [kind, 0x0303, text.bytesize].pack('Cnn') + text
        end

        # --- what comes ---------------------------------------------------------------------------

        # @return [true]
        def take
          while (head = @wire.received.byteslice(@offset, 5)).bytesize == 5
            kind, _, size = head.unpack('Cnn')
            text = @wire.received.byteslice(@offset + 5, size)
            break if text.bytesize < size

            @offset += 5 + size
            hear(kind, @read_key && kind != CHANGE_CIPHER ? unseal(kind, text) : text)
          end
          true
        end

        def hear(kind, text)
          case kind
          when CHANGE_CIPHER then @read_key = @server_key
          when ALERT then hear_alert(text)
          when DATA then @answer << text
          when HANDSHAKE then hear_handshake(text)
          end
        end

        def hear_alert(text)
          text == NO_RENEGOTIATION ? @refusals += 1 : @alert = "alert #{text.unpack1('xC')}"
        end

        def hear_handshake(text)
          (@partial ||= ''.b) << text
          while @partial.bytesize >= 4 && @partial.bytesize >= 4 + (size = @partial.unpack1('xa3').unpack('Cn').then { |high, low| (high << 16) + low })
            @messages << [@partial.getbyte(0), @partial.byteslice(4, size)]
            @said << @partial.slice!(0, 4 + size)
          end
        end

        # @return [Array(String), nil] the message of that kind
        def message(kind)
          @messages.assoc(kind)&.drop(1)
        end

        # --- keys ---------------------------------------------------------------------------------

        def agree(server_hello, key_exchange)
          server_random = server_hello.byteslice(2, 32)
          point = key_exchange.byteslice(4, key_exchange.getbyte(3))
          own = ::OpenSSL::PKey::EC.generate('prime256v1')
          theirs = ::OpenSSL::PKey::EC::Point.new(own.group, ::OpenSSL::BN.new(point, 2))
          say(handshake(16, own.public_key.to_octet_string(:uncompressed).then { |mine| [mine.bytesize].pack('C') + mine }))

          @secret = prf(own.dh_compute_key(theirs), 'master secret', @random + server_random, 48)
          key, @server_key, @write_salt, @read_salt =
            prf(@secret, 'key expansion', server_random + @random, 40).unpack('a16a16a4a4')
          finish(key)
        end

        def finish(key)
          @wire.send(record(CHANGE_CIPHER, "\x01"))
          @write_key = key
          @verify_data = prf(@secret, 'client finished', ::OpenSSL::Digest::SHA256.digest(@said), 12)
          say(handshake(20, @verify_data))
          @messages.clear
        end

        def prf(secret, label, seed, size)
          seed = label + seed
          value = seed
          bytes = ''.b
          while bytes.bytesize < size
            value = ::OpenSSL::HMAC.digest('SHA256', secret, value)
            bytes << ::OpenSSL::HMAC.digest('SHA256', secret, value + seed)
          end
          bytes.byteslice(0, size)
        end

        def seal(kind, text)
          nonce = [@sent].pack('Q>')
          cipher = cipher(:encrypt, @write_key, @write_salt + nonce, nonce, kind, text.bytesize)
          @sent += 1
          nonce + cipher.update(text) + cipher.final + cipher.auth_tag
        end

        def unseal(kind, text)
          nonce = text.byteslice(0, 8)
          sealed = text.byteslice(8...-16)
          cipher = cipher(:decrypt, @read_key, @read_salt + nonce, [@taken].pack('Q>'), kind, sealed.bytesize)
          @taken += 1
          cipher.auth_tag = text.byteslice(-16, 16)
          @verified = true
          cipher.update(sealed) + cipher.final
        end

        def cipher(direction, key, nonce, count, kind, size)
          ::OpenSSL::Cipher.new('aes-128-gcm').tap do |cipher|
            cipher.public_send(direction)
            cipher.key = key
            cipher.iv = nonce
            cipher.auth_data = count + [kind, 0x0303, size].pack('Cnn')
          end
        end
      end
    end
  end
end
