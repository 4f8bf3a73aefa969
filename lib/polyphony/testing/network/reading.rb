# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # The reading methods of IO, on top of +fill+, which waits for more bytes in +@buffer+ and is false at the end. Strings are
      # binary, as those of sockets are.
      module Reading
        include Enumerable

        # @param most [Integer] bytes
        # @param buffer [String, nil]
        # @return [String] what there is, at least one byte
        # @raise [EOFError]
        def readpartial(most, buffer = nil)
          check_readable
          return into(buffer, +'') if most.zero?

          fill if @buffer.empty?
          raise EOFError, 'end of file reached' if @buffer.empty?

          into(buffer, @buffer.slice!(0, most))
        end
        alias sysread readpartial

        # @param length [Integer, nil] bytes; nil: all up to the end
        # @param buffer [String, nil]
        # @return [String, nil]
        def read(length = nil, buffer = nil)
          check_readable
          raise ArgumentError, "negative length #{length} given" if length&.negative?

          nil while (length.nil? || @buffer.bytesize < length) && fill
          return nil if length&.positive? && @buffer.empty? && into(buffer, +'')

          into(buffer, length ? @buffer.slice!(0, length) : @buffer.slice!(0..))
        end

        # @param separator [String, nil] nil: all up to the end; empty: a paragraph
        # @param limit [Integer, nil] bytes
        # @return [String, nil]
        def gets(separator = $/, limit = nil, chomp: false)
          separator, limit = $/, separator if separator.is_a?(Integer)
          check_readable
          line = take_line(separator, limit)
          line&.chomp!(separator == '' ? "\n" : separator) if chomp && separator
          $_ = line
        end

        # @return [String]
        # @raise [EOFError]
        def readline(*arguments, **options)
          gets(*arguments, **options) || raise(EOFError, 'end of file reached')
        end

        # @yield [String]
        # @return [self, Enumerator]
        def each_line(*arguments, **options)
          return enum_for(:each_line, *arguments, **options) unless block_given?

          while (line = gets(*arguments, **options)) do yield line end
          self
        end
        alias each each_line

        # @return [Array<String>]
        def readlines(*arguments, **options)
          each_line(*arguments, **options).to_a
        end

        # @return [Integer, nil]
        def getbyte
          read(1)&.ord
        end

        # @return [Integer]
        def readbyte
          getbyte || raise(EOFError, 'end of file reached')
        end

        # @return [String, nil] one byte as a String: it has no encoding
        def getc
          read(1)
        end

        # Puts bytes back.
        # @param bytes [String, Integer]
        # @return [nil]
        def ungetbyte(bytes)
          @buffer.prepend((bytes.is_a?(Integer) ? (bytes & 255).chr : bytes).b)
          nil
        end
        alias ungetc ungetbyte

        # @return [Boolean] waits for bytes or the end
        def eof?
          check_readable
          @buffer.empty? && !fill
        end
        alias eof eof?

        private

        def into(buffer, string)
          buffer ? buffer.replace(string) : string
        end

        def take_line(separator, limit)
          return +'' if limit&.zero?

          skip_newlines if separator == ''
          mark = separator == '' ? "\n\n" : separator
          searched = 0
          until (found = mark && @buffer.index(mark.b, searched)) || (limit && @buffer.bytesize >= limit)
            searched = [@buffer.bytesize - (mark || '').bytesize, 0].max
            break unless fill
          end
          size = found ? found + mark.bytesize : @buffer.bytesize
          @buffer.empty? ? nil : @buffer.slice!(0, [size, limit].compact.min)
        end

        def skip_newlines
          @buffer.slice!(0, 1) while (!@buffer.empty? || fill) && @buffer.start_with?("\n")
        end
      end
    end
  end
end
