# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Attacks on HTTP/2: lines 24 to 36.
      module HTTP2
        extend Catalogue

        # How long ours lets a stream wait for its window by default, in seconds: longer than other limits.
        STALL = Limits::TABLE.fetch(:h2_stall).first
        private_constant :STALL

        # What those attacks do over and over.
        module Helpers
          private

          # @return [H2Client] a connection on which both sides have said what they want
          def h2(settings = {})
            client = H2Client.new(connect(alpn: ['h2']))
            yield client if block_given?
            client.start(settings)
            client.pump(5) { client.settled? }
            client
          end

          def frame(*args, **options)
            H2Client.frame(*args, **options)
          end

          # The fields of a good request.
          def fields(verb = 'GET', path = verb == 'POST' ? options.sink : target.path)
            [[':method', verb], [':scheme', target.tls ? 'https' : 'http'], [':path', path], [':authority', target.authority]]
          end

          def request(stream, flags: 5, extra: [], list: fields)
            frame(:headers, flags, stream, H2Client.block(list + extra))
          end

          # The head of a request whose body follows.
          def post(stream, extra: [])
            request(stream, flags: 4, list: fields('POST'), extra: extra)
          end

          # Sends what is wrong with stream 1; if the connection survives it, so do others on it.
          def bad_stream(bytes)
            client = h2
            finish(client, bytes, stream: 1).tap { |outcome| outcome.problem = still_good(client, 3) unless client.goaway }
          end

          # Sends, then waits for the end of the connection, or for the end of that stream.
          def finish(client, bytes = nil, stream: nil, within: 4)
            client.send(bytes, within: within) if bytes
            client.pump(within) do
              client.goaway ? client.wire.closed? : stream && (client.resets[stream] || client.ended[stream])
            end
            client.outcome
          end

          # The same on a fresh connection.
          def h2_exchange(bytes, **options)
            finish(h2, bytes, **options)
          end

          # Many frames, piece by piece, until the server has had enough.
          # @yield [Integer] which piece
          def h2_flood(client, count, step: 500, mute: false, within: 20)
            ending = Clock.now + within
            sent = 0
            while sent < count && Clock.now < ending && !client.wire.closed? && !client.goaway
              bytes = yield(sent, [step, count - sent].min)
              taken = client.send(bytes, within: [ending - Clock.now, mute ? 1 : 5].min.clamp(0, 60), mute: mute)
              break if taken < bytes.bytesize

              sent += step
              client.pump(0) { true } unless mute
            end
            client.pump(options.full ? 4 : 1) { client.goaway }
            client.pump(4) { client.wire.closed? } if client.goaway
            client.outcome(note: "#{[sent, count].min} sent")
          end

          # A stream that is fine on a connection on which something bad has happened to another one.
          def still_good(client, stream)
            client.send(request(stream))
            client.pump(4) { client.ended[stream] || client.resets[stream] || client.wire.closed? }
            client.statuses[stream] == options.good ? nil : "stream #{stream} got #{client.statuses[stream].inspect} after it"
          end
        end
        Attack.include(Helpers)

        calm = 'ENHANCE_YOUR_CALM'

        late = Expect.new('408 or RST in time', ->(o, _) { o.closed || o.resets.any? || o.statuses == [408] },
                          ->(o, _) { o.statuses.any? })
        line 18, 'slow HTTP/2', late, needs: :http2, slow: true, from: 'm'
        try('a body that never comes') do
          client = h2
          client.send(post(1))
          finish(client, stream: 1, within: patience)
        end
        try('a body byte by byte') do
          client = h2
          client.send(post(1))
          ending = Clock.now + patience
          until client.wire.closed? || client.resets.any? || client.statuses.any? || Clock.now > ending
            client.send(frame(:data, 0, 1, 'x'))
            client.pump(options.drip) { client.wire.closed? || client.resets.any? }
          end
          client.outcome
        end
        try('nothing but PING', Expect.closed_sooner_or_later) do
          client = h2
          ending = Clock.now + patience
          until client.wire.closed? || Clock.now > ending
            client.send(frame(:ping, 0, 0, '12345678'))
            client.pump(options.drip) { client.wire.closed? }
          end
          client.outcome
        end

        line 24, 'frames', Expect.goaway('PROTOCOL_ERROR'), needs: :http2
        try('bad preface', Expect.new('GOAWAY PROTOCOL_ERROR, 400 or close',
                                      ->(o, _) { o.closed })) do
          client = H2Client.new(connect(alpn: ['h2']))
          client.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
          client.pump(4)
          client.outcome
        end
        try('no SETTINGS after the preface') do
          client = H2Client.new(connect(alpn: ['h2']))
          finish(client, H2Client::PREFACE + frame(:ping, 0, 0, '12345678'))
        end
        try('larger than allowed', Expect.goaway('FRAME_SIZE_ERROR')) { h2_exchange(frame(:data, 0, 1, 'x' * 20_000)) }
        try('a header block larger than allowed', Expect.goaway('FRAME_SIZE_ERROR')) do
          h2_exchange(frame(:headers, 5, 1, 'x' * 17_000))
        end
        try('PING of 7 bytes', Expect.goaway('FRAME_SIZE_ERROR')) { h2_exchange(frame(:ping, 0, 0, '1234567')) }
        try('unknown types are ignored', Expect.answers([:good])) do
          client = h2
          client.send(frame(0x77, 0xff, 0, 'what') + frame(0x42, 0, 1, 'ever') + request(1))
          client.pump(4) { client.ended[1] || client.wire.closed? }
          client.outcome
        end

        line 25, 'rapid reset', Expect.goaway(calm), needs: :http2
        try('request, RST_STREAM') do
          client = h2
          h2_flood(client, many(100_000, 4_000)) do |from, count|
            Array.new(count) { |i| request(2 * (from + i) + 1) + frame(:rst_stream, 0, 2 * (from + i) + 1, [8].pack('N')) }.join
          end
        end

        line 26, 'resets that the client provokes', Expect.goaway(calm), needs: :http2
        { 'WINDOW_UPDATE 0' => ->(id) { H2Client.frame(:window_update, 0, id, [0].pack('N')) },
          'DATA after END_STREAM' => ->(id) { H2Client.frame(:data, 0, id, 'x') },
          'window overflow' => ->(id) { H2Client.frame(:window_update, 0, id, [0x7fff_ffff].pack('N')) },
          'PRIORITY of 4 bytes' => ->(id) { H2Client.frame(:priority, 0, id, [0].pack('N')) } }.each do |title, bad|
          try(title, Expect.goaway(calm, 'PROTOCOL_ERROR', 'FRAME_SIZE_ERROR', 'STREAM_CLOSED', 'FLOW_CONTROL_ERROR')) do
            h2_flood(h2, many(100_000, 4_000)) do |from, count|
              Array.new(count) { |i| request(2 * (from + i) + 1) + bad.call(2 * (from + i) + 1) }.join
            end
          end
        end
        try('requests that are malformed') do
          h2_flood(h2, many(100_000, 4_000)) do |from, count|
            Array.new(count) { |i| request(2 * (from + i) + 1, extra: [%w[Upper case]]) }.join
          end
        end

        line 27, 'CONTINUATION', Expect.goaway(calm), needs: :http2
        try('tiny ones without end') do
          client = h2
          client.send(request(1, flags: 1))
          h2_flood(client, many(100_000, 5_000)) { |_, count| frame(:continuation, 0, 1, H2Client.block([%w[a b]])) * count }
        end
        try('empty ones without end') do
          client = h2
          client.send(request(1, flags: 1))
          h2_flood(client, many(100_000, 5_000)) { |_, count| frame(:continuation, 0, 1) * count }
        end
        try('large ones without end', Expect.goaway(calm, 'PROTOCOL_ERROR', 'COMPRESSION_ERROR')) do
          client = h2
          client.send(request(1, flags: 1))
          piece = H2Client.block([['x' * 100, 'y' * 16_000]])
          h2_flood(client, many(10_000, 500), step: 10) { |_, count| frame(:continuation, 0, 1, piece) * count }
        end
        try('another frame in between', Expect.goaway('PROTOCOL_ERROR')) do
          h2_exchange(request(1, flags: 1) + frame(:ping, 0, 0, '12345678'))
        end
        try('of another stream', Expect.goaway('PROTOCOL_ERROR')) do
          h2_exchange(request(1, flags: 1) + frame(:continuation, 4, 3))
        end
        try('alone', Expect.goaway('PROTOCOL_ERROR')) do
          h2_exchange(frame(:continuation, 4, 1, H2Client.block(fields)))
        end
        try('a block that is never ended', Expect.new('closed or answered in time', ->(o, _) { o.closed || o.goaway }), slow: true) do
          client = h2
          client.send(request(1, flags: 1))
          client.pump(patience) { client.goaway || client.wire.closed? }
          client.outcome
        end

        line 28, 'HPACK', Expect.goaway('COMPRESSION_ERROR'), needs: :http2
        too_much = Expect.stream(431, 400, calm, 'PROTOCOL_ERROR', 'REFUSED_STREAM', 'INTERNAL_ERROR', 'CANCEL')
        limited = Expect.new('431, RST or GOAWAY ENHANCE_YOUR_CALM',
                             lambda do |o, g|
                               too_much.judge(o, g) == :pass || [calm, 'COMPRESSION_ERROR', 'PROTOCOL_ERROR'].include?(o.goaway)
                             end)
        try('bomb: one entry of 4 KB, referred to again and again', limited) do
          entry = "\x40".b + H2Client.string('x') + H2Client.string('y' * 4_000)
          bad_stream(frame(:headers, 5, 1, H2Client.block(fields) + entry + "\xbe".b * 10_000))
        end
        try('16,000 references of one byte', limited) do
          bad_stream(frame(:headers, 5, 1, H2Client.block(fields) + "\x90".b * 16_000))
        end
        try('2,000 crumbs of a cookie', limited) do
          crumbs = H2Client.block([%w[cookie a]] * 1_000)
          bad_stream(frame(:headers, 1, 1, H2Client.block(fields) + crumbs) + frame(:continuation, 4, 1, crumbs))
        end
        try('an empty name', Expect.stream('PROTOCOL_ERROR', 400)) do
          bad_stream(request(1, extra: [['', 'x']]))
        end
        { 'Huffman with padding of more than 7 bits' => "\x00\x01a\x82\x1f\xff", 'Huffman with padding of zeros' => "\x00\x01a\x81\x18",
          'Huffman with EOS' => "\x00\x01a\x84\xff\xff\xff\xff", 'index 0' => "\x80", 'index out of range' => "\xff\x80\x01",
          'a table larger than allowed' => "\x3f\xe1\xff\x7f", 'an integer without end' => "\xff#{"\xff" * 20}",
          'a string longer than the block' => "\x00\x7f\xff\x01a" }.each do |title, block|
          try(title) do
            parts = [H2Client.block(fields), block.b]
            parts.reverse! if title.start_with?('a table') # which comes first in a block
            h2_exchange(frame(:headers, 5, 1, parts.join))
          end
        end

        cheap = Expect.new("GOAWAY #{calm}, or taken cheaply", ->(o, _) { o.goaway == calm || (o.goaway.nil? && !o.closed) },
                           ->(o, _) { o.closed })
        line 29, 'flood', Expect.goaway(calm), needs: :http2
        { 'PING' => H2Client.frame(:ping, 0, 0, '12345678'), 'SETTINGS' => H2Client.frame(:settings, 0, 0, ''),
          'SETTINGS with many values' => H2Client.frame(:settings, 0, 0, H2Client.settings({ 4 => 65_535 }) * 100) }.each do |title, bytes|
          ended = Expect.new("GOAWAY #{calm} or close", ->(o, _) { o.goaway == calm || o.closed })
          try("#{title}, and the answers are not read", ended) do
            client = h2
            client.wire.socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_RCVBUF, 4_096)
            volume = { step: 5_000, mute: true, within: options.full ? 60 : 4 }
            h2_flood(client, many(10_000_000, 1_000_000), **volume) { |_, count| bytes * count }
              .tap { |o| o.note = nil if client.goaway || client.wire.closed? }
          end
        end
        { 'PRIORITY' => H2Client.frame(:priority, 0, 1, [0, 1].pack('NC')),
          'WINDOW_UPDATE 1' => H2Client.frame(:window_update, 0, 0, [1].pack('N')),
          'unknown frames' => H2Client.frame(0x42, 0, 0, ''), 'PING, read' => H2Client.frame(:ping, 0, 0, '12345678') }.each do |title, bytes|
          try(title, cheap) do
            h2_flood(h2, many(1_000_000, 20_000), step: 2_000) { |_, count| bytes * count }
          end
        end
        try('empty DATA', cheap) do
          client = h2
          client.send(post(1))
          h2_flood(client, many(1_000_000, 20_000), step: 2_000) { |_, count| frame(:data, 0, 1) * count }
        end

        line 30, 'window', Expect.survives('RST after the stall limit, memory bounded'), needs: :http2
        try('zero, and many requests for a large answer', Expect.new('every stream is given up in time',
                                                                     ->(o, _) { o.closed || o.resets.size >= 20 }),
            needs: :h2_large, slow: true) do
          client = h2({ 4 => 0 })
          client.send(Array.new(60) { |i| request(2 * i + 1, list: fields('GET', options.large)) }.join)
          client.pump(patience_for(STALL)) { client.wire.closed? || client.resets.size == 60 }
          client.outcome
        end
        try('one byte at a time', Expect.new('given up in time', ->(o, _) { o.closed || o.resets.any? }), needs: :h2_large, slow: true) do
          client = h2({ 4 => 0 })
          client.replenish = false
          client.send(request(1, list: fields('GET', options.large)))
          finish = Clock.now + patience_for(STALL)
          until client.wire.closed? || client.resets.any? || Clock.now > finish
            client.send(frame(:window_update, 0, 1, [1].pack('N')))
            client.pump(0.05) { client.resets.any? }
          end
          client.outcome(note: "#{client.bytes[1]} bytes came")
        end

        line 31, 'window', Expect.error('FLOW_CONTROL_ERROR'), needs: :http2
        try('of the connection beyond 2**31 - 1', Expect.goaway('FLOW_CONTROL_ERROR')) do
          h2_exchange(frame(:window_update, 0, 0, [0x7fff_ffff].pack('N')))
        end
        try('of a stream beyond 2**31 - 1') do
          h2_exchange(post(1) + frame(:window_update, 0, 1, [0x7fff_ffff].pack('N')), stream: 1)
        end
        try('by SETTINGS beyond 2**31 - 1', Expect.error('FLOW_CONTROL_ERROR')) do
          h2_exchange(post(1) + frame(:window_update, 0, 1, [0x7fff_0000].pack('N')) +
                      frame(:settings, 0, 0, H2Client.settings({ 4 => 0x7fff_ffff })), stream: 1)
        end
        try('WINDOW_UPDATE 0 of the connection', Expect.goaway('PROTOCOL_ERROR')) do
          h2_exchange(frame(:window_update, 0, 0, [0].pack('N')))
        end
        try('WINDOW_UPDATE 0 of a stream', Expect.error('PROTOCOL_ERROR')) do
          h2_exchange(post(1) + frame(:window_update, 0, 1, [0].pack('N')), stream: 1)
        end
        try('more DATA than it allows', Expect.new('FLOW_CONTROL_ERROR, or consumed in bounds',
                                                   lambda do |o, _|
                                                     [*o.resets, *o.goaway].include?('FLOW_CONTROL_ERROR') || o.statuses.any? || !o.closed
                                                   end, ->(o, _) { o.closed })) do
          client = h2
          client.send(post(1))
          h2_flood(client, 4 << 20, step: 16_000, within: 8) { frame(:data, 0, 1, 'x' * 16_000) * 8 }
        end

        line 32, 'stream ids', Expect.goaway('PROTOCOL_ERROR'), needs: :http2
        try('even') { h2_exchange(request(2)) }
        try('lower than the last', Expect.goaway('PROTOCOL_ERROR', 'STREAM_CLOSED')) do
          h2_exchange(request(5) + request(3))
        end
        try('used again', Expect.goaway('PROTOCOL_ERROR', 'STREAM_CLOSED')) do
          client = h2
          finish(client, request(1), stream: 1)
          finish(client, request(1))
        end
        try('HEADERS on stream 0') { h2_exchange(request(0)) }
        try('DATA on stream 0') { h2_exchange(frame(:data, 0, 0, 'x')) }
        try('SETTINGS on a stream') { h2_exchange(frame(:settings, 0, 1)) }
        try('PING on a stream') { h2_exchange(frame(:ping, 0, 1, '12345678')) }
        try('DATA on an idle stream') { h2_exchange(frame(:data, 0, 5, 'x')) }
        try('WINDOW_UPDATE on an idle stream') { h2_exchange(frame(:window_update, 0, 5, [1].pack('N'))) }
        try('PUSH_PROMISE by a client') do
          h2_exchange(post(1) + frame(:push_promise, 4, 1, [2].pack('N') + H2Client.block(fields)))
        end
        try('RST_STREAM on an idle stream') { h2_exchange(frame(:rst_stream, 0, 5, [8].pack('N'))) }
        ignored = Expect.new('RST or GOAWAY PROTOCOL_ERROR, or ignored',
                             ->(o, g) { [o.goaway, *o.resets].include?('PROTOCOL_ERROR') || o.statuses == [g] })
        try('a stream that depends on itself', ignored) do
          h2_exchange(frame(:headers, 0x25, 1, [1, 1].pack('NC') + H2Client.block(fields)), stream: 1)
        end
        try('the 101st at a time', Expect.stream('REFUSED_STREAM'), needs: :h2_sink) do
          client = h2
          most = client.settings.fetch(3, 100)
          h2_flood(client, most + 20, step: 20, within: 5) do |from, count|
            Array.new(count) { |i| request(2 * (from + i) + 1, flags: 4, list: fields('POST')) }.join
          end
        end

        line 33, 'SETTINGS', Expect.goaway('PROTOCOL_ERROR'), needs: :http2
        try('a length that is no multiple of 6', Expect.goaway('FRAME_SIZE_ERROR')) do
          h2_exchange(frame(:settings, 0, 0, '12345'))
        end
        try('ACK with a body', Expect.goaway('FRAME_SIZE_ERROR')) { h2_exchange(frame(:settings, 1, 0, '123456')) }
        try('ENABLE_PUSH 2') { h2_exchange(frame(:settings, 0, 0, H2Client.settings({ 2 => 2 }))) }
        try('MAX_FRAME_SIZE 1') { h2_exchange(frame(:settings, 0, 0, H2Client.settings({ 5 => 1 }))) }
        try('MAX_FRAME_SIZE 2**24') { h2_exchange(frame(:settings, 0, 0, H2Client.settings({ 5 => 1 << 24 }))) }
        try('INITIAL_WINDOW_SIZE 2**31', Expect.goaway('FLOW_CONTROL_ERROR')) do
          h2_exchange(frame(:settings, 0, 0, H2Client.settings({ 4 => 1 << 31 })))
        end
        try('ours are never acknowledged', Expect.goaway('SETTINGS_TIMEOUT'), slow: true) do
          client = h2 { |one| one.acknowledge = false }
          client.pump(patience) { client.goaway && client.wire.closed? }
          client.outcome
        end

        line 34, 'request', Expect.stream('PROTOCOL_ERROR', 400), needs: :http2
        # What belongs to HTTP/1: to be refused, but not understood by anybody either.
        strict = @expect
        ignorable = Expect.new(strict.text, ->(o, g) { strict.judge(o, g) == :pass },
                               ->(o, g) { strict.judge(o, g) == :differs || o.statuses == [g] })
        { 'upper case in a name' => [%w[X-Upper case]], 'connection' => [%w[connection keep-alive]], 'te: gzip' => [%w[te gzip]],
          'transfer-encoding' => [%w[transfer-encoding chunked]], 'keep-alive' => [%w[keep-alive 5]], 'upgrade' => [%w[upgrade h2c]],
          'CR in a value' => [%W[x a\rb]], 'LF in a value' => [%W[x a\nb]], 'NUL in a value' => [%W[x a\0b]],
          'CRLF and a header in a value' => [%W[x a\r\ny:z]],
          'a colon in a name' => [%w[x:y z]], 'a space in a name' => [['x y', 'z']],
          'a pseudo field after others' => [%w[x y], [':path', '/']], ':path twice' => [[':path', '/']],
          'an unknown pseudo field' => [[':what', 'x']],
          ':status in a request' => [[':status', '200']], 'host is another than :authority' => [%w[host other.example]],
          'content-length twice' => [%w[content-length 0], %w[content-length 5]],
          'content-length: +5' => [%w[content-length +5]] }.each do |title, extra|
          try(title, extra.first.first.match?(/\A(connection|te|keep-alive|upgrade|transfer-encoding)\z/) ? ignorable : @expect) do
            bad_stream(request(1, extra: extra))
          end
        end
        { 'no :method' => ':method', 'no :scheme' => ':scheme', 'no :path' => ':path' }.each do |title, name|
          try(title) { h2_exchange(request(1, list: fields.reject { |field| field[0] == name }), stream: 1) }
        end
        try('an empty :path') { h2_exchange(request(1, list: fields('GET', '')), stream: 1) }
        try('a :path without a slash', Expect.stream('PROTOCOL_ERROR', 400, 404)) do
          h2_exchange(request(1, list: fields('GET', 'x')), stream: 1)
        end
        try('LF in :path') { h2_exchange(request(1, list: fields('GET', "/\nx")), stream: 1) }
        try('a space in :path', Expect.stream('PROTOCOL_ERROR', 400, 404)) do
          h2_exchange(request(1, list: fields('GET', '/a b')), stream: 1)
        end
        try('CRLF in :method', Expect.stream('PROTOCOL_ERROR', 400, 501)) do
          h2_exchange(request(1, list: fields("GET / HTTP/1.1\r\nx: y\r\n")), stream: 1)
        end
        try('an unknown :method', Expect.stream('PROTOCOL_ERROR', 400, 501, 405)) do
          h2_exchange(request(1, list: fields('FROBNICATE')), stream: 1)
        end
        try('TRACE', Expect.stream('PROTOCOL_ERROR', 400, 501, 405)) do
          h2_exchange(request(1, list: fields('TRACE')), stream: 1)
        end
        try('CONNECT', Expect.stream('PROTOCOL_ERROR', 400, 501, 405)) do
          h2_exchange(request(1, list: [[':method', 'CONNECT'], [':authority', target.authority]]), stream: 1)
        end
        try('less DATA than content-length') do
          h2_exchange(post(1, extra: [%w[content-length 5]]) + frame(:data, 1, 1, 'x'), stream: 1)
        end
        try('more DATA than content-length') do
          h2_exchange(post(1, extra: [%w[content-length 5]]) + frame(:data, 1, 1, 'x' * 9), stream: 1)
        end
        try('no DATA, but content-length') do
          h2_exchange(request(1, list: fields('POST'), extra: [%w[content-length 5]]), stream: 1)
        end
        try('pseudo fields in trailers') do
          h2_exchange(post(1) + frame(:headers, 5, 1, H2Client.block([[':path', '/']])), stream: 1)
        end

        line 35, 'padding', Expect.goaway('PROTOCOL_ERROR'), needs: :http2
        try('as long as the payload, in DATA') do
          h2_exchange(post(1) + frame(:data, H2Client::PADDED, 1, "\x05abcd"))
        end
        try('as long as the payload, in HEADERS') do
          h2_exchange(frame(:headers, 5 | H2Client::PADDED, 1, "\xff".b + H2Client.block(fields)))
        end
        try('of 255 bytes on DATA of one', Expect.new('flow control counts it: FLOW_CONTROL_ERROR, or taken in bounds',
                                                     ->(o, _) { o.goaway.nil? || %w[FLOW_CONTROL_ERROR ENHANCE_YOUR_CALM].include?(o.goaway) })) do
          client = h2
          client.send(post(1))
          h2_flood(client, many(100_000, 4_000), step: 200) do |_, count|
            frame(:data, H2Client::PADDED, 1, "\xffx".b + "\0" * 255) * count
          end
        end

        line 36, 'GOAWAY', Expect.answers([:good]), needs: :http2
        try('by the client, with a request in progress') do
          client = h2
          client.send(request(1) + frame(:goaway, 0, 0, [0, 0].pack('NN')))
          client.pump(4) { client.ended[1] || client.wire.closed? }
          client.outcome
        end
        try('ours has the last stream that was taken', Expect.goaway('PROTOCOL_ERROR')) do
          client = h2
          finish(client, request(1) + request(3), stream: 3)
          finish(client, frame(:data, 0, 0, 'x')).tap do |o|
            o.problem = "last stream #{client.last_id}, not 3" if client.goaway && client.last_id != 3
          end
        end
      end
    end
  end
end
