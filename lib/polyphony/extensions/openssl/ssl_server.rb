# frozen_string_literal: true

require 'polyphony/extensions/openssl/handshakes'

module Polyphony
  # Accepting TLS connections for ever. The stock +accept+ is left as it is: with +start_immediately+, it
  # waits for the client's part of the handshake, and so do those that come behind.
  module SSLServerExtensions
    # Seconds a client may take to say what TLS begins with.
    HANDSHAKE_TIMEOUT = 10
    # How many connections may be between accept and the block.
    MOST_HANDSHAKES = 1000
    private_constant :HANDSHAKE_TIMEOUT, :MOST_HANDSHAKES

    # @return [OpenSSL::SSL::SSLContext]
    def ctx
      @ctx
    end

    # Accepts for ever, until the server is closed, which raises IOError. Each handshake has a fiber of its
    # own: a client that is slow, or says nothing, keeps nobody waiting. The block is called in the
    # current fiber, one connection after the other, in the order in which their handshakes end; so it
    # should spin. A server whose +start_immediately+ is false gives connections to the block before their
    # handshake.
    #
    # @param ignore_errors [Boolean] whether connections whose handshake fails are closed and forgotten;
    #   else the error is raised. Errors of your own code in a callback of the context are raised always.
    # @param handshake_timeout [Numeric, nil] seconds
    # @param most_handshakes [Integer] how many may go on at once; more wait to be accepted
    # @yield [OpenSSL::SSL::SSLSocket] closing it closes the connection
    # @example
    #   server.accept_loop { |socket| spin { serve(socket) } }
    def accept_loop(ignore_errors: true, handshake_timeout: HANDSHAKE_TIMEOUT, most_handshakes: MOST_HANDSHAKES)
      raise ArgumentError, 'accept_loop needs a block that is given the connections' unless block_given?

      handshakes = Handshakes.new(@ctx, timeout: handshake_timeout, most: most_handshakes, ignore_errors: ignore_errors)
      Polyphony.scope do |scope|
        scope.spin(:accept) { handshakes.accept_from(@svr, at_once: @start_immediately) }
        yield handshakes.shift while true # rubocop:disable Style/InfiniteLoop -- loop rescues StopIteration
      end
    ensure
      handshakes&.close
    end

    ::OpenSSL::SSL::SSLServer.prepend self
  end
end
