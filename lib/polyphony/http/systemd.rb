# frozen_string_literal: true

require 'socket'

module Polyphony
  module HTTP
    # What systemd hands to a service, and what it wants to be told: sd_listen_fds(3) and sd_notify(3), without their
    # library.
    class Systemd
      # The first descriptor that is handed over.
      FIRST = 3
      # Variables that are for one process only.
      VARIABLES = %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].freeze

      # @return [Hash{Integer => String}] descriptor => name of each socket that was handed over
      attr_reader :sockets

      # Takes its variables from the environment: children are not to believe that they are meant.
      # @param env [Hash] the environment
      def initialize(env = ENV)
        @sockets = sockets_of(env)
        VARIABLES.each { |name| env.delete(name) }
        @address = address_of(env['NOTIFY_SOCKET'].to_s)
        @interval = interval_of(env)
      end

      # @return [Boolean] whether somebody wants to be told
      def notify?
        !@address.nil?
      end

      # @return [Float, nil] seconds after which it wants a sign of life at the latest
      attr_reader :interval

      # Tells it. Does nothing if nobody wants to be told.
      # @param words [Hash{Symbol, String => Object}] as in <tt>ready: 1, status: 'serving'</tt>
      # @return [Boolean] whether it was sent
      def notify(**words)
        return false unless @address

        text = words.map { |name, value| "#{name.to_s.upcase}=#{value.to_s.tr("\n", ' ')}" }.join("\n")
        socket = ::Socket.new(:UNIX, :DGRAM)
        socket.sendmsg_nonblock(text, 0, @address)
        true
      rescue ::SystemCallError, ::IO::WaitWritable
        false # whoever wanted to know is gone, or has no time
      ensure
        socket&.close
      end

      # Says that the configuration is being read again. Ends with notify(ready: 1).
      # @return [Boolean]
      def reloading
        notify(reloading: 1, monotonic_usec: ::Process.clock_gettime(::Process::CLOCK_MONOTONIC, :microsecond))
      end

      private

      def sockets_of(env)
        count = env['LISTEN_FDS'].to_s
        return {} unless env['LISTEN_PID'] == ::Process.pid.to_s && count.match?(/\A[1-9]\d{0,3}\z/)

        names = env['LISTEN_FDNAMES'].to_s.split(':')
        Integer(count, 10).times.to_h { |index| [FIRST + index, names[index] || 'unknown'] }
      end

      # A name that begins with @ is none of the file system.
      def address_of(path)
        case path
        when /\A@/ then ::Socket.pack_sockaddr_un("\0#{path[1..]}")
        when %r{\A/} then ::Socket.pack_sockaddr_un(path)
        end
      rescue ArgumentError
        nil # longer than such an address can be
      end

      def interval_of(env)
        usec = env['WATCHDOG_USEC'].to_s
        return unless usec.match?(/\A[1-9]\d*\z/) && [nil, ::Process.pid.to_s].include?(env['WATCHDOG_PID'])

        Integer(usec, 10) / 1_000_000.0
      end
    end
  end
end
