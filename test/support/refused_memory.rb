# frozen_string_literal: true

# For a process with failing_calls.so: each request for memory that the web server and its libraries make for a client is refused, one
# after the other. That client may get an error, or lose its connection; the next one gets right answers from the same server.
require 'fiddle'
require 'socket'
require 'stringio'
require 'polyphony'
require 'polyphony/http'
require_relative 'http2_client'

module RefusedMemory
  LIBRARY = Fiddle.dlopen(nil)
  REFUSE = Fiddle::Function.new(LIBRARY['failing_calls_refuse_memory'], [Fiddle::TYPE_LONG], Fiddle::TYPE_VOID)
  LEFT = Fiddle::Function.new(LIBRARY['failing_calls_memory_left'], [], Fiddle::TYPE_LONG)
  BODY = Random.new(1).bytes(20_000).freeze
  TEXT = 'some words that become shorter when they come again, ' * 20

  class << self
    def run(client)
      server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new) { |request| answer(request) }.start
      ask = -> { Polyphony::CancelScope.move_on_after(30, :hangs) { public_send(client, server.port) } }
      right = ask.call
      count = (1..).find { |number| untouched?(number, ask, right) }
      puts "#{count - 1} requests of #{client}, #{right.inspect}"
    ensure
      server&.stop(within: 0)
    end

    # @return [Boolean] whether there were not so many requests
    def untouched?(number, ask, right)
      REFUSE.call(number)
      answer = ask.call
      left = LEFT.call
      REFUSE.call(0)
      abort "request #{number}: #{answer}" if answer == :hangs
      abort "after request #{number}: #{answer}" unless (answer = ask.call) == right
      left.positive?
    end

    def answer(request)
      case request.path
      when '/echo' then request.respond(request.read)
      when '/parts' then parts(request)
      when '/socket' then request.upgrade_to_websocket(compress: :context) { |socket| socket.each { |message| socket << message } }
      else request.respond(request.path)
      end
    end

    def parts(request)
      request.send_headers('x-a' => 'b')
      3.times { |i| request.send_chunk("part #{i}"); snooze }
      request.finish(trailers: { 'x-c' => 'd' })
    end

    def http2(port)
      client = HTTP2Client.new(TCPSocket.new('127.0.0.1', port))
      client.write(client.headers(1, client.fields('GET', '/page')))
      client.write(client.headers(3, client.fields('GET', '/parts')))
      client.write(client.headers(5, client.fields('POST', '/echo'), flags: 4))
      client.write(client.data(5, BODY.byteslice(0, 16_000)) + client.data(5, BODY.byteslice(16_000..), last: true))
      [1, 3, 5].map { |id| [client.await(id), client.bodies[id].sum] }
    rescue SystemCallError, IOError => e
      e.class
    ensure
      client&.io&.close
    end

    # The client is of the same process: it is refused memory, too.
    def websocket(port)
      Polyphony::HTTP::WebSocket.connect("ws://127.0.0.1:#{port}/socket") do |socket|
        [TEXT, TEXT.reverse, BODY].map { |message| (socket << message).receive&.sum }
      end
    rescue SystemCallError, IOError, NoMemoryError, Polyphony::HTTP::Error => e
      e.class
    end
  end
end

RefusedMemory.run(ARGV.fetch(0))
