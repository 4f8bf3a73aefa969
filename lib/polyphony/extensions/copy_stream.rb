# frozen_string_literal: true

module Polyphony
  # IO.copy_stream, while which other fibers run. Between two descriptors bytes go through a pipe, without
  # being copied to Ruby; whatever else has read, readpartial or write is asked in the fiber of the caller.
  module CopyStream
    # @param source [IO, String, #to_path, #readpartial, #read]
    # @param target [IO, String, #to_path, #write]
    # @param length [Integer, nil] at most so many bytes
    # @param offset [Integer, nil] where in the source to begin; its position stays as it is then
    # @return [Integer] how many bytes were copied
    def copy_stream(source, target, length = nil, offset = nil)
      return super unless StandIn.possible? && CopyStream.integers?(length, offset)

      Copy.new(length, offset).call(source, target) { |from, to, *rest| super(from, to, *rest) }
    end

    # What is odd is Ruby's to complain of.
    # @!visibility private
    def self.integers?(*numbers)
      numbers.all? { |number| number.nil? || number.is_a?(Integer) }
    end

    # One copy.
    # @api private
    class Copy
      CHUNK = 256 * 1024
      READ = ::IO.instance_method(:readpartial)
      PREAD = ::IO.instance_method(:pread)
      FLUSH = ::IO.instance_method(:flush)
      private_constant :CHUNK, :READ, :PREAD, :FLUSH

      # Takes nothing: for a copy of no bytes, with which Ruby looks whether the rest is in order.
      NOWHERE = Object.new
      def NOWHERE.write(text)
        text.bytesize
      end
      private_constant :NOWHERE

      # A negative number stands for none, as in stock Ruby.
      def initialize(length, offset)
        @length = length unless length&.negative?
        @offset = offset unless offset&.negative?
        @opened = []
      end

      # @yield [source, target, length, offset] copies as stock Ruby does
      def call(source, target, &stock)
        from = io_for(source, ::File::RDONLY)
        stock.call(from, NOWHERE, 0) if from
        to = io_for(target, ::File::WRONLY | ::File::CREAT | ::File::TRUNC)
        FLUSH.bind_call(to) if to
        copy(from, to, source, target, stock)
      ensure
        @opened.reverse_each(&:close)
      end

      # Reads from the IO, for stock Ruby, which writes what it gets.
      def readpartial(length, buffer)
        return READ.bind_call(@from, length, buffer) unless @offset

        PREAD.bind_call(@from, length, @offset, buffer).tap { @offset += buffer.bytesize }
      end

      private

      # @return [IO, nil] nil for what is to be asked by its methods
      def io_for(object, flags)
        return if object.equal?(ARGF)
        return unless object.is_a?(::IO) || object.is_a?(String) || object.respond_to?(:to_path)

        ::IO.try_convert(object) || ::File.new(object, flags | ::File::NOCTTY, 0o666).tap { |file| @opened << file }
      end

      def copy(from, to, source, target, stock)
        if from && to
          stock.call(from, to, 0)
          @offset ? copy_from_offset(from, to) : splice(from, to)
        elsif from
          @from = from
          stock.call(self, target, @length)
        else
          stock.call(source, to || target, @length, @offset)
        end
      end

      def splice(from, to)
        return Polyphony.backend_splice(from, to, -CHUNK) unless @length

        total = 0
        while total < @length
          count = Polyphony.backend_splice(from, to, @length - total)
          break if count.zero?

          total += count
        end
        total
      end

      def copy_from_offset(from, to)
        total = 0
        buffer = +''
        while (size = [CHUNK, (@length || CHUNK + total) - total].min).positive?
          PREAD.bind_call(from, size, @offset + total, buffer)
          total += Polyphony.backend_write(to, buffer)
        end
        total
      rescue ::EOFError
        total
      end
    end
    private_constant :Copy

    ::IO.singleton_class.prepend self
  end
end
