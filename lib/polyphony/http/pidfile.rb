# frozen_string_literal: true

require 'fileutils'

module Polyphony
  module HTTP
    # A file with the number of the process in it.
    # @!visibility private
    class Pidfile
      # @param path [String, nil] nil: none is wanted
      def initialize(path)
        @path = path && ::File.expand_path(path)
      end

      # @return [String, nil]
      attr_reader :path

      # @raise [ConfigError] if the process in it runs
      def write
        return unless @path

        other = number
        if other && other != ::Process.pid && runs?(other)
          raise ConfigError, "#{@path} says that process #{other} serves already. Stop it, or take another pidfile"
        end

        put unless other == ::Process.pid
      rescue ::SystemCallError => e
        raise ConfigError, "cannot write the pidfile #{@path}: #{ConfigError.reason(e)}"
      end

      # If it is ours.
      def remove
        ::File.unlink(@path) if @path && number == ::Process.pid
      rescue ::SystemCallError
        nil # left behind, then: it will be found stale
      end

      private

      # Whole, or not at all. The folder may be another user's, who has put a link where the new file is to be.
      def put
        fresh = "#{@path}.#{::Process.pid}"
        ::FileUtils.rm_f(fresh)
        ::File.open(fresh, ::File::WRONLY | ::File::CREAT | ::File::EXCL, 0o644) { |file| file.write("#{::Process.pid}\n") }
        ::File.rename(fresh, @path)
      end

      def number
        ::File.read(@path, 20).to_s[/\A\d+/]&.to_i
      rescue ::Errno::ENOENT
        nil
      end

      def runs?(pid)
        ::Process.kill(0, pid)
        true
      rescue ::Errno::EPERM
        true
      rescue ::SystemCallError, ::RangeError
        false
      end
    end
    private_constant :Pidfile
  end
end
