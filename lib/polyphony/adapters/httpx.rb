# frozen_string_literal: true

require 'polyphony'
require 'httpx'

module Polyphony
  module Adapters
    # httpx lets other fibers run by itself. But a request that is stopped, or ended by a time limit around it, stays in a persistent
    # session: the next one that uses the connection waits for the old answer, or sends the old request a second time. Here it is
    # taken out, and its connection closed, as httpx does when a limit of its own is over. Requests of other fibers on that connection
    # end with an error of httpx.
    module HTTPX
      private

      def receive_requests(requests, *)
        super
      rescue ::Exception # rubocop:disable Lint/RescueException -- raised again
        requests.each { |request| __give_up(request) }
        raise
      end

      def __give_up(request)
        return if request.state == :done && request.response

        connection = request.instance_variable_get(:@connection) # what connection= has set; it has no reader
        connection&.on_error(::Errno::ECONNRESET.new('the request was given up'), request)
      end
    end

    if ::HTTPX::Session.private_method_defined?(:receive_requests) && ::HTTPX::Connection.method_defined?(:on_error) &&
       ::HTTPX::Request.method_defined?(:connection=)
      ::HTTPX::Session.prepend HTTPX
    else
      warn "polyphony: httpx #{::HTTPX::VERSION} is not known to the adapter: do not use a persistent session after a request in it was stopped"
    end
  end
end
