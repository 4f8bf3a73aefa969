# frozen_string_literal: true

module Polyphony
  module HTTP
    class RackHandler
      # +rack.early_hints+ of a request.
      class EarlyHints
        # @param request [Request]
        def initialize(request)
          @request = request
        end

        # Sends 103. Too late is no error: it was only a hint.
        # @param headers [Hash{String => String, Array<String>}]
        # @return [nil]
        def call(headers)
          @request.early_hints(headers.transform_values { |value| values(value) }) unless @request.answered?
          nil
        end

        private

        # Rack 2 has several values in one String.
        def values(value)
          value.is_a?(String) && value.include?("\n") ? value.split("\n") : value
        end
      end

      # Hands out the connection, to the request that asks for it (+rack.hijack+).
      class Hijack
        # The socket itself, if nothing was read from it that is not ours, and if it is a socket. Else one that
        # does what the other would. It is also what +rack.hijack_io+ says.
        # @param request [HTTP1::Request]
        # @return [IO] for the caller to close
        # @raise [BadResponse] if the request has been answered
        def call(request)
          return @io if request.equal?(@request)

          @io = request.__head.env['rack.hijack_io'] = carry(request.hijack)
          @request = request
          @io
        end

        # Waits until what we carry has been carried.
        # @!visibility private
        def __wait
          @pump.wait if defined?(@pump)
        end

        private

        def carry(stream)
          socket = stream.detach
          return socket if socket

          @pump = Pump.new(stream).start
          @pump.socket
        end
      end
    end
  end
end
