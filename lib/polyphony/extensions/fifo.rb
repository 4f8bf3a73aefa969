# frozen_string_literal: true

require 'polyphony/extensions/aside'

module Polyphony
  # What opens files does this when the path names a FIFO: until somebody opens the other end, only the
  # fiber waits. Called by direct_paths.c and class_stand_in.c.
  # @api private
  module Fifo
    INITIALIZE = ::File.instance_method(:initialize)
    SYSOPEN = ::IO.method(:sysopen).unbind
    # Since Ruby 3.4 an open that is interrupted is made again.
    STUBBORN = ::RUBY_VERSION >= '3.4'
    private_constant :INITIALIZE, :SYSOPEN, :STUBBORN

    class << self
      # @!method prepend_everywhere
      #   @return [self]

      # File#initialize, which gets the block of File.open as well
      def initialize_file(file, *args, **options, &_)
        Aside.run(->(_) { file.close }, stubborn: STUBBORN) do
          INITIALIZE.bind_call(file, *args, **options)
          file
        end
        nil
      end

      # IO.sysopen
      def sysopen(receiver, *args)
        Aside.run(->(fd) { ::IO.for_fd(fd).close }, stubborn: STUBBORN) { SYSOPEN.bind_call(receiver, *args) }
      end

      # Kernel#open
      def open(_receiver, *args, **options, &block)
        ::File.open(*args, **options, &block)
      end

      # IO.read
      def read(path, length = nil, offset = nil, **options)
        ::File.open(path, **options) { |file| at(file, offset).read(length) }
      end

      # IO.binread
      def binread(path, length = nil, offset = nil)
        ::File.open(path, 'rb:ASCII-8BIT') { |file| at(file, offset).read(length) }
      end

      # IO.readlines
      def readlines(path, *args, chomp: false, **options) # steep:ignore MethodParameterMismatch
        ::File.open(path, **options) { |file| file.readlines(*args, chomp: chomp) }
      end

      # IO.foreach
      def foreach(path, *args, chomp: false, **options, &block)
        return ::IO.to_enum(:foreach, path, *args, chomp: chomp, **options) unless block

        ::File.open(path, **options) { |file| file.each_line(*args, chomp: chomp, &block) }
        nil
      end

      # IO.write
      def write(path, text, offset = nil, mode: flags(offset), perm: 0o666, **options)
        ::File.open(path, mode, perm, **options) { |file| at(file, offset).write(text) }
      end

      # IO.binwrite
      def binwrite(path, text, offset = nil, **options)
        write(path, text, offset, binmode: true, **options)
      end

      private

      # A FIFO has no positions; the error is Ruby's.
      def at(file, offset)
        file.seek(offset) if offset
        file
      end

      def flags(offset)
        ::File::WRONLY | ::File::CREAT | (offset ? 0 : ::File::TRUNC)
      end
    end
  end

  private_constant :Fifo
  Fifo.prepend_everywhere
end
