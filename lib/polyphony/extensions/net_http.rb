# frozen_string_literal: true

module Polyphony
  # Net::HTTP needs nothing of us to let other fibers run: its sockets do. But it tidies up after
  # StandardErrors only, and what stops a fiber, or ends it after a time limit, is none. A connection which
  # is used again after that would give the rest of one answer as the beginning of the next.
  module NetHTTPExtensions
    # As stock. If somebody traces requests, this one is told of; see Polyphony::Telemetry.
    def request(request, *)
      hooks = Telemetry.hooks
      return super unless hooks && started? # what is not started calls itself again

      call = Telemetry::Call.new(verb: request.method, scheme: use_ssl? ? 'https' : 'http', host: address, port: port,
                                 path: request.path[/\A[^?#]*/], headers: request)
      hooks.call(call) { super.tap { |response| call.status = response.code.to_i } }
    end

    private

    def transport_request(request)
      super
    rescue StandardError
      raise
    rescue Exception # rubocop:disable Lint/RescueException -- raised again
      @socket&.close
      raise
    end

    def ssl_socket_connect(socket, timeout)
      super
    rescue Exception # rubocop:disable Lint/RescueException -- raised again
      socket.close
      raise
    end

    ::Net::HTTP.prepend self
    Patches.expect ::Net::HTTP
  end
end
