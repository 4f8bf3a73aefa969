# frozen_string_literal: true

# An HTTP/1 adapter on a parser that calls back, http_parser.rb: requests come from an each that waits, and a body is read
# while it arrives. With the gem http_parser.rb: ruby -Ilib examples/callback_http1.rb
require 'polyphony'
begin
  require 'http/parser'
rescue LoadError
  puts 'this example needs the gem http_parser.rb'
  exit
end

# The requests of one connection.
class HTTP1Adapter
  Request = Struct.new(:verb, :target, :headers, :keep_alive)

  def initialize(socket)
    parser = HTTP::Parser.new
    @events = Polyphony::Callback.new(socket) { |data| parser << data }
    parser.on_headers_complete = @events.on(:request) do |headers|
      Request.new(parser.http_method, parser.request_url, headers, parser.keep_alive?)
    end
    parser.on_body = @events.on(:body)
    parser.on_message_complete = @events.on(:complete)
  end

  def each
    @events.each do |kind, request|
      @in_body = kind != :complete
      kind == :request ? yield(request) : next # the rest of a body that nobody wanted to read
      return unless request.keep_alive
    end
  end

  def each_chunk
    @events.each { |kind, chunk| kind == :complete ? break : yield(chunk) } if @in_body
    @in_body = false
  end
end

def serve(socket)
  requests = HTTP1Adapter.new(socket)
  requests.each do |request|
    size = 0
    requests.each_chunk { |chunk| size += chunk.bytesize } if request.verb == 'POST'
    body = "#{request.verb} #{request.target} with #{size} bytes\n"
    socket << "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}"
  end
rescue HTTP::Parser::Error => e
  socket << "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n#{e.message}\n"
end

server = TCPServer.new('127.0.0.1', 0)
spin { server.accept_loop { |socket| spin { serve(socket); socket.close } } }
client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
client << "GET /first HTTP/1.1\r\n\r\nPOST /second HTTP/1.1\r\nContent-Length: 10\r\n\r\n01234"
sleep 0.01
client << "56789GET /last HTTP/1.1\r\nConnection: close\r\n\r\n"
puts client.read.scan(/^(?:GET|POST) .*/)
