# frozen_string_literal: true

require 'polyphony/http'

module Polyphony
  module HTTP
    # What +rackup -s polyphony+ and +rails server -u polyphony+ start: Rackup::Handler::Polyphony, or
    # Rack::Handler::Polyphony, is extended by this. For more than one process, TLS and the rest there is
    # +polyphony serve+.
    module RackupHandler
      # Serves until it is told to stop, by INT, TERM or #shutdown.
      # @param app [#call] a Rack application
      # @param options [Hash] +:Host+, +:Port+, +:Bind+, +:early_hints+ and the names of Limits
      # @yield [Server] before it begins
      # @return [void]
      def run(app, **options)
        hints = options[:early_hints] ? options[:early_hints].to_s == 'true' : :http2
        server = Server.new(*addresses(options), app: RackHandler.new(app, early_hints: hints), limits: limits(options))
        running << server
        yield server if block_given?
        $stderr.puts "* Polyphony #{VERSION} listens at #{server.listeners.map(&:address).join(', ')}" unless options[:quiet]
        until_told { server.run }
      ensure
        running.delete(server)
      end

      # Lets the requests in progress come to their end, in a fiber of its own; the second time it does not.
      # @return [void]
      def shutdown
        running.each { |server| server.draining? ? exit : spin(:shutdown) { server.stop } }
      end

      # @return [Hash{String => String}] options of ours, for +rackup -s polyphony -h+
      def valid_options
        limits = Limits::TABLE.to_h { |name, (default, what)| ["#{name}=#{default}", what] }
        { 'Host=HOST' => 'the address to listen at (default: localhost)', 'Port=PORT' => 'the port (default: 9292)',
          'Bind=URL,URL' => 'in place of these: http://HOST:PORT or unix:PATH',
          'early_hints=true' => '103 for clients of HTTP/1.1, too' }.merge(limits)
      end

      private

      def running
        @running ||= []
      end

      def addresses(options)
        bind = options[:Bind] and return bind.to_s.split(',')

        host = options[:Host] || 'localhost'
        port = Integer(options[:Port] || 9292)
        return ["http://127.0.0.1:#{port}", "http://[::1]:#{port}"] if host == 'localhost' && port != 0 && ipv6?

        ["http://#{host.include?(':') ? "[#{host.delete('[]')}]" : host}:#{port}"]
      end

      # Whether there is a loopback of that kind; browsers try it first.
      def ipv6?
        ::Socket.ip_address_list.any?(&:ipv6_loopback?)
      end

      # Options of rackup are Strings and have other names than ours.
      def limits(options)
        known = options.slice(*Limits::TABLE.keys, *Limits::TABLE.keys.map(&:name))
        known.to_h { |name, value| [name.to_sym, number(name, value)] }
      end

      def number(name, value)
        return if value.nil? || value == 'nil'

        value.is_a?(Numeric) ? value : (Integer(value, exception: false) || Float(value))
      rescue ArgumentError
        raise ArgumentError, "#{name} must be a number, got #{value.inspect}"
      end

      # The handler that rackup has set for INT may be a stock one, in which nobody can wait.
      def until_told
        before = %w[INT TERM].to_h { |signal| [signal, trap(signal) { shutdown }] }
        yield
      ensure
        before&.each { |signal, handler| trap(signal, handler || 'DEFAULT') }
      end
    end
  end
end
