# frozen_string_literal: true

require 'polyphony/http'
require 'polyphony/http/config'
require 'polyphony/http/handler_file'
require 'polyphony/http/systemd'
require 'polyphony/http/scoreboard'
require 'polyphony/http/metrics'
require 'polyphony/http/endpoints'
require 'polyphony/http/sockets'
require 'polyphony/http/handover'
require 'polyphony/http/privileges'
require 'polyphony/http/pidfile'
require 'polyphony/http/server_process'
require 'polyphony/http/banner'
require 'polyphony/http/single'
require 'polyphony/http/cluster'

module Polyphony
  module HTTP
    # Starts a server as its configuration says, and runs it until a signal ends it: what +polyphony serve+ does.
    #
    # @example
    #   config = Polyphony::HTTP::Config.new(app: 'app.rb', bind: ['http://127.0.0.1:8080'], workers: 2)
    #   exit Polyphony::HTTP::Launcher.new(config).run
    class Launcher
      # Signals that end it.
      STOPS = %w[TERM INT QUIT].freeze
      # Other signals that somebody may send.
      OTHERS = %w[HUP USR1 USR2 TTIN TTOU].freeze

      # Descriptors that a process has besides those of connections: what it listens at, logs, files, databases.
      RESERVE = 64
      private_constant :RESERVE

      # @return [Config]
      attr_accessor :config
      # @return [Log]
      attr_reader :log
      # @return [AccessLog, nil]
      attr_reader :access_log
      # @return [TLS, nil]
      attr_reader :tls
      # @return [Sockets]
      # @!visibility private
      attr_reader :sockets
      # @return [Systemd]
      # @!visibility private
      attr_reader :systemd
      # @return [Handover]
      # @!visibility private
      attr_reader :handover

      # @param config [Config]
      # @param command [Array<String>, nil] script and arguments that start this program again; nil: USR2 cannot
      def initialize(config, command: nil)
        @config = config
        @handover = Handover.new(command)
        @systemd = Systemd.new
      end

      # @return [Integer] exit status
      def run
        enter
        open
        (@config.cluster? ? Cluster : Single).new(self).run
      ensure
        @pidfile&.remove
        @access_log&.close
      end

      # Reads everything and opens nothing, to see whether it would work.
      # @return [String] what was found
      # @raise [ConfigError]
      def check
        enter
        load_tls
        Privileges.new(@config.user, @config.group)
        make_access_log(LogFile.new) if @config.access_log
        load_app
        "#{@config.file || 'no config file'}: all is well"
      end

      # @return [#call] the application
      # @raise [ConfigError]
      def load_app
        app = @config.app || Config::DEFAULT_APP
        app.respond_to?(:call) ? app : HandlerFile.load(app, multiprocess: @config.cluster?, early_hints: @config.early_hints)
      rescue ::SystemExit => e
        said_good_bye(app, e)
      end

      # Reads configuration and certificates again. If something is wrong with them, all stays as it is.
      # @return [Boolean] whether that worked
      def reload
        config = @config.reload
        @tls&.reload
        @config = config
        true
      rescue StandardError => e
        @log.info("configuration is kept: #{e.message}")
        false
      end

      # Log files, as they are called now.
      # @return [nil]
      def reopen_logs
        [@log.io, @access_log].each { |one| one.reopen if one.respond_to?(:reopen) }
        nil
      rescue ::SystemCallError => e
        @log.info("log files are kept: #{e.message}")
      end

      # Those that end it are left to Ruby until the application is loaded, which may take its time.
      # @yield [String] name of a signal
      # @!visibility private
      def trap_stops
        STOPS.each { |name| trap(name) { yield name } }
      end

      # @see #trap_stops
      # @!visibility private
      def trap_others
        OTHERS.each { |name| trap(name) { yield name } }
      end

      # Says what is there, unless it is to be quiet.
      # @!visibility private
      def banner
        return if @config.quiet

        text = @handover.any? ? Banner.new(self).again : Banner.new(self).to_s
        @log.io&.write(text)
      rescue ::SystemCallError, ::IOError
        nil # nobody reads it
      end

      # @return [String, nil] if fewer files can be open than connections may need
      # @!visibility private
      def shortage
        most, = ::Process.getrlimit(:NOFILE)
        return if most >= @config.limit_set.connections + RESERVE

        "a process may have #{most} files open, which is not enough for #{@config.limit_set.connections} connections: " \
          'raise it (ulimit -n, LimitNOFILE= in systemd)'
      end

      private

      # A server that ends without a word, and with status 0, would be a riddle.
      def said_good_bye(app, exit)
        place = exit.backtrace&.first.to_s[/\A.+?:\d+/]
        (@log || Log.new($stderr)).info("#{app} has ended the process while it was loaded: exit with status #{exit.status} at #{place}")
        raise exit unless exit.success?

        raise ::SystemExit.new(1, exit.message)
      end

      def enter
        Dir.chdir(@config.directory) if @config.directory
        ENV['RACK_ENV'] = @config.environment
        ENV['RAILS_ENV'] ||= @config.environment
      rescue ::SystemCallError => e
        raise ConfigError, "cannot work in #{@config.directory}: #{ConfigError.reason(e)}"
      end

      # What needs privileges comes first.
      def open
        privileges = Privileges.new(@config.user, @config.group)
        raise_file_limit
        file = open_log(@config.log)
        @log = Log.new(file)
        access = open_log(@config.access_log) if @config.access_log
        load_tls
        @sockets = Sockets.new(@config, tls: @tls, activated: @systemd.sockets, handed: @handover.sockets)
        @pidfile = Pidfile.new(@config.pidfile)
        @pidfile.write
        privileges.drop([file, access].compact, [@pidfile.path, *unix_paths].compact)
        make_access_log(access) if access
      end

      # The usual soft limit, 1024, is for programs that use select(2). A file may be open for each connection.
      def raise_file_limit
        soft, hard = ::Process.getrlimit(:NOFILE)
        wanted = [(@config.limit_set.connections * 2) + RESERVE, hard].min
        ::Process.setrlimit(:NOFILE, wanted, hard) if soft < wanted
      rescue ::SystemCallError
        nil
      end

      def open_log(target)
        LogFile.new(target)
      rescue ::SystemCallError => e
        raise ConfigError, "cannot write the log #{target}: #{ConfigError.reason(e)}"
      end

      def make_access_log(file)
        @access_log = AccessLog.new(file, format: @config.access_format, query: @config.access_query,
                                          trusted_proxies: @config.trusted_proxies)
      rescue ArgumentError => e
        raise ConfigError, e.message
      end

      def unix_paths
        @sockets.all.filter_map { |listener| listener.address[/\Aunix:(.+)/, 1] }.select { |path| ::File.socket?(path) }
      end

      def load_tls
        return unless @config.tls?

        first, *others = @config.tls
        own = first.is_a?(Hash) ? first : {}
        others = others.map { |one| one.slice(:cert, :key, :chain, :password) }
        @tls = first.is_a?(Hash) ? TLS.new(**own, certificates: [*own[:certificates], *others]) : TLS.for(first)
      rescue ArgumentError, Error => e
        raise ConfigError, "tls: #{e.message}"
      end
    end
  end
end
