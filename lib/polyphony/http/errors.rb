# frozen_string_literal: true

module Polyphony
  module HTTP
    # What goes wrong between us and a client.
    class Error < StandardError; end

    # The client sent what we do not take. It is answered with +status+ and the connection is closed; the
    # message goes to the log, never to the client.
    class BadRequest < Error
      # @return [Integer] the status of the answer
      attr_reader :status

      # @param message [String] for the log
      # @param status [Integer]
      def initialize(message = 'bad request', status = 400)
        @status = status
        super(message)
      end
    end

    # The client took too long: to send a head (+408+), a body, or to read our answer.
    class TooSlow < BadRequest
      # @param message [String] for the log
      def initialize(message = 'too slow')
        super(message, 408)
      end
    end

    # The client is gone: it closed or reset the connection, or the stream, before all was said. Raised where
    # a handler reads from it or writes to it. A handler need not rescue it.
    class ClientGone < Error; end

    # The handler answered something that must not be sent: a header with a line break, a status that is
    # none, a body of another length than it said.
    class BadResponse < Error; end
  end
end
