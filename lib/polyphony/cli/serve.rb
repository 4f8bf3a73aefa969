# frozen_string_literal: true

require 'optparse'
require 'polyphony/http'

module Polyphony
  class CLI
    # +polyphony serve+: a web server for a Rack application, or for a handler in a file.
    # @api private
    class Serve
      # What is wrong with the configuration, for a shell (sysexits.h, EX_CONFIG).
      CONFIG_ERROR = 78

      HEAD = <<~TEXT
        usage: polyphony serve [FILE] [options]

        Serves a Rack application (config.ru, which is the default), or a Ruby file whose last value is
        a handler, or that says `run { |request| request.respond('hello') }`.

      TEXT

      TAIL = <<~TEXT

        Settings may stand in config/polyphony.rb as well; the command line wins. PORT, WEB_CONCURRENCY
        and RACK_ENV are understood. It stays in the foreground: a service manager keeps it there.

        signals, to the process that was started:
          TERM INT QUIT    stop: no more connections, requests in progress go on for drain_time; once more: at once
          USR2             restart with new code, without losing a request
          HUP              read certificates and configuration again
          USR1             open log files again
          TTIN TTOU        one worker more, one less

        exit status: 0 stopped, 1 the application failed, 64 wrong options, 78 wrong configuration
      TEXT

      # @param words [Array<String>] behind +serve+
      def initialize(words, out: $stdout, err: $stderr)
        @words = words
        @out = out
        @err = err
        @settings = {}
        @file = nil
        @action = :run
      end

      # @return [Integer] the exit status
      def run
        parse
        send(:"do_#{@action}")
      rescue OptionParser::ParseError => e
        complain("#{e.message}#{wanted(e)}\nsee: polyphony serve --help", USAGE_ERROR)
      rescue HTTP::ConfigError => e
        complain(e.message, CONFIG_ERROR)
      rescue Interrupt
        130
      end

      private

      # What an option takes, by the word that its line of the help has for it.
      WANTED = {
        'PORT' => 'a number, as in 8080', 'N' => 'a whole number', 'SECONDS' => 'a number of seconds, as in 2.5',
        'FORMAT' => 'common, combined or json'
      }.freeze

      # @return [String, nil] what could be in place of an argument that was refused, or is missing
      def wanted(error)
        return unless error.instance_of?(OptionParser::InvalidArgument) || error.instance_of?(OptionParser::MissingArgument)

        name = error.args.first.to_s[/\A--?[a-z-]+/] or return
        switch = options.top.search(name.start_with?('--') ? :long : :short, name.delete_prefix('-').delete_prefix('-')) or return
        word = switch.arg.to_s[/[A-Z]+/]
        what = name.match?(/\A(-w|--workers)\z/) ? 'a number, or auto' : WANTED[word]
        what && ": say #{what}" unless error.args.join(' ').include?(': ')
      end

      def complain(message, status)
        @err.puts "polyphony serve: #{message}"
        status
      end

      def do_help
        @out.puts HEAD, options.summarize, TAIL
        0
      end

      def do_limits
        HTTP::Limits::TABLE.each { |name, (default, what)| @out.puts format('%-18s %-10s %s', name, default.inspect, what) }
        0
      end

      def do_check
        @out.puts launcher.check
        0
      rescue StandardError, ::ScriptError => e
        raise if e.is_a?(HTTP::ConfigError)

        complain("the application does not load: #{e.message} (#{e.class})\n  #{e.backtrace&.first(8)&.join("\n  ")}", 1)
      end

      def do_run
        launcher.run
      end

      def launcher
        HTTP::Launcher.new(HTTP::Config.new(file: @file, **@settings), command: [$PROGRAM_NAME, 'serve', *@words])
      end

      def parse
        rest = options.parse(@words)
        raise OptionParser::NeedlessArgument, "one file is served, got #{rest.join(' ')}" if rest.size > 1

        @settings[:app] = rest.first if rest.any?
      end

      def options
        @options ||= OptionParser.new do |opts|
          addresses(opts)
          processes(opts)
          logs(opts)
          endpoints(opts)
          others(opts)
        end
      end

      def addresses(opts)
        opts.on('-b', '--bind ADDRESS', 'http://HOST:PORT, https://HOST:PORT, unix:PATH, systemd, systemd:NAME;',
                'several times if needed; http://127.0.0.1:9292 if not said') { |it| add(:bind, it) }
        opts.on('-p', '--port PORT', Integer, 'all addresses of this machine at that port') { |it| add(:bind, it.to_s) }
        opts.on('--tls CERT,KEY', 'certificate and key (PEM), once for each name; self-signed: for development') do |it|
          add(:tls, certificate(it))
        end
        opts.on('--proxy-protocol', 'connections begin with a line of the PROXY protocol') { set(:proxy_protocol, true) }
        opts.on('--[no-]early-hints', 'rack.early_hints sends 103 to HTTP/1.1, too; without this: to HTTP/2') { |it| set(:early_hints, it) }
        opts.on('--backlog N', Integer, 'connections that may wait to be accepted') { |it| set(:backlog, it) }
        opts.on('--limit NAME=VALUE', 'what a client may cost; see --limits') { |it| limit(it) }
      end

      def processes(opts)
        opts.on('-w', '--workers N', /\A(?:\d+|auto)\z/, 'worker processes; auto: as many as processors;',
                '0: one process does it all (the default)') { |it| set(:workers, it == 'auto' ? :auto : Integer(it, 10)) }
        opts.on('--[no-]preload', 'load the application before workers are forked (default)') { |it| set(:preload, it) }
        opts.on('--worker-timeout SECONDS', Float, 'kill a worker that has not ticked for so long') { |it| set(:worker_timeout, it) }
        opts.on('--boot-timeout SECONDS', Float, 'kill a worker that is not ready by then') { |it| set(:boot_timeout, it) }
        opts.on('--drain-delay SECONDS', Float, 'go on accepting for so long when asked to stop') { |it| set(:drain_delay, it) }
        opts.on('--user USER', 'become this user when the sockets are open') { |it| set(:user, it) }
        opts.on('--group GROUP', 'become this group') { |it| set(:group, it) }
        opts.on('--pidfile FILE', 'write the number of the process there') { |it| set(:pidfile, it) }
      end

      def logs(opts)
        opts.on('--log FILE', 'error log; standard error if not said') { |it| set(:log, it) }
        opts.on('--access-log FILE', 'a line for each request; -: standard output') { |it| set(:access_log, it) }
        opts.on('--access-format FORMAT', %i[common combined json], 'common, combined (default) or json') { |it| set(:access_format, it) }
        opts.on('--trusted-proxy NETWORK', 'whose X-Forwarded-For the access log believes, as in 10.0.0.0/8') { |it| add(:trusted_proxies, it) }
      end

      def endpoints(opts)
        opts.on('--metrics [PATH|ADDRESS]', 'numbers for Prometheus: at a path (/metrics),',
                'or at an address of its own (http://127.0.0.1:9394)') { |it| set(:metrics, it || true) }
        opts.on('--health [PATH]', 'answers 200 while it serves (/health)') { |it| set(:health, it || true) }
        opts.on('--ready [PATH]', 'the same, and 503 when it is stopping (/ready)') { |it| set(:ready, it || true) }
      end

      def others(opts)
        opts.on('-C', '--config FILE', 'settings in Ruby; config/polyphony.rb if it is there') { |it| @file = it }
        opts.on('--no-config', 'do not look for one') { @file = false }
        opts.on('-e', '--environment NAME', 'RACK_ENV; development if not said') { |it| set(:environment, it) }
        opts.on('--directory DIR', 'work there') { |it| set(:directory, it) }
        opts.on('--name NAME', 'shown in process titles') { |it| set(:name, it) }
        opts.on('--check-config', 'read configuration, certificates and application, say what is wrong, end') { @action = :check }
        opts.on('--limits', 'list the limits and their defaults') { @action = :limits }
        opts.on('-q', '--quiet', 'no banner') { set(:quiet, true) }
        opts.on('--verbose', 'a banner with all limits') { set(:verbose, true) }
        opts.on('-h', '--help', 'this text') { @action = :help }
      end

      def set(name, value)
        @settings[name] = value
      end

      def add(name, value)
        (@settings[name] ||= []) << value
      end

      def certificate(text)
        return :self_signed if %w[self-signed self_signed].include?(text)

        cert, key = text.split(',', 2)
        { cert: cert, key: key }
      end

      def limit(text)
        name, value = text.split('=', 2)
        number = value.to_s
        (@settings[:limits] ||= {})[name.to_sym] =
          case number
          when 'none', 'nil' then nil
          when /\A\d+\z/ then Integer(number, 10)
          when /\A\d+\.\d+\z/ then Float(number)
          else raise OptionParser::InvalidArgument, "#{text}: NAME=NUMBER, as in body=1000000"
          end
      end
    end

    private_constant :Serve
  end
end
