# frozen_string_literal: true

module Polyphony
  module HTTP
    class Request
      # Makes a WebSocket of the request. What is no proper request for one is answered (400, 403, 405, 426) and
      # logged, and the handler ends. The connection is closed when the handler returns, if it has not been.
      # @param protocols [Array<String>] subprotocols that we speak: the first of the client's that is among them is
      #   chosen
      # @param origins [:same, :any, Array<String, Regexp>] which web pages may connect: those of this host (as
      #   named in the request), all, or those named, as in <tt>https://example.org</tt>. A client that is no browser
      #   says no origin and may always
      # @param compress [Boolean, :context] whether messages are compressed, if the client can. +:context+: also by referring
      #   to earlier messages, which is smaller and costs 300 KB a connection
      # @yield [WebSocket] it is closed at the end of the block
      # @return [WebSocket, Object] what the block returns, if there is one
      # @raise [BadRequest] for a request that is none for a WebSocket
      # @raise [BadResponse] if it was answered already
      # @example
      #   request.upgrade_to_websocket(protocols: %w[chat]) { |ws| ws.each { |message| ws << message } }
      def upgrade_to_websocket(protocols: [], origins: :same, compress: true)
        socket = WebSocket.__accept(self, protocols, origins, compress)
        connection.__upgraded(socket)
        on_finish { |error| end_websocket(socket, error) }
        return socket unless block_given?

        result = yield socket
        socket.close
        result
      end

      # @return [Boolean] whether the client asks for a WebSocket
      def websocket?
        version == '2' ? protocol == 'websocket' : self['upgrade'].to_s.casecmp?('websocket')
      end

      private

      # Called on every way out of the handler. Someone who is being stopped does not wait for an answer.
      def end_websocket(socket, error)
        connection.__left(socket)
        if $! && !$!.is_a?(StandardError) then socket.__leave(1001)
        else socket.close(error ? 1011 : 1000)
        end
      end
    end
  end
end
