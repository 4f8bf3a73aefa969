# frozen_string_literal: true

# A chat in the browser, on http, https and HTTP/2: bin/demo sets up what it needs and runs this.

require 'polyphony/http'
require_relative 'options'
require_relative 'app'
require_relative 'chat/rules'
require_relative 'chat/allowance'
require_relative 'chat/store'
require_relative 'chat/member'
require_relative 'chat/room'
require_relative 'chat/hall'
require_relative 'chat/visit'
require_relative 'watch/pulse'
require_relative 'smoke'

module Demo
  # All of it, from the first fiber to the last.
  class Program
    LIMITS = { ws_frame: 16_384, ws_message: 16_384, body: 16_384 }.freeze
    GOODBYE = 5 # seconds for those who are connected when it ends

    def initialize(options)
      @options = options
    end

    def run
      open_hall
      serve
      @options.smoke ? Smoke.new(urls).run : wait
    ensure
      close
    end

    private

    # Rooms are there before anybody can knock.
    def open_hall
      @store = Chat::Store.open(@options.database)
      @hall = Chat::Hall.new(@store)
      ready = Polyphony::Event.new
      @rooms = spin(:hall) { @hall.run { ready.signal } }
      ready.await
    rescue Chat::Store::Unavailable => e
      abort "bin/demo: #{e.message}"
    end

    def serve
      app = App.new(@hall)
      @server = Polyphony::HTTP::Server.new("http://#{@options.host}:#{@options.port}",
                                            "https://#{@options.host}:#{@options.tls_port}",
                                            tls: :self_signed, limits: LIMITS, app: app)
      app.pulse = pulse = Watch::Pulse.new(@server, @hall, Fiber.current)
      spin(:pulse) { pulse.run }
      @server.start
    rescue SystemCallError => e
      abort "bin/demo: #{e.message}\nbin/demo: --port and --tls-port take others"
    end

    def wait
      urls.each { |url| puts "chat at #{url}" }
      puts "driver #{Thread.current.backend.kind}, messages in #{@store.name}; Ctrl-C ends it"
      @server.wait
    rescue SignalException # Ctrl-C, or TERM
      puts '', 'bye'
    end

    def urls
      @server.listeners.map { |listener| listener.address.sub('0.0.0.0', 'localhost') }
    end

    def close
      @server&.stop(within: GOODBYE)
      @rooms&.stop
      @rooms&.await
      @store&.close
    end
  end
end

$stdout.sync = true
Demo::Program.new(Demo::Options.parse(ARGV)).run
