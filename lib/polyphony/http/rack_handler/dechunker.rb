# frozen_string_literal: true

module Polyphony
  module HTTP
    class RackHandler
      # Takes a body apart that an application has put into chunks itself, as the streaming templates of Rails
      # do: how a body is framed is the server's business, and in HTTP/2 there are no chunks.
      class Dechunker
        # A line with the size of a chunk, and its extensions, is not longer.
        LINE = 4_096

        def initialize
          @buffer = String.new(encoding: Encoding::BINARY)
          @left = 0 # bytes of the chunk that are to come
          @state = :size # then :data, :data_end, and :over after the last chunk
        end

        # @param bytes [String] as they come, in pieces of any size
        # @yield [String] what was in the chunks
        # @raise [BadResponse] if these are no chunks
        def feed(bytes, &block)
          return if @state == :over # trailers

          @buffer << bytes.dup.force_encoding(Encoding::BINARY)
          nil while step(&block)
        end

        # @raise [BadResponse] if the last chunk has not come
        def finish
          raise BadResponse, 'the body says that it is chunked, but has no last chunk' unless @state == :over
        end

        private

        def step(&block)
          case @state
          when :size then size
          when :data then data(&block)
          when :data_end then data_end
          end
        end

        def size
          cut = @buffer.index("\r\n") or return too_long
          line = @buffer.slice!(0, cut + 2)
          digits = line[/\A(\h{1,15})[ \t]*(?:;.*)?\r\n\z/n, 1] or not_chunked
          @left = digits.hex
          @state = @left.zero? ? :over : :data
          !@left.zero?
        end

        def too_long
          not_chunked if @buffer.bytesize > LINE || @buffer.match?(/\A[^\h]/n)
          false
        end

        def data
          return if @buffer.empty?

          piece = @buffer.slice!(0, @left)
          @left -= piece.bytesize
          @state = :data_end if @left.zero?
          yield piece
          true
        end

        def data_end
          return if @buffer.bytesize < 2

          not_chunked unless @buffer.slice!(0, 2) == "\r\n"
          @state = :size
          true
        end

        def not_chunked
          raise BadResponse, 'the application says transfer-encoding: chunked, but its body is not in chunks: ' \
                             'leave the header out, the server does the rest'
        end
      end
    end
  end
end
