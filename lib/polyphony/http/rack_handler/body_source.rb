# frozen_string_literal: true

module Polyphony
  module HTTP
    class RackHandler
      # Lets a Stream read the body of a request and write the body of its answer: both directions at the same
      # time, framed as the protocol wants it.
      class BodySource
        # @param request [Request] whose answer has begun
        # @param dechunker [Dechunker, nil] if the application makes chunks itself
        def initialize(request, dechunker = nil)
          @request = request
          @dechunker = dechunker
        end

        # @return [Integer, nil, false]
        def fill(buffer, _timeout = nil)
          chunk = @request.read_chunk or return
          buffer << chunk
          chunk.bytesize
        end

        # @param strings [Array<String>]
        def write(*strings)
          strings.each do |string|
            @dechunker ? @dechunker.feed(string) { |data| @request.send_chunk(data) } : @request.send_chunk(string)
          end
        end

        # Ends the answer.
        def close_write
          return if @request.finished?

          @dechunker&.finish
          @request.finish
        end
        alias close close_write

        # Gives the answer up; the client sees that it is not whole.
        def reset
          @request.__give_up
        end
      end
    end
  end
end
