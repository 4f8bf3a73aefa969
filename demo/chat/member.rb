# frozen_string_literal: true

require 'json'

module Demo
  module Chat
    # Somebody who is connected. Telling them something never waits: the WebSocket sends it when it can, and cuts
    # off a client that does not keep up. That one comes back by itself and gets what it has missed from the
    # history.
    class Member
      # Closes the WebSocket of a tab that was left open when its person came back.
      REPLACED = 4001

      attr_reader :name, :session
      attr_accessor :room

      def initialize(socket, name, session)
        @socket = socket
        @name = name
        @session = session
      end

      # @param frame [Polyphony::HTTP::WebSocket::Frame] an event, made ready for many
      def <<(frame)
        @socket.post(frame)
        self
      end

      def tell(**event)
        @socket.post(JSON.generate(event))
      end

      # @param nonce [String, nil] the number that the page gave to the message in question
      def complain(code, text, nonce = nil)
        tell(type: 'error', code: code, text: text, nonce: nonce)
      end

      def replace
        @socket.close(REPLACED, 'came back in another connection')
      end
    end
  end
end
