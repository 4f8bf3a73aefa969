# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Attacks on the framing and the limits of HTTP/1: lines 1 to 22.
      module HTTP1
        extend Catalogue

        # Bytes that have no place in a line.
        CONTROLS = { 'NUL' => "\0", 'a bare CR' => "\r", 'a bare LF' => "\n", 'SOH' => "\x01", 'VT' => "\v", 'FF' => "\f",
                     'ESC' => "\e", 'DEL' => "\x7f" }.freeze

        # --- 1 to 5: lines ----------------------------------------------------------------------

        line 1, 'Host', Expect.refused(400, lenient: true)
        bytes('none', Expect.refused(400)) { "GET #{target.path} HTTP/1.1\r\n\r\n" }
        { 'empty' => [''], 'two' => %w[a b], 'two equal ones' => %w[a a], 'a list' => ['a, b'], 'with a user' => ['user@host'],
          'with a path' => ['host/path'], 'with a space' => ['a b'], 'with a query' => ['a?b'], 'half an IPv6 address' => ['[::1'],
          'a port that is none' => ['a:b'] }.each do |title, values|
          bytes(title, values.size > 1 ? Expect.refused(400) : @expect) do
            "GET #{target.path} HTTP/1.1\r\n#{values.map { |value| "Host: #{value}\r\n" }.join}\r\n"
          end
        end

        line 2, 'header line', Expect.refused(400)
        bytes('a space before the colon') { get("X-Name : value\r\n") }
        bytes('Content-Length with a space before the colon') do
          head('POST', "Content-Length : 5\r\n") + "hello#{second}"
        end
        bytes('a leading space on the first') { "GET #{target.path} HTTP/1.1\r\n X: y\r\n#{host}\r\n" }
        bytes('folded with a space') { get("X-Name: a\r\n b\r\n") }
        bytes('folded with a tab') { get("X-Name: a\r\n\tb\r\n") }
        bytes('no colon', Expect.refused(400, lenient: true)) { get("X-Name\r\n") }
        bytes('an empty name') { get(": value\r\n") }
        ['[', "\u00e9", "\t", '(', '"', '{', '@', "\x7f", "\0"].each do |char|
          bytes("#{char.inspect} in a name", Expect.refused(400, lenient: true)) { get("X#{char}Name: value\r\n").b }
        end

        line 3, 'control bytes', Expect.refused(400)
        CONTROLS.each do |title, char|
          bytes("#{title} in a value", Expect.refused(400, lenient: !%w[NUL].include?(title))) { get("X-Name: a#{char}b\r\n") }
          bytes("#{title} in the target", Expect.refused(400, lenient: !%w[NUL].include?(title))) do
            "GET #{target.path}#{char}b HTTP/1.1\r\n#{host}\r\n"
          end
        end
        bytes('a space in the target') { "GET #{target.path} b HTTP/1.1\r\n#{host}\r\n" }
        bytes('a tab for the space') { "GET\t#{target.path}\tHTTP/1.1\r\n#{host}\r\n" }

        line 4, 'line ends', Expect.refused(400)
        bytes('LF only', Expect.refused(400, lenient: true)) { get("X: y\r\n").delete("\r") }
        bytes('LF after one header', Expect.refused(400, lenient: true)) { get("X: y\n") }
        bytes('LF for the empty line', Expect.refused(400, lenient: true)) do
          "GET #{target.path} HTTP/1.1\r\n#{host}\n"
        end
        bytes('CR only') { get("X: y\r\n").delete("\n") }
        bytes('CR CR LF', Expect.refused(400, lenient: true)) { get("X: y\r\r\n") }

        line 5, 'version', Expect.refused(400)
        %w[HTTP/1 HTTP/01.1 http/1.1 HTTP/1.1x HTTP/1.10 HTTP/11.1 HTTP/1,1 ICAP/1.0 HTTP/].each do |version|
          bytes(version, Expect.refused(400, 505, lenient: true)) { "GET #{target.path} #{version}\r\n#{host}\r\n" }
        end
        bytes('none', Expect.refused(400, lenient: true)) { "GET #{target.path}\r\n#{host}\r\n" }
        %w[HTTP/2.0 HTTP/3.7 HTTP/0.9].each do |version|
          bytes(version, Expect.refused(505)) { "GET #{target.path} #{version}\r\n#{host}\r\n" }
        end

        # --- 6 to 13: framing -------------------------------------------------------------------

        line 6, 'Content-Length and Transfer-Encoding', Expect.refused(400)
        both = ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"]
        bytes('in this order') { head('POST', both.join) + "0\r\n\r\n#{second}" }
        bytes('in the other order') { head('POST', both.reverse.join) + "0\r\n\r\n#{second}" }

        line 7, 'Content-Length', Expect.refused(400)
        bytes('twice, different') { head('POST', "Content-Length: 5\r\nContent-Length: 6\r\n") + "hello#{second}" }
        bytes('twice, equal') { head('POST', "Content-Length: 5\r\nContent-Length: 5\r\n") + "hello#{second}" }
        ['5, 6', '5, 5', '+5', '-0', '-5', '0x5', '1_0', '5 5', '', '5;', '5.0', '5e0', "\u0665"].each do |value|
          bytes(value.empty? ? 'empty' : value) { head('POST', "Content-Length: #{value}\r\n").b + "hello#{second}" }
        end
        bytes('20 digits', Expect.refused(400, 413)) do
          head('POST', "Content-Length: #{'9' * 20}\r\n") + "hello#{second}"
        end
        bytes('2**64 + 5', Expect.refused(400, 413)) do
          head('POST', "Content-Length: #{2**64 + 5}\r\n") + "hello#{second}"
        end
        bytes('too much, but a number', Expect.refused(413)) { head('POST', "Content-Length: 999999999999\r\n") }

        line 8, 'Transfer-Encoding', Expect.refused(400, 501)
        ['xchunked', "\vchunked", "chunked\f", "chunked\0", '', 'identity', 'chunked, chunked', 'chunked, gzip', 'gzip', '"chunked"',
         'chunked;q=1', 'chunked,', ',chunked'].each do |value|
          expect = value.include?(',') ? Expect.refused(400, 501, lenient: true) : @expect
          bytes(value.empty? ? 'empty' : value.inspect[1..-2], expect) do
            chunked("0\r\n\r\n#{second}").sub(': chunked', ": #{value}")
          end
        end
        bytes('twice') { chunked("0\r\n\r\n#{second}", "Transfer-Encoding: chunked\r\n") }
        bytes('twice, one is identity') { chunked("0\r\n\r\n#{second}", "Transfer-Encoding: identity\r\n") }
        bytes('with HTTP/1.0') { head('POST', "Transfer-Encoding: chunked\r\n", version: '1.0') + "0\r\n\r\n#{second}" }
        bytes('Transfer_Encoding is another header', Expect.answers(%i[any good])) do
          head('POST', "Transfer_Encoding: chunked\r\nContent-Length: 3\r\n") + "0\r\n#{second}"
        end

        line 9, 'chunk', Expect.refused_body(400)
        ['0x5', '+5', '-1', '1_0', ' 5', '5 ', '', '10000000000000005', 'G', '5,5', '0 0'].each do |size|
          bytes("size #{size.inspect}") { chunked("#{size}\r\nhello\r\n0\r\n\r\n#{second}") }
        end
        bytes('more data than said') { chunked("5\r\nhello!\r\n0\r\n\r\n#{second}") }
        bytes('less data than said') { chunked("6\r\nhello\r\n0\r\n\r\n#{second}") }
        bytes('no CRLF after the data') { chunked("5\r\nhello0\r\n\r\n#{second}") }
        bytes('LF after the size', Expect.refused_body(400, lenient: true)) { chunked("5\nhello\r\n0\r\n\r\n#{second}") }
        bytes('CR after the size') { chunked("5\rhello\r\n0\r\n\r\n#{second}") }
        bytes('LF after the data', Expect.refused_body(400, lenient: true)) { chunked("5\r\nhello\n0\r\n\r\n#{second}") }
        bytes('CR after the data') { chunked("5\r\nhello\r0\r\n\r\n#{second}") }
        bytes('LF after the last', Expect.refused_body(400, lenient: true)) { chunked("5\r\nhello\r\n0\n\n#{second}") }

        bytes('more of them than a body may have', Expect.refused_body(413, lenient: true)) do
          chunked("100000\r\n#{'x' * 0x100000}\r\n" * 17 + "0\r\n\r\n#{second}")
        end

        line 10, 'chunk extension', Expect.refused_body(400)
        bytes('64 KB', Expect.refused_body(400, lenient: true)) do
          chunked("5;#{'a' * 65_536}\r\nhello\r\n0\r\n\r\n#{second}")
        end
        bytes('with NUL', Expect.refused_body(400, lenient: true)) { chunked("5;a=\0\r\nhello\r\n0\r\n\r\n#{second}") }
        bytes('with a lone LF', Expect.refused_body(400, lenient: true)) { chunked("5;a\nb\r\nhello\r\n0\r\n\r\n#{second}") }
        bytes('with a lone CR', Expect.refused_body(400, lenient: true)) { chunked("5;a\rb\r\nhello\r\n0\r\n\r\n#{second}") }
        bytes('endless ;', Expect.refused_body(400)) { chunked("5#{';' * many(10 << 20, 1 << 20)}") }
        try('a small one on each of many chunks', Expect.refused_body(400, lenient: true)) do
          exchange(chunked("1;#{'x' * 100}\r\na\r\n" * many(100_000, 1_000) + "0\r\n\r\n#{second}"))
        end

        line 11, 'many chunks', Expect.answers(%i[any good], [400])
        try('of one byte') do
          exchange(chunked("1\r\na\r\n" * many(1_000_000, 50_000) + "0\r\n\r\n#{second}"), within: 30)
        end

        line 12, 'trailers', Expect.refused_body(431)
        bytes('200 KB', Expect.refused_body(431, lenient: true)) { chunked("0\r\nX: #{'a' * 200_000}\r\n\r\n#{second}") }
        bytes('10,000 fields', Expect.refused_body(431, lenient: true)) do
          chunked("0\r\n#{"X: y\r\n" * 10_000}\r\n#{second}")
        end
        bytes('without a colon', Expect.refused_body(400, lenient: true)) { chunked("0\r\nnonsense\r\n\r\n#{second}") }
        ['Content-Length: 100', 'Transfer-Encoding: chunked', 'Host: other', 'Authorization: Basic eDp5'].each do |field|
          bytes("#{field[/[^:]+/]} is ignored", Expect.answers(%i[any good])) { chunked("0\r\n#{field}\r\n\r\n#{second}") }
        end

        line 13, 'body nobody asked for', Expect.answers(%i[any good])
        %w[GET HEAD OPTIONS DELETE].each do |verb|
          bytes("with #{verb}", verbs: [verb]) { head(verb, "Content-Length: 5\r\n") + "hello#{second}" }
          bytes("with #{verb}, chunked", verbs: [verb]) do
            head(verb, "Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n#{second}"
          end
        end
        bytes('Content-Length: 0 and a body', Expect.answers([:good, 400], [:good, 501])) do
          get("Content-Length: 0\r\n") + "hello\r\n\r\n"
        end
        bytes('Content-Length: 0 and a request', Expect.answers(%i[any good])) do
          head('POST', "Content-Length: 0\r\n") + second
        end

        # --- 14 to 17: sizes, methods, expectations, pipelines ------------------------------------

        line 14, 'size', Expect.refused(431)
        bytes('target of 100 KB', Expect.refused(414)) { get(path: "/#{'a' * 100_000}") }
        bytes('header of 200 KB') { get("X: #{'a' * 200_000}\r\n") }
        bytes('header name of 200 KB', Expect.refused(431, 400)) { get("#{'a' * 200_000}: x\r\n") }
        bytes('10,000 headers') { get(Array.new(10_000) { |i| "X-#{i}: y\r\n" }.join) }
        bytes('cookie of 64 KB') { get("Cookie: a=#{'b' * 65_536}\r\n") }
        bytes('60 KB of blanks in a list', Expect.answers([:good], [431])) do
          get("Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: a#{' ' * 60_000}b,\r\n")
        end
        bytes('method of 100 KB', Expect.refused(400, 501, 414)) { head('A' * 100_000) }
        bytes('endless empty lines before the request', Expect.refused(400)) { "\r\n" * many(1_000_000, 20_000) }

        line 15, 'method', Expect.refused(501)
        bytes('unknown', Expect.refused(501, 405, 400)) { head('FROBNICATE') }
        bytes('lower case', Expect.refused(501, 405, 400)) { head('get') }
        bytes('with a bad byte', Expect.refused(400, 501)) { head("GE\x01T") }
        bytes('CONNECT', Expect.refused(501, 405, 400)) { "CONNECT #{target.authority} HTTP/1.1\r\n#{host}\r\n" }
        bytes('TRACE', Expect.refused(405, 501)) { head('TRACE', "X-Secret: check\r\n") }
        bytes('GET *', Expect.refused(400, lenient: true)) { get(path: '*') }
        bytes('a target without a slash', Expect.refused(400, lenient: true)) { get(path: 'index.html') }
        bytes('OPTIONS *', Expect.answers([200], [204], [:good])) do
          head('OPTIONS', "Connection: close\r\n", path: '*')
        end

        line 16, 'Expect', Expect.answers([:any])
        try('100-continue, and the body at once') do
          exchange(head('POST', "Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n") + 'hello')
        end
        try('100-continue, and never a body', Expect.closed('answer or 408, and close'), slow: true) do
          wire = connect
          wire.send(head('POST', "Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n"))
          wait_for_end(wire)
        end
        bytes('something unknown', Expect.refused(417, lenient: true)) do
          head('POST', "Content-Length: 5\r\nExpect: tea\r\n")
        end
        try('100-continue with HTTP/1.0') do
          outcome = exchange(head('POST', "Content-Length: 5\r\nExpect: 100-continue\r\n", version: '1.0') + 'hello')
          outcome.problem = "answers #{outcome.infos.join(' ')} to an HTTP/1.0 client" if outcome.infos.any?
          outcome
        end

        line 17, 'pipeline', Expect.survives('reading stops, others are served')
        try('nobody reads the answers') do
          wire = connect
          bytes = get("X-Padding: #{'a' * 900}\r\n") * many(10_000, 4_000)
          sent = wire.send(bytes, within: options.full ? 10 : 1, mute: true)
          Outcome.new(note: "took #{sent} of #{bytes.bytesize} bytes", closed: wire.closed?)
        end
        try('and then they are read', Expect.survives('good answers only')) do
          wire = connect
          count = many(10_000, 300)
          wire.send(get * count, within: 30)
          wire.read(10) { Answers.new(wire.received).finals.size >= count } unless wire.closed?
          statuses = Answers.new(wire.received, ended: wire.closed?).statuses
          bad = statuses.reject { |status| status == options.good }
          Outcome.new(statuses: statuses, closed: wire.closed?, problem: bad.any? ? "answers #{bad.tally}" : nil)
        end

        # --- 18 to 22: slow clients, clients that go, headers of proxies --------------------------

        line 18, 'slow', Expect.refused(408), slow: true
        try('request line byte by byte') { drip("GET /#{'a' * 4_000} HTTP/1.1\r\n".each_char) }
        try('a header line at a time') do
          wire = connect
          wire.send("GET #{target.path} HTTP/1.1\r\n#{host}")
          drip((1..).lazy.map { |i| "X-#{i}: y\r\n" }.each, wire: wire)
        end
        try('a head that is never ended', Expect.refused_or_closed(408)) do
          wire = connect
          wire.send("GET #{target.path} HTTP/1.1\r\n")
          wait_for_end(wire)
        end
        try('the preface of HTTP/2 byte by byte', Expect.refused_or_closed(400, 408)) do
          drip(Connection::PREFACE.each_char)
        end
        try('body byte by byte', Expect.new('408 and close, or answered without the body',
                                            ->(o, _) { o.statuses.size == 1 && (o.statuses == [408] ? o.closed : true) })) do
          wire = connect
          wire.send(head('POST', "Content-Length: 100000\r\n"))
          drip(['a'].cycle, wire: wire)
        end
        try('chunks byte by byte', Expect.new('408 and close, or answered without the body',
                                              ->(o, _) { o.statuses.size == 1 && (o.statuses == [408] ? o.closed : true) })) do
          wire = connect
          wire.send(chunked(''))
          drip(%W[1\r\na\r\n].cycle, wire: wire)
        end

        line 19, 'large answer', Expect.closed('closed at the write stall'), slow: true, needs: :large
        try('nobody reads it') do
          wire = connect
          wire.socket.setsockopt(::Socket::SOL_SOCKET, ::Socket::SO_RCVBUF, 4_096)
          wire.send(get(path: options.large), mute: true)
          finish = Clock.now + patience
          sleep 0.05 until wire.reset_seen? || Clock.now > finish
          # Had it been given up, then what is left is what the kernels hold.
          wire.read(5) { wire.received.bytesize > 64 << 20 }
          Outcome.new(closed: wire.closed?, note: "#{wire.received.bytesize} bytes came")
        end

        line 20, 'client goes', Expect.survives
        { 'in the request line' => -> { "GET #{target.path}" }, 'in the head' => -> { get("X: y\r\n").delete_suffix("\r\n") },
          'in the body' => -> { head('POST', "Content-Length: 100\r\n") + 'abc' }, 'after the request' => -> { get } }.each do |state, bytes|
          %i[close reset].each do |way|
            try("#{way == :close ? 'closes' : 'resets'} #{state}") do
              many(100, 5).times do
                wire = connect
                wire.send(instance_exec(&bytes))
                wire.public_send(way)
              end
              Outcome.new(note: 'gone')
            end
          end
        end
        %i[close reset].each do |way|
          try("#{way == :close ? 'closes' : 'resets'} in the answer", needs: :large) do
            wire = connect
            wire.send(get(path: options.large), mute: true)
            wire.read(3) { wire.received.bytesize > 1_000 }
            wire.public_send(way)
            Outcome.new(note: "after #{wire.received.bytesize} bytes")
          end
        end
        try('half-closes after the request', Expect.answers([:good])) do
          wire = connect
          wire.send(get)
          next Outcome.new(statuses: [options.good], note: 'TLS has no half-close') if target.tls

          look(wire.half_close)
        end

        line 21, 'headers of proxies', Expect.answers([:good])
        try('X-Forwarded-For and X_Forwarded_For') do
          exchange(get("X-Forwarded-For: 192.0.2.1\r\nX_Forwarded_For: 192.0.2.66\r\nConnection: close\r\n")).tap do |outcome|
            outcome.problem = 'the one with underscores came through' if outcome.bytes.include?('192.0.2.66')
          end
        end
        bytes('a PROXY line before the second request', Expect.answers([:good, 400])) do
          get + "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n#{second}"
        end
        bytes('a PROXY line that was not agreed upon', Expect.refused(400)) do
          "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n#{second}"
        end
      end
    end
  end
end
