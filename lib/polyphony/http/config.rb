# frozen_string_literal: true

require 'etc'

module Polyphony
  module HTTP
    # A setting that cannot be; the message says which, where, and what could be in its place.
    class ConfigError < Error
      # @param error [SystemCallError]
      # @return [String] what the system said, without the function of Ruby's that asked it, and what to do
      # @!visibility private
      def self.reason(error)
        said = error.class.new.message
        case error
        when ::Errno::ENOENT then "#{said}: make the folder first"
        when ::Errno::EACCES, ::Errno::EPERM, ::Errno::EROFS
          "#{said}: user #{::Process.euid} has to be allowed to, or take another place"
        when ::Errno::EISDIR then "#{said}: a file is wanted"
        else said
        end
      end
    end

    # How a server is to run: what +polyphony serve+ gets from its command line, from a file in Ruby, and from its
    # environment, in this order of precedence.
    #
    # @example
    #   config = Polyphony::HTTP::Config.new(file: 'config/polyphony.rb', bind: ['http://127.0.0.1:8080'], workers: 2)
    #   config.workers  #=> 2
    class Config
      # Read if it is there and no other was named.
      DEFAULT_FILE = 'config/polyphony.rb'
      # Served if it is there and no other was named.
      DEFAULT_APP = 'config.ru'
      # What an address may be.
      FORMS = 'say http://HOST:PORT, https://HOST:PORT, unix:PATH, systemd or fd://NUMBER'
      private_constant :FORMS
      # An address and what belongs to it.
      Bind = Struct.new(:address, :tls, :proxy, :mode, keyword_init: true)

      # Every setting: its default, and what it is.
      SETTINGS = {
        app:             [nil, 'the application: config.ru, or a Ruby file whose last value is a handler'],
        bind:            [[], 'addresses to listen at: http://HOST:PORT, https://HOST:PORT, unix:PATH, systemd'],
        tls:             [[], 'certificates: cert: and key: of each, or :self_signed'],
        workers:         [0, 'worker processes; 0: all in one process; :auto: one for each processor'],
        preload:         [true, 'whether the application is loaded before workers are forked'],
        limits:          [{}, 'what clients may cost, see Limits'],
        environment:     [nil, 'RACK_ENV; development if that is not set either'],
        directory:       [nil, 'folder to work in'],
        log:             [nil, 'file of the error log; nil: standard error'],
        access_log:      [nil, 'file of the access log; -: standard output; nil: none'],
        access_format:   [:combined, 'common, combined or json'],
        access_query:    [:mask, 'query strings in the access log: true, false, :mask or names to mask'],
        trusted_proxies: [[], 'addresses whose X-Forwarded-For is believed by the access log'],
        pidfile:         [nil, 'file for the number of the (master) process'],
        user:            [nil, 'user to become after the sockets are open'],
        group:           [nil, 'group to become'],
        metrics:         [nil, 'where Prometheus finds numbers: a path, or an address of its own'],
        health:          [nil, 'path that answers 200 while a process serves'],
        ready:           [nil, 'path that answers 200, and 503 while it is stopping'],
        early_hints:     [:http2, 'who is sent 103 by rack.early_hints: :http2, true (HTTP/1.1, too) or false'],
        proxy_protocol:  [false, 'whether connections begin with a line of the PROXY protocol'],
        backlog:         [1024, 'connections that may wait to be accepted'],
        worker_timeout:  [60, 'seconds a worker may not tick before it is killed'],
        boot_timeout:    [60, 'seconds a worker may take to be ready'],
        drain_delay:     [0, 'seconds between not being ready and accepting no more'],
        name:            [nil, 'shown in process titles'],
        on_start:        [[], 'blocks to call in the master, before it forks'],
        on_worker_start: [[], 'blocks to call in each worker with its number, before it serves'],
        on_worker_stop:  [[], 'blocks to call in each worker with its number, after it has served'],
        quiet:           [false, 'whether the banner is left out'],
        verbose:         [false, 'whether the banner has all limits']
      }.freeze

      SETTINGS.each_key { |name| attr_reader name }

      # @return [String, nil] the file that was read
      attr_reader :file
      # @return [Limits]
      attr_reader :limit_set

      # @param file [String, nil, false] nil: DEFAULT_FILE if there is one; false: none
      # @param env [#[]] for PORT, WEB_CONCURRENCY and RACK_ENV
      # @param settings [Hash] what the command line says, see SETTINGS; it wins over the file
      # @raise [ConfigError]
      def initialize(file: nil, env: ENV, **settings)
        check_names(settings)
        @given = settings
        @file = find(file, settings[:directory])
        values = @file ? Config::File.new(@file).settings : {}
        values = from_environment(env, values.merge(settings)).merge(values)
        limits = values.fetch(:limits, {}).merge(settings.fetch(:limits, {}))
        take(values.merge(settings, limits: limits))
        check
      end

      # @return [Config] read anew
      def reload(env: ENV)
        self.class.new(file: @file || false, env: env, **@given)
      end

      # @return [Boolean] whether worker processes are forked
      def cluster?
        @workers.positive?
      end

      # Without what is in it: keys may have passwords.
      # @return [String]
      def inspect
        "#<#{self.class} #{@file || 'without a file'}>"
      end

      # @return [Boolean]
      def tls?
        !@tls.empty?
      end

      # The addresses, in one form. Without a scheme it is https where there is a certificate.
      # @return [Array<Bind>]
      def binds
        @bind.map do |given|
          bind = given.is_a?(Hash) ? given : { address: given }
          address = with_scheme(bind[:address].to_s)
          Bind.new(address: address, tls: address.start_with?('https:') || bind[:tls] || false,
                   proxy: bind.fetch(:proxy, @proxy_protocol), mode: bind[:mode])
        end
      end

      # @return [String, nil] where metrics have a listener of their own
      def metrics_address
        @metrics unless @metrics.nil? || @metrics.start_with?('/')
      end

      # @return [Hash{Symbol => Array}] limits that differ from the default: name => [value, default]
      def changed_limits
        Limits::TABLE.filter_map do |name, (default, _)|
          value = @limit_set.public_send(name)
          [name, [value, default]] unless value == default
        end.to_h
      end

      private

      def check_names(settings)
        unknown = settings.keys - SETTINGS.keys
        return if unknown.empty?

        raise ConfigError, "no such setting: #{unknown.first}; there are #{SETTINGS.keys.join(', ')}"
      end

      def find(file, directory)
        return if file == false

        path = ::File.expand_path(file || DEFAULT_FILE, directory || '.')
        return path if ::File.file?(path)

        raise ConfigError, "no such config file: #{file}" if file
      end

      # What platforms that run containers tell, where nobody has said it.
      def from_environment(env, said)
        port = variable(env, 'PORT', /\A\d+\z/, 'a number, as in 8080') unless said.key?(:bind)
        number = variable(env, 'WEB_CONCURRENCY', /\A(?:\d+|auto)\z/, 'a number, or auto') unless said.key?(:workers)
        settings = {}
        settings[:bind] = ["http://0.0.0.0:#{port}"] if port
        settings[:workers] = number == 'auto' ? :auto : Integer(number, 10) if number
        settings[:environment] = env['RACK_ENV'] if env['RACK_ENV'] && !env['RACK_ENV'].empty?
        settings
      end

      # What is set and says nothing is as good as not set.
      def variable(env, name, form, what)
        value = env[name].to_s.strip
        return if value.empty?
        return value if value.match?(form)

        raise ConfigError, "#{name} in the environment must be #{what}, got #{value.inspect}"
      end

      def take(values)
        SETTINGS.each { |name, (default, _)| instance_variable_set(:"@#{name}", values.fetch(name, default)) }
        @environment ||= 'development'
        @workers = Etc.nprocessors if @workers.to_s == 'auto'
        @bind = Array(@bind)
        @tls = [@tls] unless @tls.is_a?(Array)
        @access_format = @access_format.to_sym
        @health = '/health' if @health == true
        @ready = '/ready' if @ready == true
        @metrics = '/metrics' if @metrics == true
      end

      def check
        check_limits
        integer(:workers, 0..1_000)
        integer(:backlog, 1..65_535)
        %i[worker_timeout boot_timeout].each { |name| number(name, 0.1..) }
        number(:drain_delay, 0..)
        check_format
        check_early_hints
        %i[preload proxy_protocol quiet verbose].each { |name| flag(name) }
        %i[health ready].each { |name| check_path(name) }
        check_metrics
        check_proxies
        check_tls
        binds
      end

      def check_limits
        @limit_set = Limits.new(**@limits)
      rescue ArgumentError => e
        raise ConfigError, e.message
      end

      def integer(name, range)
        value = public_send(name)
        return if value.is_a?(Integer) && range.cover?(value)

        raise ConfigError, "#{name} must be a whole number in #{range}, got #{value.inspect}"
      end

      def number(name, range)
        value = public_send(name)
        return if value.is_a?(Numeric) && value.real? && range.cover?(value)

        raise ConfigError, "#{name} must be a number of seconds, at least #{range.begin}, got #{value.inspect}"
      end

      def flag(name)
        value = public_send(name)
        raise ConfigError, "#{name} must be true or false, got #{value.inspect}" unless [true, false].include?(value)
      end

      def check_metrics
        return if @metrics.nil? || @metrics.to_s.match?(%r{\A(/|https?://|unix:|fd:)})

        raise ConfigError, "metrics must be a path as in /metrics, or an address as in http://127.0.0.1:9394, got #{@metrics.inspect}"
      end

      # Also without an access log: who has it wrong should learn that before there is one.
      def check_proxies
        AccessLog::Proxies.new(Array(@trusted_proxies))
      rescue ArgumentError => e
        raise ConfigError, e.message
      end

      def check_format
        return if %i[common combined json].include?(@access_format)

        raise ConfigError, "the access log has no format #{@access_format}: there are common, combined and json"
      end

      def check_early_hints
        return if [:http2, true, false].include?(@early_hints)

        raise ConfigError, "early_hints must be :http2, true or false, got #{@early_hints.inspect}"
      end

      def check_path(name)
        path = public_send(name)
        return if path.nil? || path.to_s.start_with?('/')

        raise ConfigError, "#{name} must be a path as in /#{name}, got #{path.inspect}"
      end

      def check_tls
        secure = binds.find(&:tls)
        return if secure.nil? || tls?

        raise ConfigError, "#{secure.address} needs a certificate: --tls CERT,KEY, or --tls self-signed to develop"
      end

      def with_scheme(address)
        return address if address.match?(%r{\A(https?://|unix:|systemd\b|fd:)})

        raise ConfigError, "cannot listen at #{address.inspect}: #{FORMS}" if address.match?(%r{\A[a-z]+:/}i)
        raise ConfigError, "cannot listen at #{address.inspect}: an address of IPv6 is written in brackets, as in [::1]:8080" if bare_ipv6?(address)

        host, port = address.match?(/\A\d+\z/) ? ['0.0.0.0', address] : address.rpartition(':').values_at(0, 2)
        unless port.match?(/\A\d{1,5}\z/)
          raise ConfigError, "cannot listen at #{address.inspect}: #{FORMS}"
        end

        "#{tls? ? 'https' : 'http'}://#{host}:#{port}"
      end

      def bare_ipv6?(address)
        address.count(':') > 1 && address.match?(/\A[\h:.]+\z/)
      end
    end
  end
end

require 'polyphony/http/config/file'
