# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/tls'
require 'polyphony/http'
require 'stringio'

# Conversations made up by chance: requests of all kinds, cut anywhere, one behind the other or one by one, over plain sockets
# and TLS. What has to come back is known before. POLYPHONY_SEED repeats one that failed.
class TestConversations < Polyphony::TestCase
  on_every_driver

  CLIENTS = 6
  ROUNDS = 40
  SIZES = [0, 1, 5, 2047, 2048, 4096, 16_384, 16_385, 70_000].freeze
  Exchange = Struct.new(:request, :answer, :last)

  def setup
    super
    @seed = Integer(ENV.fetch('POLYPHONY_SEED', rand(1 << 30)))
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  # Tells what it has got, and does what it is told.
  def handle(request)
    body = request.read if request['x-read'] != 'no'
    sleep 0.001 if request['x-wait']
    Thread.current[:left] = 1 if request['x-leave'] # keeps the fiber
    text = "#{request.verb} #{request.target} #{request['x-pad'].to_s.bytesize} #{body.to_s.sum}\n"
    text += 'z' * request['x-size'].to_i
    return stream(request, text) if request['x-stream']

    request.respond(text, { 'x-tag' => request['x-tag'] }, status: (request['x-status'] || 200).to_i)
  end

  def stream(request, text)
    request.send_headers('x-tag' => request['x-tag'])
    text.scan(/.{1,5000}/m) { |piece| request.send_chunk(piece) }
    request.finish
  end

  # @return [Exchange]
  def exchange(random, number)
    verb = %w[GET GET GET GET HEAD POST PUT DELETE].sample(random: random)
    fields = ['Host: a', "X-Tag: t#{number}"]
    pad = random.rand(6).zero? ? random.rand(6000) : random.rand(20)
    fields << "X-Pad: #{'p' * pad}" if pad.positive?
    size = random.rand(4).zero? ? SIZES.sample(random: random) : 0
    fields << "X-Size: #{size}" if size.positive?
    %w[wait leave].each { |name| fields << "X-#{name}: 1" if random.rand(12).zero? }
    stream = random.rand(8).zero?
    fields << 'X-Stream: 1' if stream
    body, framed = body(random, verb, fields)
    close = random.rand(25).zero?
    fields << 'Connection: close' if close
    target = "/#{number}#{"?q=#{number}" if random.rand(2).zero?}"
    head = "#{verb} #{target} HTTP/1.1\r\n#{fields.shuffle(random: random).join("\r\n")}\r\n\r\n"
    text = "#{verb} #{target} #{pad} #{body.sum}\n#{'z' * size}"
    Exchange.new(head + framed, ["t#{number}", verb == 'HEAD' ? '' : text], close)
  end

  # @return [Array(String, String)] what the handler reads, and what is sent
  def body(random, verb, fields)
    return ['', ''] unless %w[POST PUT].include?(verb)

    body = random.bytes(SIZES.sample(random: random))
    read = random.rand(4).positive?
    fields << 'X-Read: no' unless read
    if random.rand(2).zero?
      fields << "Content-Length: #{body.bytesize}"
      framed = body
    else
      fields << 'Transfer-Encoding: chunked'
      framed = body.scan(/.{1,3000}/mn).map { |piece| "#{piece.bytesize.to_s(16)}\r\n".b + piece + "\r\n" }.join.b << "0\r\n\r\n"
    end
    [read ? body : '', framed]
  end

  def say(client, random, bytes)
    until bytes.empty?
      count = [1, 3, 40, 500, 4096, 5000, 20_000, 100_000].sample(random: random)
      client.write(bytes.slice!(0, count))
      [-> {}, -> { snooze }, -> { sleep 0.002 }].sample(random: random).call
    end
  end

  # @return [Array(String, String)] tag and body
  def answer(client, head)
    fields = {}
    client.gets or return
    while (line = client.gets) && line != "\r\n"
      fields.store(*line.chomp.split(': ', 2))
    end
    return [fields['x-tag'], ''] if head
    return [fields['x-tag'], client.read(fields['content-length'].to_i)] if fields['content-length']

    [fields['x-tag'], chunks(client)]
  end

  def chunks(client)
    text = +''
    while (size = client.gets.to_i(16)).positive?
      text << client.read(size)
      client.gets
    end
    client.gets
    text
  end

  # Several requests are said by one fiber while another listens: who does not listen is not served for ever.
  def converse(random)
    number = 0
    while number < ROUNDS
      client = yield
      last = false
      until last || number >= ROUNDS
        said = Array.new(random.rand(3).zero? ? random.rand(1..12) : 1) { exchange(random, number += 1) }
        cut = said.index(&:last)
        said = said.take(cut + 1) if cut
        last = !cut.nil? || random.rand(10).zero? # hangs up, then
        speaker = spin { say(client, random, said.map(&:request).join.b) }
        said.each do |one|
          assert_equal one.answer, answer(client, one.request.start_with?('HEAD')), "seed #{@seed}: #{one.request[0, 200].inspect}"
        end
        speaker.await
        sleep 0.003 if random.rand(4).zero?
      end
      part(client, random)
    end
  end

  def part(client, random)
    client.close_write if client.is_a?(BasicSocket) && random.rand(2).zero?
    client.close
  end

  def all_converse(&connect)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Array.new(CLIENTS) { |i| spin { converse(Random.new(@seed + i), &connect) } }.each(&:await)
    snooze until @server.connections.empty?
    assert_equal '', @log.string, "seed #{@seed}, after #{Process.clock_gettime(Process::CLOCK_MONOTONIC) - began} s"
  end

  def serve(address, **options)
    @log = StringIO.new
    @server = Polyphony::HTTP::Server.new(address, log: @log, limits: { keep_alive: 60, header_time: 60 }, **options) { |request| handle(request) }
    @server.start
  end

  def test_over_plain_sockets
    heavy
    serve('http://127.0.0.1:0')
    all_converse { track(TCPSocket.new('127.0.0.1', @server.port)) }
  end

  def test_over_tls
    heavy
    identity = Polyphony::TLS.identity('127.0.0.1')
    serve('https://127.0.0.1:0', tls: Polyphony::HTTP::TLS.new(cert: identity.cert, key: identity.key))
    all_converse do
      socket = track(TCPSocket.new('127.0.0.1', @server.port))
      OpenSSL::SSL::SSLSocket.new(socket, Polyphony::TLS.client).tap do |client|
        client.sync_close = true
        client.connect
      end
    end
  end
end
