# frozen_string_literal: true

module Polyphony
  module Telemetry
    # What a library for tracing has to tell Polyphony: make a subclass, and override what it has an answer to. Hooks are
    # called in all threads. None may wait: they run in the middle of a spin, of a push to a queue, of a request.
    # Those with a block have to call it, once, and to return what it returns.
    # @see Polyphony::Telemetry.hooks=
    class Hooks
      # Where a fiber is spun, a thread is made, a job handed over or a message sent: the context to go along with it.
      # @return [Object, nil] nil: none
      def capture
        nil
      end

      # Runs a block in a context that was captured, in another fiber or thread, perhaps many times.
      # @param _context [Object] what capture has returned
      # @yield what is to run in it
      def carry(_context)
        yield
      end

      # Runs the block of a fiber that was spun within a context. Also called when the fiber is restarted. An end by
      # Fiber#stop is a Polyphony::BaseException that comes out of the block.
      # @param _fiber [Fiber] which is the current one
      # @param context [Object] what capture has returned
      # @yield what was given to spin
      def fiber(_fiber, context, &block)
        carry(context, &block)
      end

      # Runs a block without any context.
      # @yield what is to run so
      def apart
        yield
      end

      # Writes the present context down for another program.
      # @param headers [#[]=] names and values, Strings
      # @return [#[]=] the same
      def inject(headers)
        headers
      end

      # Reads what another program has written down.
      # @param _headers [Hash{String => String}] names in lower case. They may be anybody's
      # @return [Object, nil] a context for carry; nil: none
      def extract(_headers)
        nil
      end

      # A request of the web server: runs its handler.
      # @param _request [Polyphony::HTTP::Request] afterwards its status is known
      # @yield the handler
      # @yieldreturn [Exception, nil] what it has raised, which is dealt with. An exception that ends the fiber comes out of the block
      def request(_request)
        yield
      end

      # A request that Net::HTTP is about to send: runs it.
      # @param _call [Polyphony::Telemetry::Call]
      # @yield sends it; afterwards the status of the answer is known
      def call(_call)
        yield
      end

      # @return [Hash{Symbol => String}] the present context, for logs
      def ids
        {}
      end
    end

    # A request to a server elsewhere.
    class Call
      # @return [String]
      attr_reader :verb
      # @return [String] +http+ or +https+
      attr_reader :scheme
      # @return [String]
      attr_reader :host
      # @return [Integer]
      attr_reader :port
      # @return [String] without the query, in which there may be secrets
      attr_reader :path
      # @return [#[]=] those of the request, to add to
      attr_reader :headers
      # @return [Integer, nil] of the answer, when it has come
      attr_accessor :status

      # @api private
      def initialize(verb:, scheme:, host:, port:, path:, headers:)
        @verb = verb
        @scheme = scheme
        @host = host
        @port = port
        @path = path
        @headers = headers
        @status = nil
      end
    end
  end
end
