# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # While a network stands in for the real one, connections to its hosts are made in memory. In front of Ruby's own methods
      # only after the first use.
      # @api private
      module StandIn
        @networks = []

        # TCPSocket.new, and .open, which calls it.
        module TCP
          def new(host = nil, port = nil, *rest, **options)
            network = equal?(::TCPSocket) ? StandIn.find(host, port) : nil
            network ? network.connect(host, port, timeout: options[:connect_timeout]) : super
          end

          def open(host = nil, port = nil, *rest, **options, &block)
            network = equal?(::TCPSocket) ? StandIn.find(host, port) : nil
            network ? StandIn.closing(network.connect(host, port, timeout: options[:connect_timeout]), &block) : super
          end
        end

        # Socket.tcp
        module Sockets
          def tcp(host, port, *rest, **options, &block)
            network = StandIn.find(host, port)
            network ? StandIn.closing(network.connect(host, port, timeout: options[:connect_timeout]), &block) : super
          end
        end

        class << self
          def with(network)
            raise ArgumentError, 'stand_in needs a block to run' unless block_given?

            ::TCPSocket.singleton_class.prepend(TCP)
            ::Socket.singleton_class.prepend(Sockets)
            @networks.unshift(network)
            yield
          ensure
            index = @networks.index { |one| one.equal?(network) }
            @networks.delete_at(index) if index
          end

          def find(host, port)
            @networks.find { |network| network.listens?(host, port) } unless host.nil? || port.nil?
          end

          def closing(stream)
            return stream unless block_given?

            begin
              yield stream
            ensure
              stream.close
            end
          end
        end
      end

      private_constant :StandIn
    end
  end
end
