# frozen_string_literal: true

require 'optparse'

module Demo
  # What stands on the command line.
  class Options
    attr_reader :host, :port, :tls_port, :database, :smoke

    def self.parse(arguments)
      new.tap { |options| options.parse(arguments) }
    rescue OptionParser::ParseError => e
      abort "bin/demo: #{e.message}; bin/demo --help says what there is"
    end

    def initialize
      @host = '127.0.0.1'
      @port = 8080
      @tls_port = 8443
      @database = ENV['DATABASE_URL'] || File.expand_path('../tmp/demo.sqlite3', __dir__)
      @smoke = !$stdin.tty?
    end

    def parse(arguments)
      rest = parser.parse(arguments)
      raise OptionParser::NeedlessArgument, rest.first if rest.any?

      check_alone if @smoke
    end

    private

    def parser
      OptionParser.new do |o|
        o.banner = 'bin/demo: a chat in the browser, to see Polyphony at work'
        o.on('--host HOST', "where to listen (#{@host}; 0.0.0.0 for all who can reach this machine)") { |v| @host = v }
        o.on('--port N', Integer, "port of http (#{@port}; 0: any that is free)") { |v| @port = v }
        o.on('--tls-port N', Integer, "port of https and HTTP/2 (#{@tls_port}; 0: any that is free)") { |v| @tls_port = v }
        o.on('--database FILE', 'SQLite file, or a URL of PostgreSQL (DATABASE_URL, else tmp/demo.sqlite3)') { |v| @database = v }
        o.on('--serve', 'serve, also when input is no terminal') { @smoke = false }
        o.on('--smoke', 'let two clients talk for a moment, and end; so it is when input is no terminal') { @smoke = true }
      end
    end

    # A self-check disturbs nobody: ports of its own, and nothing is left behind.
    def check_alone
      @host = '127.0.0.1'
      @port = @tls_port = 0
      @database = ':memory:'
    end
  end
end
