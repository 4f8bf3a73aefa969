# frozen_string_literal: true

module Polyphony
  module HTTP
    class RackHandler
      # The body of a request as +rack.input+: bytes come from the client when they are asked for, and are
      # gone when they were read.
      class Input
        # How much is received at once.
        PIECE = 65_536
        private_constant :PIECE

        # @param request [Request]
        def initialize(request)
          @request = request
          @buffer = String.new(encoding: Encoding::BINARY)
          @ended = false
          @closed = false
          @__error = nil
        end

        # @param length [Integer, nil] so many bytes, fewer only at the end; nil: until the end
        # @param into [String, nil] is replaced by them
        # @return [String, nil] nil at the end, if a length was asked for
        # @raise [ClientGone] if the client went away before all was sent
        # @raise [BadRequest] if the body breaks the rules or a limit
        def read(length = nil, into = nil)
          check_open
          raise ArgumentError, "negative length #{length} given" if length&.negative?

          data = length ? read_some(length) : read_rest
          return data unless into

          into.replace(data || '')
          data && into
        end

        # @return [String] at most so many bytes, as soon as there are any
        # @raise [EOFError] at the end
        def readpartial(length, into = nil)
          check_open
          raise EOFError, 'end of the body' if @buffer.empty? && !fill

          data = @buffer.slice!(0, length)
          into ? into.replace(data) : data
        end

        # @return [String, nil] the next line with its end; nil at the end
        def gets
          check_open
          searched = 0
          until (cut = @buffer.index("\n", searched))
            searched = @buffer.bytesize
            break unless fill
          end
          return @buffer.slice!(0, cut + 1) if cut

          @buffer.empty? ? nil : take_all
        end

        # Yields what comes, in the pieces in which it came.
        # @yield [String]
        # @return [self]
        def each
          return to_enum unless block_given?

          check_open
          yield take_all until @buffer.empty? && !fill
          self
        end

        # @return [Boolean] waits until it is known
        def eof?
          check_open
          @buffer.empty? && !fill
        end

        # Says that the rest is not needed.
        # @return [nil]
        def close
          @closed = true
          @buffer.clear
          nil
        end

        # @return [Boolean]
        def closed?
          @closed
        end

        # @return [Encoding]
        def external_encoding
          Encoding::BINARY
        end

        # @return [self] it is binary
        def binmode
          self
        end

        # The request is over.
        # @!visibility private
        def __release; end

        # @return [BadRequest, nil] what was wrong with the body
        # @!visibility private
        attr_reader :__error

        private

        def check_open
          raise IOError, 'closed stream' if @closed
        end

        def read_some(length)
          @buffer = String.new(capacity: length < PIECE ? length : PIECE) if @buffer.empty? && !@ended
          nil while @buffer.bytesize < length && fill(length - @buffer.bytesize)
          return if @buffer.empty? && length.positive?

          length >= @buffer.bytesize ? take_all : @buffer.slice!(0, length)
        end

        def read_rest
          nil while fill(PIECE)
          take_all
        end

        def take_all
          data = @buffer
          @buffer = String.new(encoding: Encoding::BINARY)
          data
        end

        # @param most [Integer, nil] bytes, if it is known how many are wanted: then they need not be copied
        # @return [Boolean] whether bytes came
        def fill(most = nil)
          return false if @ended
          return true if most && read_into(most)

          chunk = next_chunk
          @ended = chunk.nil?
          return false if @ended

          @buffer.empty? ? @buffer = chunk : @buffer << chunk
          true
        end

        def next_chunk
          receive
        end

        def receive
          @request.read_chunk
        rescue BadRequest => e
          @__error = e
          raise
        end

        def read_into(most)
          @request.__read_into(@buffer, most < PIECE ? most : PIECE)
        end
      end

      # What Rack 2 wants: an input that can be read again from its beginning. What was read is kept, in memory
      # and then in a file.
      class RewindableInput < Input
        # More than this goes into a file.
        MEMORY = 131_072

        def initialize(request)
          super
          @tape = nil # a StringIO, then a Tempfile
          @length = 0 # bytes on the tape
          @position = 0 # of what was put into the buffer
        end

        # @return [Integer] 0
        def rewind
          check_open
          @buffer.clear
          @position = 0
          @ended = false
          0
        end

        # @!visibility private
        def __release
          @tape.close! if @tape.respond_to?(:close!)
          @tape = nil
        end

        private

        # What is read has to be kept.
        def read_into(_most)
          nil
        end

        def next_chunk
          return replay if @position < @length

          chunk = receive or return
          keep(chunk)
          @position = @length
          chunk
        end

        def replay
          @tape.pos = @position
          chunk = @tape.read(65_536)
          @position += chunk.bytesize
          chunk
        end

        def keep(chunk)
          use_file if @length <= MEMORY && @length + chunk.bytesize > MEMORY
          @tape ||= StringIO.new(String.new(encoding: Encoding::BINARY))
          @tape.pos = @length
          @tape.write(chunk)
          @length += chunk.bytesize
        end

        def use_file
          require 'tempfile'
          file = Tempfile.new('rack-input', binmode: true)
          file.write(@tape.string) if @tape
          @tape = file
        end
      end

      # The input of a request without a body. It has no state, so there is one for all.
      class EmptyInput
        # @return [String, nil]
        def read(length = nil, into = nil)
          into&.clear
          return if length&.positive?

          into || String.new(encoding: Encoding::BINARY)
        end

        # @raise [EOFError] always
        def readpartial(_length, _into = nil)
          raise EOFError, 'end of the body'
        end

        # @return [nil]
        def gets
          nil
        end

        # @return [self]
        def each
          block_given? ? self : [].each
        end

        # @return [Boolean]
        def eof?
          true
        end

        # @return [Integer] 0
        def rewind
          0
        end

        # @return [nil]
        def close
          nil
        end

        # @return [Boolean]
        def closed?
          false
        end

        # @return [Encoding]
        def external_encoding
          Encoding::BINARY
        end

        # @return [self]
        def binmode
          self
        end

        # @return [Integer] 0
        def size
          0
        end

        # @!visibility private
        def __release; end

        # @!visibility private
        def __error; end
      end
    end
  end
end
