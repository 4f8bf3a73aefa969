# frozen_string_literal: true

require 'polyphony'
require 'http'

module Polyphony
  module Adapters
    # The gem http lets other fibers run by itself. But when the reading of a body is stopped, or ended by a limit, a persistent client refuses
    # the next request with a StateError, and without one the socket is left to the garbage collector. Here the connection is closed at once.
    module HTTP
      # @!visibility private
      def readpartial(*)
        __closing_when_broken_off { super }
      end

      # @!visibility private
      def read_headers!
        __closing_when_broken_off { super }
      end

      # @!visibility private
      def send_request(*)
        __closing_when_broken_off { super }
      end

      private

      # Whatever was raised: what follows would be in the middle of an answer. A request that the gem refuses was not begun.
      def __closing_when_broken_off
        yield
      rescue ::HTTP::StateError
        raise
      rescue ::Exception # rubocop:disable Lint/RescueException -- raised again
        close
        raise
      end
    end

    missing = %i[readpartial read_headers! send_request close].reject { |name| ::HTTP::Connection.method_defined?(name) }
    if missing.empty?
      ::HTTP::Connection.prepend HTTP
    else
      warn "polyphony: http #{::HTTP::VERSION} is not known to the adapter (no HTTP::Connection##{missing.first}): close a persistent " \
           'client when a request in it was stopped'
    end
  end
end
