# frozen_string_literal: true

require 'socket'
require 'uri'
require 'zlib'

module Polyphony
  # A small HTTP/1.1 server for tests of clients, in fibers of the thread that tests: a client which stopped
  # the thread would never get its answer. Connections are kept alive.
  class HTTPServer
    Request = Struct.new(:verb, :target, :headers, :body, :connection, keyword_init: true) do
      def path
        URI(target).path
      end

      def keep_alive?
        !headers['connection'].to_s.match?(/close/i)
      end
    end

    attr_reader :port, :accepted, :connections, :requests

    # @param tls [OpenSSL::SSL::SSLContext, nil]
    # @yield [Request] for each; @return [Array(Integer, Hash, #each | String)] what to answer. A body that is
    #   not a String goes out in chunks.
    def initialize(tls: nil, &answer)
      @listener = TCPServer.new('127.0.0.1', 0)
      @port = @listener.local_address.ip_port
      @server = tls ? OpenSSL::SSL::SSLServer.new(@listener, tls) : nil
      @scheme = tls ? 'https' : 'http'
      @answer = answer
      @accepted = 0
      @connections = {}.compare_by_identity # those that are open
      @requests = []
    end

    def url(path = '/', host: '127.0.0.1')
      "#{@scheme}://#{host}:#{@port}#{path}"
    end

    # @return [Fiber] in which it runs
    def start
      @fiber = spin(:server) do
        if @server then @server.accept_loop { |socket| spin { serve(socket) } }
        else Polyphony.backend_accept_loop(@listener, TCPSocket) { |socket| spin { serve(socket) } }
        end
      end
    end

    def stop
      @fiber&.stop
      @fiber&.await
      @listener.close
    end

    # Until the clients have closed all.
    def wait_until_unused
      sleep 0.001 until @connections.empty?
    end

    private

    def serve(socket)
      @accepted += 1
      @connections[socket] = true
      socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
      while (request = read_request(socket))
        @requests << request
        respond(socket, @answer.call(request), request.keep_alive?)
        break unless request.keep_alive?
      end
    rescue SystemCallError, IOError, *(OpenSSL::SSL::SSLError if @server)
      nil # the client is gone
    ensure
      @connections.delete(socket)
      socket.close
    end

    def read_request(socket)
      line = socket.gets or return
      verb, target, = line.split
      headers = {}
      while (header = socket.gets) && header != "\r\n"
        name, value = header.chomp.split(/:\s*/, 2)
        headers[name.downcase] = value
      end
      socket << "HTTP/1.1 100 Continue\r\n\r\n" if headers['expect'] == '100-continue'
      Request.new(verb: verb, target: target, headers: headers, body: read_body(socket, headers), connection: socket)
    end

    def read_body(socket, headers)
      return socket.read(Integer(headers['content-length'])) if headers['content-length']
      return unless headers['transfer-encoding'] == 'chunked'

      body = +''
      until (size = socket.gets.to_i(16)).zero?
        body << socket.read(size)
        socket.gets
      end
      socket.gets
      body
    end

    def respond(socket, (status, headers, body), keep_alive)
      whole = body.is_a?(String)
      head = "HTTP/1.1 #{status} Status\r\n"
      headers = { whole ? 'Content-Length' : 'Transfer-Encoding' => whole ? body.bytesize : 'chunked' }.merge(headers)
      headers['Connection'] = 'close' unless keep_alive
      headers.each { |name, value| head << "#{name}: #{value}\r\n" }
      socket << "#{head}\r\n"
      return socket << body if whole

      body.each { |chunk| socket << "#{chunk.bytesize.to_s(16)}\r\n#{chunk}\r\n" }
      socket << "0\r\n\r\n"
    end
  end

  # A proxy: requests with a whole URL are passed on, CONNECT joins the two sides.
  class HTTPProxy
    attr_reader :port, :passed

    def initialize
      @listener = TCPServer.new('127.0.0.1', 0)
      @port = @listener.local_address.ip_port
      @passed = []
    end

    def start
      @fiber = spin(:proxy) do
        Polyphony.backend_accept_loop(@listener, TCPSocket) { |socket| spin { pass_on(socket) } }
      end
    end

    def stop
      @fiber&.stop
      @fiber&.await
      @listener.close
    end

    private

    def pass_on(client)
      verb, target, = client.gets.split
      @passed << [verb, target]
      head = +''
      head << client.gets until head.end_with?("\r\n\r\n") || head == "\r\n"
      uri = URI(verb == 'CONNECT' ? "tcp://#{target}" : target)
      target_socket = TCPSocket.new(uri.host, uri.port)
      if verb == 'CONNECT' then client << "HTTP/1.1 200 OK\r\n\r\n"
      else target_socket << "#{verb} #{uri.request_uri} HTTP/1.1\r\n#{head}"
      end
      join(client, target_socket)
    ensure
      [client, target_socket].compact.each(&:close)
    end

    # Until one of them ends.
    def join(one, other)
      Polyphony.scope do |scope|
        scope.spin { copy(one, other); scope.stop }
        copy(other, one)
        scope.stop
      end
    end

    def copy(from, to)
      Polyphony.backend_read_loop(from, 8192) { |data| to.write(data) }
    rescue SystemCallError
      nil # one of them is gone
    end
  end
end
