# frozen_string_literal: true

require 'digest/sha1'

module Polyphony
  class Remote
    # Runs the parts of script.lua, on a connection that all fibers share, and tries again until Redis answers. Every part can be run
    # twice without harm.
    # @api private
    class Link
      SCRIPT = File.read(File.join(__dir__, 'script.lua')).freeze
      DIGEST = ::Digest::SHA1.hexdigest(SCRIPT).freeze
      BACKOFF = Backoff.from(from: 0.02, to: 1)
      # Answers of a server that will soon give others.
      LATER = /\A(LOADING|MASTERDOWN|READONLY|TRYAGAIN|CLUSTERDOWN|BUSY|OOM|MISCONF) /.freeze
      OLDEST = '6.2'

      # @return [String] the name of this process, for others
      attr_reader :process
      # @return [String] what all keys begin with
      attr_reader :prefix

      def initialize(config, prefix, process, timeout)
        @config = config
        @prefix = prefix
        @process = process
        @timeout = timeout
        @redis = Adapters::SharedRedis.new(config)
      end

      # @param within [Numeric, nil] seconds; nil: as long as it takes
      # @raise [Unreachable]
      def run(part, *arguments, within: @timeout)
        reply = nil
        CancelScope.move_on_after(within, nil) { reply = [keep_trying(part, arguments)] }
        raise Unreachable, too_late(within), cause: @error unless reply

        reply.first
      end

      # @raise [Error] if the server is too old
      def check_version
        version = @redis.call('INFO', 'server')[/^redis_version:(\S+)/, 1]
        return if version.nil? || ::Gem::Version.new(version) >= ::Gem::Version.new(OLDEST)

        raise Error, "#{server} is Redis #{version}, at least #{OLDEST} is needed"
      rescue ::RedisClient::PermissionError
        nil # then its commands will tell
      end

      # @return [RedisClient] for commands that wait on the server
      def new_client
        @config.new_client
      end

      # @return [String] its address; sentinels may have to be asked for it
      def server
        @config.server_url
      rescue ::RedisClient::Error
        'Redis'
      end

      # Redis was away, or this process stood still: others may have been unable to beat as well.
      def unsteady
        @since = nil
      end

      # @return [Boolean] whether all has gone well for so long
      def steady_for?(seconds)
        !!@since && Clock.now - @since >= seconds
      end

      def later?(error)
        error.message.match?(LATER)
      end

      # @return [String] for an error
      def too_late(within)
        "#{server} could not be used within #{within} s#{": #{@error.class}: #{@error.message}" if @error}"
      end

      # For good: whoever is trying gets Closed.
      def close
        @closed = true
        @redis.close
      end

      private

      def keep_trying(part, arguments)
        failures = 0
        begin
          raise Closed, "the connection to #{server} was closed" if @closed

          reply = evaluate(part, arguments)
          @since ||= Clock.now
          reply
        rescue ::RedisClient::ConnectionError, ::RedisClient::CommandError => e
          raise unless e.is_a?(::RedisClient::ConnectionError) || later?(e)

          @error = e
          unsteady
          sleep BACKOFF.delay(failures)
          failures += 1
          retry
        end
      end

      def evaluate(part, arguments)
        @redis.call('EVALSHA', DIGEST, 0, @prefix, part, @process, *arguments)
      rescue ::RedisClient::CommandError => e
        raise unless e.message.start_with?('NOSCRIPT')

        @redis.call('EVAL', SCRIPT, 0, @prefix, part, @process, *arguments)
      end
    end
  end
end
