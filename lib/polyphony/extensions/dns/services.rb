# frozen_string_literal: true

module Polyphony
  module DNSExtensions
    # Where Ruby resolves a host through a fiber scheduler, it takes only numbers for the service, and no
    # address with a scope ("fe80::1%eth0"). So a service is made a number before, and a scope keeps
    # the scheduler out.
    module TCPSocketService
      # As stock.
      def initialize(*args, **options)
        Services.numbers(args, [1, 3], :STREAM)
        Services.with_scope([args[0], args[2]]) { super(*args, **options) }
      end
    end

    # @see TCPSocketService
    module TCPServerService
      # As stock.
      def initialize(*args)
        Services.numbers(args, [-1], :STREAM)
        Services.with_scope([args[-2]]) { super(*args) }
      end
    end

    # @see TCPSocketService
    module UDPService
      # As stock.
      def connect(*args)
        Services.numbers(args, [1], :DGRAM)
        Services.with_scope([args[0]]) { super(*args) }
      end

      # As stock.
      def bind(*args)
        Services.numbers(args, [1], :DGRAM)
        Services.with_scope([args[0]]) { super(*args) }
      end

      # As stock.
      def send(*args)
        Services.numbers(args, [3], :DGRAM)
        Services.with_scope([args[2]]) { super(*args) }
      end
    end

    # What these share.
    module Services
      class << self
        # @!visibility private
        # Puts the number of a service into the place of its name.
        def numbers(args, places, type)
          places.each do |place|
            service = args[place]
            args[place] = number(service, type) if service.is_a?(String) && Lookup.needed?(nil, service)
          end
        end

        # @!visibility private
        def with_scope(hosts, &block)
          scoped = hosts.any? { |host| host.is_a?(String) && host.include?('%') }
          return yield unless scoped && Fiber.current_scheduler && Lookup.may_wait?

          Lookup.without_scheduler(&block)
        end

        private

        def number(service, type)
          ::Addrinfo.getaddrinfo(nil, service, nil, type).first.ip_port
        end
      end
    end
    private_constant :Services

    ::TCPSocket.prepend TCPSocketService
    ::TCPServer.prepend TCPServerService
    ::UDPSocket.prepend UDPService
  end
end
