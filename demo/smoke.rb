# frozen_string_literal: true

require 'json'
require 'net/http'
require 'securerandom'

module Demo
  # Two clients say hello to each other, one of them over TLS, and read a page.
  class Smoke
    TIME = 20 # seconds

    # Somebody at a WebSocket.
    class Client
      def initialize(url, name)
        @socket = Polyphony::HTTP::WebSocket.connect("#{url.sub('http', 'ws')}/chat", ssl_context: OpenSSL::SSL::SSLContext.new)
        tell(type: 'hello', name: name, session: SecureRandom.hex(16))
        await('room')
      end

      def tell(**event)
        @socket << JSON.generate(event)
      end

      # @return [Hash] the next event of that type
      def await(type)
        @socket.each do |text|
          event = JSON.parse(text)
          raise "the server complains: #{event['text']}" if event['type'] == 'error'
          return event if event['type'] == type
        end
        raise "the connection ended (#{@socket.close_code}) before #{type} came"
      end

      def close
        @socket.close
      end
    end

    def initialize(urls)
      @urls = urls
    end

    def run
      cancel_after(TIME, with_exception: [RuntimeError, "the self-check took longer than #{TIME} s"]) { converse }
      puts 'self-check: two clients talked to each other, and both pages are there'
    end

    private

    def converse
      ann, bob = [@urls.first, @urls.last].zip(%w[Ann Bob]).map { |url, name| Client.new(url, name) }
      expect('Bob hears Ann', 'hello Bob') { ann.tell(type: 'say', text: 'hello Bob') && bob.await('message')['text'] }
      ann.await('message') # her own
      expect('Ann hears Bob', 'hello Ann') { bob.tell(type: 'say', text: 'hello Ann') && ann.await('message')['text'] }
      %w[/ /stats].each { |path| expect("page #{path}", '200') { Net::HTTP.get_response(URI(@urls.first + path)).code } }
    ensure
      [ann, bob].each { |client| client&.close }
    end

    def expect(what, wanted)
      got = yield
      raise "#{what}: expected #{wanted.inspect}, got #{got.inspect}" unless got == wanted

      puts "self-check: #{what}: #{got}"
    end
  end
end
