# frozen_string_literal: true

module Polyphony
  module HTTP
    class HTTP2
      # A stream as Stream wants it, in place of a Transport: after an extended CONNECT (RFC 8441).
      # @!visibility private
      class Duplex
        # @param request [Request]
        def initialize(request)
          @request = request
        end

        # Waits for bytes and appends them to the buffer.
        # @return [Integer, nil, false] see Transport#fill
        def fill(buffer, timeout = nil)
          data = @request.__take(timeout) or return data
          buffer << data
          data.bytesize
        end

        # Waits until there is room for them.
        # @param strings [Array<String>]
        def write(*strings)
          strings.each { |string| @request.__write(string) unless string.empty? }
        end

        # Says that nothing more comes from us.
        def close_write
          @request.__close
        end

        # Ends our side; what the client still sends is thrown away when the handler ends.
        def close
          @request.__close
        end

        # Ends both sides with an error.
        def reset
          @request.__reset
        end
      end
    end
  end
end
