# frozen_string_literal: true

module Polyphony
  # The two ends of something that bytes go through, whatever kind of object they are.
  # @api private
  module ByteEnds
    CHUNK = 16_384

    # Where bytes come from.
    class Source
      # @param object [String, IO, Pipe, #__read_method__, #call, #readpartial]
      def initialize(object)
        @object = object
        @position = 0
        @method = object.is_a?(String) ? :take : ByteEnds.word(object, :__read_method__, %i[call readpartial])
      end

      # @return [String, nil] nil at the end
      def read
        return @rest.tap { @rest = nil } if @rest

        case @method
        when :take then take
        when :backend_read then Polyphony.backend_read(@object, nil, CHUNK, false, 0)
        when :backend_recv then Polyphony.backend_recv(@object, nil, CHUNK, 0)
        when :readpartial then readpartial_or_nil
        else @object.public_send(@method, CHUNK)
        end
      end

      # For GzipReader, which asks for less than there is.
      def readpartial(*)
        read or raise ::EOFError, 'end of file reached'
      end

      # What was read and not used: read again first.
      def unread(bytes)
        @rest = bytes unless bytes.nil? || bytes.empty?
      end

      # Nothing more is read through this; what is left over goes back where that is possible.
      def finish
        Polyphony.__put_back__(@object, @rest) if @rest && %i[backend_read backend_recv].include?(@method)
      end

      private

      # In parts, between which other fibers run.
      def take
        snooze
        part = @object.byteslice(@position, CHUNK)
        return if part.nil? || part.empty?

        @position += part.bytesize
        part
      end

      def readpartial_or_nil
        @object.readpartial(CHUNK)
      rescue ::EOFError
        nil
      end
    end

    # Where bytes go.
    class Sink
      # @return [Integer] bytes written
      attr_reader :total

      # @param object [String, IO, Pipe, #__write_method__, #call, #write]
      def initialize(object)
        @object = object
        @total = 0
        @method = object.is_a?(String) ? :append : ByteEnds.word(object, :__write_method__, %i[call write])
        raise ::FrozenError, "can't modify frozen String: #{object.inspect}" if @method == :append && object.frozen?
      end

      # @return [Integer] how many
      def write(bytes)
        case @method
        when :append then append(bytes)
        when :backend_write then Polyphony.backend_write(@object, bytes)
        when :backend_send then Polyphony.backend_send(@object, bytes, 0)
        else @object.public_send(@method, bytes)
        end
        @total += bytes.bytesize
        bytes.bytesize
      end

      private

      # Others run between two parts, as they do when something is written to an IO.
      def append(bytes)
        snooze
        @object << (@object.encoding == bytes.encoding ? bytes : bytes.dup.force_encoding(@object.encoding))
      end
    end

    # @return [Symbol] the method to call on an object
    def self.word(object, asked, known)
      return object.__send__(asked) if object.respond_to?(asked)

      known.find { |name| object.respond_to?(name) } or
        raise ::TypeError, "expected a String, an IO, or something with #{known.join(' or ')}, got #{object.inspect}"
    end
  end

  private_constant :ByteEnds
end
