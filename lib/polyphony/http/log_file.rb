# frozen_string_literal: true

module Polyphony
  module HTTP
    # A file, or an IO, that lines are appended to. Several processes may append to one file: each line is one
    # write. When it was moved away, #reopen begins a new one.
    class LogFile
      # @return [String, nil] nil: an IO that was given to us
      attr_reader :path

      # @param target [String, IO, nil] a path; +-+: standard output; nil: standard error
      # @raise [SystemCallError] if it cannot be opened
      def initialize(target = nil)
        case target
        when nil then @io = $stderr
        when '-' then @io = $stdout
        when ::String then @io = open(@path = ::File.expand_path(target))
        else @io = target
        end
      end

      # @param text [String] whole lines
      # @return [Integer] bytes
      def write(text)
        @io.write(text).tap { @io.flush unless @path }
      end

      # The file of that name as it is now.
      # @return [Boolean] whether there was something to do
      # @raise [SystemCallError] if it cannot be opened; the old one stays
      def reopen
        return false unless @path

        fresh = open(@path)
        old, @io = @io, fresh
        old.close
        true
      end

      # Whose it becomes when privileges are dropped. What is another's file under this name, by a link, is not given away.
      # @!visibility private
      def chown(uid, gid)
        @io.chown(uid, gid) if @path && @io.stat.file? && !linked?
      end

      # @return [nil] an IO that was given to us stays open
      def close
        @io.close if @path
        nil
      end

      private

      # @return [Boolean] whether the file has another name, too, or only that
      def linked?
        stat = @io.stat
        here = ::File.lstat(@path)
        stat.nlink > 1 || [stat.dev, stat.ino] != [here.dev, here.ino]
      end

      def open(path)
        ::File.open(path, ::File::WRONLY | ::File::APPEND | ::File::CREAT | ::File::NONBLOCK, 0o640).tap { |io| io.sync = true }
      end
    end
  end
end
