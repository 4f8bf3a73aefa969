# frozen_string_literal: true

require 'polyphony'
require 'excon'

module Polyphony
  module Adapters
    # Excon lets other fibers run by itself. But it has one socket for each thread, so that two fibers which share a connection would
    # read each other's answers; and it tidies up after StandardErrors only. Here each fiber has a socket of its own, which is closed when
    # a request is stopped.
    module Excon
      # @!visibility private
      def request(*)
        super
      rescue ::Excon::Error::HTTPStatus # the answer was read to its end
        raise
      rescue ::Exception # rubocop:disable Lint/RescueException -- raised again
        reset
        raise
      end

      # @!visibility private
      def reset
        super
      ensure
        @__polyphony_sockets&.delete(::Fiber.current)
      end

      private

      def sockets
        return super unless @data[:thread_safe_sockets]

        all = __sockets_of_fibers
        all[::Fiber.current] ||= begin
          all.delete_if { |fiber, sockets| !fiber.alive? && sockets.each_value(&:close) } # nobody can use them again
          {}
        end
      end

      # In a forked child they are the parent's.
      def __sockets_of_fibers
        return @__polyphony_sockets if @__polyphony_sockets && @__polyphony_pid == ::Process.pid

        @__polyphony_pid = ::Process.pid
        @__polyphony_sockets = {}.compare_by_identity
      end
    end

    missing = %i[request reset sockets].reject { |name| ::Excon::Connection.method_defined?(name) || ::Excon::Connection.private_method_defined?(name) }
    if missing.empty?
      ::Excon::Connection.prepend Excon
    else
      warn "polyphony: excon #{::Excon::VERSION} is not known to the adapter (no Excon::Connection##{missing.first}): give each fiber " \
           'an Excon connection of its own'
    end
  end
end
