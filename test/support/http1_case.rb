# frozen_string_literal: true

require 'polyphony/http'
require 'stringio'

module Polyphony
  # A server in the fiber of the test, and clients that say byte by byte what they want.
  class HTTP1Case < TestCase
    # An answer as it came.
    Answer = Struct.new(:status, :headers, :body) do
      def [](name)
        headers[name]
      end
    end

    # A bare socket that can read answers.
    class Client
      attr_reader :io

      def initialize(io)
        @io = io
        @buffer = +''.b
      end

      def <<(text)
        @io.write(text)
        self
      end

      # @param head [Boolean] whether it answers a HEAD
      # @return [Answer, nil] the next one; nil at the end
      def answer(head: false)
        text = take_until("\r\n\r\n") or return
        status = Integer(text[%r{\AHTTP/1\.1 (\d{3}) }, 1], 10)
        headers = text.split("\r\n")[1..].to_h { |line| line.split(': ', 2) }
        body = status < 200 || status == 204 || status == 304 || head ? '' : body(headers)
        Answer.new(status, headers, body)
      end

      # @return [Array<Answer>] all until the connection is closed
      def answers
        found = []
        while (one = answer)
          found << one
        end
        found
      end

      # @return [String] all that comes until the connection is closed
      def rest
        nil while fill
        @buffer.slice!(0..)
      end

      # @return [String] what was sent until now and not read as an answer
      def readpartial
        @buffer.empty? ? @io.readpartial(65_536) : @buffer.slice!(0..)
      end

      def close
        @io.close
      end

      # Closes so that the other side gets a reset.
      def reset
        @io.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
        @io.close
      end

      private

      def fill
        @buffer << @io.readpartial(65_536)
      rescue EOFError
        nil
      end

      def take_until(mark)
        until (at = @buffer.index(mark))
          return if !fill && @buffer.empty?
          raise EOFError, "ended in the middle: #{@buffer.inspect}" if @io.closed?
        end
        @buffer.slice!(0, at + mark.bytesize)
      end

      def take(length)
        nil while @buffer.bytesize < length && fill
        raise EOFError, "ended in the middle: #{@buffer.inspect}" if @buffer.bytesize < length

        @buffer.slice!(0, length)
      end

      def body(headers)
        return take(Integer(headers['content-length'], 10)) if headers['content-length']
        return rest unless headers['transfer-encoding'] == 'chunked'

        text = +''.b
        while (size = take_until("\r\n").hex).positive?
          text << take(size)
          raise 'no CRLF behind a chunk' unless take(2) == "\r\n"
        end
        while (line = take_until("\r\n")) != "\r\n"
          name, value = line.chomp.split(': ', 2)
          headers["trailer #{name}"] = value
        end
        text
      end
    end

    # @return [Server] that runs; its log is in @log
    def serve(**limits, &handler)
      @log = StringIO.new
      @server = HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits, &handler).start
    end

    def teardown
      @server&.stop(within: 0)
      super
    end

    # @return [Client]
    def connect
      Client.new(track(TCPSocket.new('127.0.0.1', @server.port)))
    end

    # @return [Answer] to these bytes, on a connection for itself, after which it must be closed
    def one_answer(text)
      client = connect
      spin { outcome { client << text } }
      answers = client.answers
      client.close
      assert_equal 1, answers.size, text[0, 200].inspect
      answers.first
    end

    def request(path = '/', *fields, verb: 'GET', version: '1.1')
      "#{verb} #{path} HTTP/#{version}\r\n#{['Host: test', *fields].join("\r\n")}\r\n\r\n"
    end

    # What the log says about bad input.
    def refusals
      @log.string.scan(/refused 127\.0\.0\.1:\d+: (.*)/).flatten
    end

    def until_it_is_so
      deadline = clock + patient(5)
      until yield
        flunk 'it did not become so' if clock > deadline
        sleep 0.002
      end
    end
  end
end
