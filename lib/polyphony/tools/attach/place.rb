# frozen_string_literal: true

require 'socket'

module Polyphony
  module Attach
    # What is said to a program that somebody wants to look at. Ignored by programs that know nothing of it.
    SIGNAL = 'URG'

    # Where the socket of a process is: in a folder that is its user's alone. Both sides have to come to the same one, so it
    # does not depend on the environment.
    # @api private
    module Place
      class << self
        # @return [String]
        def folder(uid = ::Process.euid)
          own = "/run/user/#{uid}"
          base = ::File.stat(own)
          base.directory? && base.owned? ? "#{own}/polyphony" : "/tmp/polyphony-#{uid}"
        rescue ::SystemCallError
          "/tmp/polyphony-#{uid}"
        end

        # @return [String]
        def socket(pid = ::Process.pid)
          "#{folder}/#{pid}.sock"
        end

        # Makes it, or makes sure that nobody else can have put anything into it.
        # @raise [SecurityError]
        def prepare
          path = folder
          begin
            ::Dir.mkdir(path, 0o700)
          rescue ::Errno::EEXIST
            nil
          end
          check(path)
          path
        end

        # Takes away what programs have left behind that were killed. Nobody listens there: whether there is a process with
        # that number tells nothing where containers share a folder.
        # @param age [Numeric] seconds; younger ones may be about to listen
        def sweep(age = 60)
          ::Dir.glob("#{folder}/*.sock").each do |path|
            ::File.unlink(path) if ::Time.now - ::File.lstat(path).mtime > age && deserted?(path)
          rescue ::SystemCallError
            nil # somebody else was faster
          end
        end

        # @raise [SecurityError]
        def check(path = folder)
          found = ::File.lstat(path)
          return if found.directory? && found.uid == ::Process.euid && (found.mode & 0o077).zero?

          raise ::SecurityError, "#{path} must be a folder of your own that nobody else may enter: rm -r it, or chmod 700"
        end

        # @param socket [UNIXSocket]
        # @return [Boolean] whether the other side is this user, by what the kernel says
        def same_user?(socket)
          socket.getpeereid.first == ::Process.euid
        end

        private

        def deserted?(path)
          ::UNIXSocket.new(path).close
          false
        rescue ::Errno::ECONNREFUSED
          true
        end
      end
    end
    private_constant :Place
  end
  private_constant :Attach
end
