# frozen_string_literal: true

require 'ipaddr'

module Polyphony
  module HTTP
    class AccessLog
      # Proxies that are believed when they tell for whom they ask.
      # @!visibility private
      class Proxies
        # @param networks [Array<String>]
        # @raise [ArgumentError] for what is no network
        def initialize(networks)
          @networks = networks.map do |network|
            IPAddr.new(network)
          rescue IPAddr::Error
            raise ArgumentError, "a trusted proxy must be an address or a network as in 10.0.0.0/8, got #{network.inspect}"
          end
        end

        # The last of those who are not trusted: what stands before it, anybody can have written.
        # @param peer [String, nil] who is connected to us; nil: somebody on this machine, by a unix socket
        # @param forwarded [String, nil] X-Forwarded-For
        # @return [String, nil]
        def client(peer, forwarded)
          return peer if @networks.empty? || !trusted?(peer)

          forwarded.to_s.split(',').reverse_each do |text|
            address = text.strip
            return peer unless address?(address)
            return address unless trusted?(address)

            peer = address
          end
          peer
        end

        private

        # A unix socket is reached by who may reach it.
        def trusted?(address)
          return true if address.nil?

          ip = IPAddr.new(address)
          @networks.any? { |network| network.family == ip.family && network.include?(ip) }
        rescue IPAddr::Error
          false
        end

        def address?(text)
          text.bytesize <= 45 && IPAddr.new(text) && true
        rescue IPAddr::Error
          false
        end
      end
    end
  end
end
