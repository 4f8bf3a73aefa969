# frozen_string_literal: true

require 'socket'

module Polyphony
  # An HTTP/1 client that shows everything as it came: for tests that look at bytes.
  class RackClient
    Answer = Struct.new(:version, :status, :fields, :body, :informational, keyword_init: true) do
      # @return [String, nil] all values of a header
      def [](name)
        values = fields.select { |key, _| key.casecmp?(name) }.map(&:last)
        values.empty? ? nil : values.join(', ')
      end
    end

    attr_reader :socket

    def initialize(socket)
      @socket = socket
    end

    # @param text [String] a request; lines may end with LF only
    # @return [Answer]
    def request(text, verb: text[/\A\S+/])
      send(text)
      answer(verb)
    end

    # Lines of the head get their CRLF; the body is sent as it is.
    def send(text)
      head, body = text.split("\n\n", 2)
      @socket.write("#{head.gsub(/\r?\n/, "\r\n")}\r\n\r\n#{body}")
    end

    # @param verb [String] what was asked: HEAD has no body
    # @return [Answer]
    def answer(verb = 'GET')
      informational = []
      loop do
        version, status, fields = head
        if status.between?(102, 199) || status == 100 then informational << [status, fields]
        else
          answer = Answer.new(version: version, status: status, fields: fields, informational: informational)
          answer.body = status == 101 ? nil : body(verb, answer)
          return answer
        end
      end
    end

    private

    def head
      line = @socket.gets("\r\n") or raise EOFError, 'no answer'
      version, status = line.split(' ', 3)
      fields = []
      while (line = @socket.gets("\r\n")&.chomp("\r\n")) && !line.empty?
        fields << line.split(/:\s*/, 2)
      end
      [version, Integer(status), fields]
    end

    def body(verb, answer)
      return '' if verb == 'HEAD' || [204, 304].include?(answer.status)
      return chunks if answer['transfer-encoding'].to_s.match?(/chunked/i)

      length = answer['content-length']
      length ? @socket.read(Integer(length)).to_s : @socket.read
    end

    # What came of it, with :cut at its end if that was not all.
    def chunks
      data = +''
      loop do
        size = @socket.gets("\r\n")&.chomp("\r\n")
        return [data, :cut] unless size

        break if size.hex.zero?

        data << @socket.read(size.hex).to_s
        return [data, :cut] unless @socket.read(2) == "\r\n"
      end
      nil until [nil, "\r\n"].include?(@socket.gets("\r\n"))
      data
    end
  end
end
