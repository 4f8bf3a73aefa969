# frozen_string_literal: true

require 'zlib'

module Polyphony
  module HTTP
    class Check
      # Attacks on WebSocket: lines 37 to 41.
      module WebSocket
        extend Catalogue

        # What those attacks do over and over.
        module Helpers
          private

          # @return [WSClient] an open one
          def ws(extra: '', **lines)
            client = WSClient.new(connect, target)
            raise "no WebSocket at #{options.websocket}" unless client.open(options.websocket, extra: extra, **lines)

            client
          end

          def ws_frame(*args, **options)
            WSClient.frame(*args, **options)
          end

          # A handshake that is wrong in some way. What follows must not be run as a request.
          def ws_handshake(**lines)
            client = WSClient.new(connect, target)
            exchange(client.handshake(options.websocket, **lines), wire: client.wire).tap do |outcome|
              outcome.problem = 'switches protocols' if outcome.statuses.include?(101)
            end
          end

          # Sends, and waits until the server has closed; a good client answers its close.
          def ws_exchange(bytes, client: ws, within: 4)
            client.send(bytes, within: within)
            client.pump(within) { client.close_code }
            client.send(ws_frame(:close, [client.close_code].pack('n'))) if client.close_code && !client.wire.closed?
            client.pump(within)
            client.outcome
          end

          # So many zeros in a thousandth of the space. Others have their turn while it is made.
          def bomb(size)
            deflate = ::Zlib::Deflate.new(6, -15)
            megabyte = "\0" * (1 << 20)
            bytes = String.new(encoding: Encoding::BINARY)
            (size >> 20).times do
              snooze
              bytes << deflate.deflate(megabyte)
            end
            (bytes << deflate.flush(::Zlib::SYNC_FLUSH)).delete_suffix("\x00\x00\xff\xff".b)
          ensure
            deflate&.reset
            deflate&.close
          end

          # Many pieces, until the server has had enough.
          def ws_flood(client, pieces, within: 20)
            ending = Clock.now + within
            sent = 0
            pieces.each do |piece|
              break if Clock.now > ending || client.close_code || client.wire.closed?
              break if client.send(piece, within: 5) < piece.bytesize

              sent += piece.bytesize
              client.pump(0) { true }
            end
            client.pump(4)
            client.outcome(note: "#{sent} bytes sent")
          end
        end
        Attack.include(Helpers)

        line 37, 'upgrade', Expect.answers([400], [405], [426]), needs: :websocket
        try('by POST') { ws_handshake(verb: 'POST') }
        try('with HTTP/1.0') { ws_handshake(version: '1.0') }
        try('without Connection: upgrade') { ws_handshake(connection: nil) }
        try('without Upgrade') { ws_handshake(upgrade: nil) }
        try('without a key') { ws_handshake(sec_websocket_key: nil) }
        try('with a bad key') { ws_handshake(sec_websocket_key: 'short') }
        try('with a key of 17 bytes') { ws_handshake(sec_websocket_key: ['x' * 17].pack('m0')) }
        try('without a version', Expect.answers([426], [400])) { ws_handshake(sec_websocket_version: nil) }
        try('version 12', Expect.answers([426])) do
          ws_handshake(sec_websocket_version: '12').tap do |outcome|
            outcome.problem ||= 'does not tell its version' unless outcome.bytes.match?(/^sec-websocket-version: 13\r/i)
          end
        end
        try('foreign Origin', Expect.answers([403])) { ws_handshake(origin: 'https://evil.example') }
        try('Origin null', Expect.answers([403])) { ws_handshake(origin: 'null') }
        try('with a request behind it', Expect.new('is not run as a request', ->(o, _) { !o.bytes.to_s.include?('HTTP/1.1 2') })) do
          client = ws(extra: second)
          client.wire.read(1) { client.wire.closed? || client.wire.received.include?('HTTP/1.1 2') }
          Outcome.new(closed: client.wire.closed?, bytes: client.wire.received.dup)
        end

        line 38, 'frame', Expect.close_code(1002), needs: :websocket
        try('not masked') { ws_exchange(ws_frame(:text, 'x', mask: false)) }
        [0x40, 0x20, 0x10].each { |bit| try("RSV bit #{format('%#x', bit)}") { ws_exchange(ws_frame(:text, 'x', flags: 0x80 | bit)) } }
        [3, 7, 11, 15].each { |opcode| try("opcode #{opcode}") { ws_exchange(ws_frame(opcode, 'x')) } }
        try('a ping in fragments') { ws_exchange(ws_frame(:ping, 'x', flags: 0)) }
        try('a ping of 126 bytes') { ws_exchange(ws_frame(:ping, 'x' * 126)) }
        try('a close of 126 bytes') { ws_exchange(ws_frame(:close, [1000].pack('n') + 'x' * 124)) }
        try('a continuation of nothing') { ws_exchange(ws_frame(:continuation, 'x')) }
        try('a new message in a message') { ws_exchange(ws_frame(:text, 'x', flags: 0) + ws_frame(:text, 'y')) }
        try('a length with its top bit set', Expect.close_code(1002, 1009)) do
          ws_exchange(ws_frame(:binary, '', length: 1 << 63, form: 64))
        end
        try('a small length in 16 bits') { ws_exchange(ws_frame(:text, 'x', form: 16)) }
        try('a small length in 64 bits') { ws_exchange(ws_frame(:text, 'x', form: 64)) }

        line 39, 'content', Expect.close_code(1007), needs: :websocket
        { 'a stray byte' => "\x80", 'an overlong slash' => "\xc0\xaf", 'half a surrogate' => "\xed\xa0\x80",
          'beyond Unicode' => "\xf4\x90\x80\x80", 'cut short' => "\xe2\x82" }.each do |title, text|
          try("text with #{title}") { ws_exchange(ws_frame(:text, text.b)) }
        end
        try('text that breaks in the second fragment') do
          ws_exchange(ws_frame(:text, "\xe2".b, flags: 0) + ws_frame(:continuation, "\x28\xa1".b))
        end
        try('a reason that is no text') { ws_exchange(ws_frame(:close, [1000].pack('n') + "\xff".b)) }
        try('a close of 1 byte', Expect.close_code(1002)) { ws_exchange(ws_frame(:close, "\x03")) }
        [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535].each do |code|
          try("close with #{code}", Expect.close_code(1002)) { ws_exchange(ws_frame(:close, [code].pack('n'))) }
        end

        line 40, 'size', Expect.close_code(1009), needs: :websocket
        try('a frame of 2**62') { ws_exchange(ws_frame(:binary, 'x', length: 1 << 62, form: 64)) }
        try('a message of 10 GB in fragments') do
          client = ws
          piece = ws_frame(:continuation, 'x' * 65_536, flags: 0)
          ws_flood(client, [ws_frame(:binary, 'x', flags: 0)].each + ([piece] * many(160_000, 500)).each)
        end
        try('1,000,000 fragments of one byte') do
          client = ws
          piece = ws_frame(:continuation, 'x', flags: 0) * 500
          ws_flood(client, [ws_frame(:binary, 'x', flags: 0)].each + ([piece] * many(2_000, 20)).each)
        end
        try('empty fragments without end') do
          client = ws
          piece = ws_frame(:continuation, '', flags: 0) * 500
          ws_flood(client, [ws_frame(:binary, 'x', flags: 0)].each + ([piece] * many(2_000, 20)).each)
        end
        defused = Expect.new('close 1009, or no deflate', ->(o, _) { (o.close_code == 1009 && o.closed) || o.note == 'no deflate' })
        try('a deflate bomb', defused) do
          client = ws(sec_websocket_extensions: 'permessage-deflate')
          agreed = client.answer.headers['sec-websocket-extensions'].to_s
          next Outcome.new(note: 'no deflate') unless agreed.include?('permessage-deflate')

          ws_exchange(ws_frame(:binary, bomb(64 << 20), flags: 0xc0), client: client)
        end

        line 41, 'silence', Expect.closed, needs: :websocket
        try('pings, and the pongs are not read', Expect.survives('bounded, others are served')) do
          client = ws
          client.wire.socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_RCVBUF, 4_096)
          pings = ws_frame(:ping, 'x' * 100) * many(100_000, 20_000)
          taken = client.send(pings, within: options.full ? 20 : 1, mute: true)
          Outcome.new(note: "took #{taken} of #{pings.bytesize} bytes")
        end
        # Many servers wait longer than we do by default, and ours is one of them.
        try('no pong to the server\'s ping', Expect.closed_sooner_or_later, slow: true) do
          client = ws
          client.pump(patience)
          client.outcome(note: "#{client.frames.count { |opcode, _| opcode == 9 }} pings within #{patience} s")
        end
        stalled = Expect.new('closed at the write stall, or no echo', ->(o, _) { o.closed || o.note == 'no echo' })
        try('messages, and what is answered is not read', stalled, slow: true) do
          client = ws
          client.send(ws_frame(:text, 'x'))
          client.pump(1) { client.frames.any? { |opcode, _| opcode == 1 } }
          next Outcome.new(note: 'no echo') if client.frames.none? { |opcode, _| opcode == 1 }

          client.wire.socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_RCVBUF, 4_096)
          message = ws_frame(:binary, 'x' * 60_000)
          200.times { break if client.send(message, within: 0.5, mute: true) < message.bytesize }
          ending = Clock.now + patience
          sleep 0.05 until client.wire.reset_seen? || Clock.now > ending
          Outcome.new(closed: client.wire.reset_seen?)
        end
        try('no close frame as an answer', slow: true) do
          client = ws
          client.send(ws_frame(:text, 'x', mask: false)) # it closes because of this
          client.pump(patience)
          client.outcome
        end
      end
    end
  end
end
