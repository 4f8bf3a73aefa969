# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Attacks below HTTP: line 23, and lines 42 to 44.
      module Transport
        extend Catalogue

        # The beginning of a TLS handshake as a client of 1.2 makes it.
        CLIENT_HELLO = ['16030100530100004f0303', '11' * 32, '00', '0004', 'c02fc02b', '0100', '0022',
                        '000a00080006001d00170018', '000b00020100', '000d00080006', '040104030501', '0017', '0000']
                       .join.then { |hex| [hex].pack('H*') }.freeze

        # What those attacks do over and over.
        module Helpers
          private

          # A handshake that should not come about.
          # @return [Outcome]
          def handshake(**options, &configure)
            wire = connect(**options, &configure)
            Outcome.new(closed: false, note: "#{wire.io.ssl_version} #{wire.io.alpn_protocol}".strip)
          rescue ::OpenSSL::SSL::SSLError, ::SystemCallError => e
            Outcome.new(closed: true, note: e.message[/alert [\w ]+|reset/] || 'refused')
          end

          # @return [Array<Wire>] many connections on which nothing is said
          def crowd(count)
            Array.new(count) do |i|
              snooze if (i % 50).zero?
              connect_plain
            end
          end
        end
        Attack.include(Helpers)

        line 23, 'not HTTP', Expect.refused_or_closed(400)
        try('TLS on the plain port', needs: :plain) { exchange(CLIENT_HELLO + get) }
        try('HTTP on the TLS port', needs: :tls) { exchange(get, wire: connect_plain).tap { |o| o.problem = nil } }
        try('random bytes') do
          random = ::Random.new(23)
          outcomes = Array.new(many(200, 10)) do
            exchange(random.bytes(300) + "\r\n\r\n", wire: connect_plain).tap { |o| o.problem = nil if target.tls }
          end
          outcomes.find { |outcome| !outcome.closed || outcome.problem || outcome.statuses.any? { |s| s < 400 } } || outcomes.last
        end
        try('nothing but line ends', Expect.refused_or_closed(400, 408), slow: true) do
          wire = connect
          wire.send("\r\n\r\n")
          wait_for_end(wire)
        end
        try('0 bytes, then silence', Expect.closed, slow: true) { wait_for_end(connect_plain) }
        try('0 bytes, then the end', Expect.closed) do
          wire = connect_plain
          wire.half_close
          wire.read(5)
          Outcome.new(closed: wire.closed?)
        end

        line 42, 'handshake', Expect.closed, needs: :tls, slow: true
        try('byte by byte') { drip(CLIENT_HELLO.each_char, wire: connect_plain) }
        try('never finished') do
          wire = connect_plain
          wire.send(CLIENT_HELLO)
          wire.read(patience)
          Outcome.new(closed: wire.closed?)
        end
        try('finished, and then silence') { wait_for_end(connect) }
        try('16 KB of junk', slow: false) do
          wire = connect_plain
          wire.send("\x16\x03\x01\x40\x00".b + ::Random.new(42).bytes(16_384))
          wire.read(5)
          Outcome.new(closed: wire.closed?)
        end
        try('many at a time that are never finished', Expect.survives, slow: false) do
          crowd(many(500, 50)).each { |wire| wire.send(CLIENT_HELLO) }
          sleep 0.2
          Outcome.new(note: 'held')
        end

        line 43, 'TLS', Expect.closed('refused'), needs: :tls
        { '1.0' => ::OpenSSL::SSL::TLS1_VERSION, '1.1' => ::OpenSSL::SSL::TLS1_1_VERSION }.each do |version, number|
          try("version #{version}") do
            handshake do |context|
              context.security_level = 0
              context.ciphers = 'ALL:@SECLEVEL=0'
              context.min_version = context.max_version = number
            end
          end
        end
        try('renegotiation', Expect.new('refused', ->(o, _) { o.note != 'renegotiated' })) { renegotiate(1_000) }
        try('unknown SNI', Expect.survives('the default certificate, or refused')) do
          socket = connect_plain
          ssl = ::OpenSSL::SSL::SSLSocket.new(socket.socket, ::OpenSSL::SSL::SSLContext.new)
          ssl.hostname = 'unknown.invalid'
          begin
            ssl.connect
            Outcome.new(note: ssl.peer_cert.subject.to_s)
          rescue ::OpenSSL::SSL::SSLError, ::SystemCallError => e
            Outcome.new(note: e.message[/alert [\w ]+/] || 'refused')
          end
        end
        try('ALPN of a protocol that is none', Expect.new('HTTP/1.1, or refused', ->(o, g) { [[g], []].include?(o.statuses) })) do
          exchange(second, wire: connect(alpn: ['h2c']))
        rescue ::OpenSSL::SSL::SSLError
          Outcome.new(statuses: [], closed: true, note: 'no_application_protocol')
        end
        try('no ALPN', Expect.answers([:good])) { exchange(second, wire: connect(alpn: nil)) }
        try('closed in mid-body without close_notify', Expect.survives) do
          wire = connect
          wire.send(head('POST', "Content-Length: 1000\r\n") + 'abc')
          wire.socket.close_write
          look(wire)
        end

        line 44, 'connections', Expect.survives
        try('opened and closed') do
          many(50_000, 500).times do |i|
            wire = target.connect_plain
            i.even? ? wire.close : wire.reset
            snooze
          end
          Outcome.new(note: 'gone')
        end
        try('on which nothing is said') do
          wires = crowd(many(1_000, 200))
          sleep 0.3
          Outcome.new(note: "#{wires.count { |wire| !wire.take.closed? }} held")
        end

        Attack.class_eval do
          private

          # Each is answered with a warning, or the connection ends. One that goes on still has to answer to a request.
          def renegotiate(count)
            client = TLS12Client.new(wire = connect_plain).start
            client.renegotiate(count)
            client.send(second)
            client.pump(5) { client.renegotiated? }
            Outcome.new(statuses: Answers.new(client.answer).statuses, closed: wire.closed?,
                        note: client.renegotiated? ? 'renegotiated' : "#{client.refusals} refused")
          rescue TLS12Client::Refused => e
            Outcome.new(closed: true, note: "no TLS 1.2: #{e.message}")
          end
        end
      end
    end
  end
end
