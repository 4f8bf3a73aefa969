# frozen_string_literal: true

require 'socket'
require 'stringio'
require 'polyphony/testing/seed'
require 'polyphony/testing/network/conditions'
require 'polyphony/testing/network/wire'
require 'polyphony/testing/network/reading'
require 'polyphony/testing/network/stream'
require 'polyphony/testing/network/listener'
require 'polyphony/testing/network/datagram'
require 'polyphony/testing/network/stand_in'

module Polyphony
  module Testing
    # A network in memory: hosts are names, connections are objects, and what goes wrong is up to you and a seed. There are no
    # descriptors and no operations of the kernel, so time may be virtual and every run is the same.
    #
    # @example
    #   network = Polyphony::Testing.network(latency: 0.05, chunk: 1..10, seed: 7)
    #   server = network.listen('api.test', 80)
    #   spin { socket = server.accept; socket << socket.gets.upcase }
    #   client = network.connect('api.test', 80)
    #   client.puts 'hello'
    #   client.gets                                           #=> "HELLO\n"
    class Network
      # @return [Integer]
      attr_reader :seed
      # @return [Conditions] what happens to what is sent; may be changed at any time
      attr_reader :conditions
      # @return [Hash{Symbol => Integer}] what has happened: +connections+, +segments+, +lost+, +short_writes+, +resets+
      attr_reader :counts

      # @!visibility private
      def initialize(seed, **conditions)
        @seed = Seed.from(seed)
        @random = Random.new(@seed)
        @conditions = Conditions.new(@random, **conditions)
        @listeners = {}
        @datagrams = {}
        @counts = Hash.new(0)
        @last_port = 49_151
      end

      # A server for others to connect to.
      # @param host [String] any name
      # @param port [Integer]
      # @param backlog [Integer] how many connections may wait to be accepted
      # @return [Listener]
      # @raise [Errno::EADDRINUSE]
      def listen(host, port, backlog: 128)
        key = [host.to_s, Integer(port)]
        raise Errno::EADDRINUSE, "#{host}:#{port}" if @listeners[key]

        @listeners[key] = Listener.new(self, *key, backlog)
      end

      # Waits for the time that a question and its answer take.
      # @param host [String]
      # @param port [Integer]
      # @param timeout [Numeric, nil] seconds
      # @return [Stream]
      # @raise [Errno::ECONNREFUSED] if nobody listens there, or nobody accepts
      # @raise [Errno::ETIMEDOUT]
      def connect(host, port, timeout: nil)
        delay = @conditions.__delay + @conditions.__delay
        Polyphony.backend_sleep([delay, timeout].compact.min) if delay.positive?
        raise Errno::ETIMEDOUT, "connect(2) for #{host}:#{port}, in memory" if timeout && delay > timeout

        listener = @listeners[[host.to_s, Integer(port)]]
        raise Errno::ECONNREFUSED, "connect(2) for #{host}:#{port}, in memory" unless listener&.__room?

        ours, theirs = streams(['client.test', @last_port += 1], [host.to_s, Integer(port)])
        listener.__push(theirs)
        ours
      end

      # @return [Array(Stream, Stream)] two ends of one connection
      def pair
        streams(['left.test', 1], ['right.test', 2])
      end

      # A socket for datagrams: some are lost, and a Range of latencies lets them overtake each other.
      # @param host [String]
      # @param port [Integer]
      # @return [Datagram]
      # @raise [Errno::EADDRINUSE]
      def datagram(host, port)
        key = [host.to_s, Integer(port)]
        raise Errno::EADDRINUSE, "#{host}:#{port}" if @datagrams[key]

        @datagrams[key] = Datagram.new(self, *key)
      end

      # While the block runs, +TCPSocket.new+, +TCPSocket.open+ and +Socket.tcp+ connect to hosts of this network, if somebody
      # listens there: Net::HTTP and its like come here. Other hosts are real ones, as ever.
      # @yield
      # @return [Object] what the block returns
      def stand_in(&block)
        StandIn.with(self, &block)
      end

      # @return [Boolean] whether somebody listens there
      def listens?(host, port)
        @listeners.key?([host.to_s, port.to_i])
      end

      # @return [String]
      def inspect
        "#<#{self.class} seed #{@seed}, #{@listeners.size} listening>"
      end

      # @!visibility private
      def __forget(listener)
        @listeners.delete_if { |_, one| one.equal?(listener) }
        @datagrams.delete_if { |_, one| one.equal?(listener) }
      end

      # @!visibility private
      def __datagram_at(host, port)
        @datagrams[[host.to_s, Integer(port)]]
      end

      # @!visibility private
      def __count(what)
        @counts[what] += 1
      end

      private

      def streams(left, right)
        __count(:connections)
        there, back = Wire.new(self), Wire.new(self)
        there.back, back.back = back, there
        [Stream.new(self, back, there, left, right), Stream.new(self, there, back, right, left)]
      end
    end

    class << self
      # @param seed [Integer, nil] of all chances; nil: that of POLYPHONY_SEED, or a new one
      # @param conditions [Hash] see Network::Conditions
      # @return [Network]
      def network(seed: nil, **conditions)
        Network.new(seed, **conditions)
      end
    end
  end
end
