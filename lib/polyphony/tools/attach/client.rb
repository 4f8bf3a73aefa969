# frozen_string_literal: true

require 'json'
require 'polyphony/tools/attach/place'

module Polyphony
  module Attach
    # The other side: asks a running program. Plain Ruby, without the extension.
    # @api private
    class Client
      # Why it cannot be looked at, for a user.
      class Refused < ::StandardError; end

      # Seconds between two signals: the first may come just when the program has closed its socket.
      AGAIN = 0.5

      # @param pid [Integer]
      # @param wait [Numeric] seconds
      # @raise [Refused]
      def initialize(pid, wait: 15)
        @pid = pid
        @wait = wait
        check
        @socket = connect
      end

      # @return [Hash] the answer
      # @raise [Refused]
      def ask(word, id = nil)
        @socket.puts(JSON.generate({ do: word, id: id }.compact))
        line = @socket.gets or raise Refused, "process #{@pid} has ended"
        JSON.parse(line, symbolize_names: true, max_nesting: false).tap { |answer| raise Refused, answer[:error] if answer[:error] }
      rescue ::SystemCallError, ::IOError
        raise Refused, "process #{@pid} has ended"
      end

      # @return [IO]
      def to_io
        @socket
      end

      def close
        @socket.close
      end

      private

      # Before anything is sent: a signal that a program does not know may end it, though this one would not.
      def check
        ::Process.kill(0, @pid)
        status = ::File.read("/proc/#{@pid}/status")
        check_user(status[/^Uid:\s+\d+\s+(\d+)/, 1].to_i)
        caught = status[/^SigCgt:\s*(\h+)/, 1].to_s.hex
        return if (caught >> (::Signal.list[SIGNAL] - 1)).odd?

        raise Refused, "process #{@pid} does not listen: Polyphony is not loaded there, or POLYPHONY_ATTACH=off is set"
      rescue ::Errno::ESRCH
        raise Refused, "there is no process #{@pid}"
      rescue ::Errno::EPERM
        raise Refused, "process #{@pid} belongs to another user"
      rescue ::Errno::ENOENT
        nil # a system without /proc
      end

      def check_user(uid)
        return if uid == ::Process.euid

        raise Refused, "process #{@pid} belongs to user #{uid}, and only that one may look: sudo -u '##{uid}' polyphony ..."
      end

      def connect
        finish = now + @wait
        until now > finish
          socket = try and return verified(socket)

          ::Process.kill(SIGNAL, @pid)
          pause = now + AGAIN
          sleep 0.01 until ::File.socket?(Place.socket(@pid)) || now > pause
        end
        raise Refused, "process #{@pid} has not answered within #{@wait} s: its main thread is held in a call that does not come back, " \
                       "or the program handles SIG#{SIGNAL} itself"
      rescue ::Errno::ESRCH
        raise Refused, "process #{@pid} has ended"
      end

      def try
        ::UNIXSocket.new(Place.socket(@pid))
      rescue ::Errno::ENOENT, ::Errno::ECONNREFUSED
        nil
      end

      def verified(socket)
        Place.check
        return socket if Place.same_user?(socket)

        socket.close
        raise Refused, "the socket of process #{@pid} is another user's"
      rescue ::SecurityError => e
        raise Refused, e.message
      end

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end
    end
  end
end
