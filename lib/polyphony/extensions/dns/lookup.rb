# frozen_string_literal: true

module Polyphony
  # Stock Ruby's lookups, by the same resolver of the system, while other fibers run. Numbers, wrong
  # arguments and threads that have no other fibers are left to stock Ruby.
  module DNSExtensions
    NUMBERS = ::Socket::NI_NUMERICHOST | ::Socket::NI_NUMERICSERV
    private_constant :NUMBERS

    # What its parts share.
    module Lookup
      FAMILIES = { true => 'AF_INET6', false => 'AF_INET' }
                 .transform_values { |name| name.encode('US-ASCII').freeze }.freeze
      private_constant :FAMILIES

      class << self
        # @!visibility private
        # Whether the resolver has to be asked, and there are fibers that could run meanwhile.
        def needed?(host, service = nil)
          may_wait? && Polyphony.__lookup_needed?(host, service)
        end

        # @!visibility private
        def may_wait?
          Thread.__polyphony_may_wait?
        end

        # @!visibility private
        # Arguments as numbers; nil if there is one that stock Ruby is to judge.
        def hints(family, socktype, protocol, flags)
          hints = [constant(family, 'AF_', /\A[AP]F_/), constant(socktype, 'SOCK_', /\ASOCK_/), protocol || 0, flags || 0]
          hints if hints.all?(Integer)
        end

        # @!visibility private
        # Numbers that do not fit the other arguments: asked through a scheduler, Ruby takes them for a name
        # that is not known. Where it asks none, it says what is wrong.
        # @yield calls stock Ruby's method
        def of_numbers(&block)
          yield
        rescue ::SocketError
          raise unless Fiber.current_scheduler && may_wait?

          without_scheduler(&block)
        end

        # @!visibility private
        # Ruby calls no hooks in a blocking fiber.
        def without_scheduler(&block)
          Fiber.new(blocking: true, &block).resume
        end

        # @!visibility private
        # @yield makes the lookup
        # @raise [Errno::ETIMEDOUT] after that many seconds
        def limit(seconds, &block)
          return yield unless seconds

          Polyphony.backend_timeout(seconds, [Errno::ETIMEDOUT, 'user specified timeout'], &block)
        end

        # @!visibility private
        # @param row [Array] of Backend#getaddrinfo
        # @return [Addrinfo] which shows what was asked for, as stock Ruby's do
        def addrinfo(row, label)
          address, family, socktype, protocol, canonical = row
          plain = ::Addrinfo.new(address, family, socktype, protocol)
          return plain unless label || canonical

          state = plain.marshal_dump
          state[5, 2] = canonical, label
          ::Addrinfo.allocate.tap { |info| info.marshal_load(state) }
        rescue ::SocketError # a protocol without a name cannot be dumped
          plain
        end

        # @!visibility private
        # What was asked for and is not to be seen in the address itself.
        def label(address, host, service)
          number, port = numeric(address)
          host = nil if host == number || !host.is_a?(String)
          service = nil if [port, port.to_i, 0].include?(service)
          service ? "#{host}:#{service}" : host
        end

        # @!visibility private
        # @return [Array(String, String)] host and port of a packed address
        def numeric(address)
          ::Socket.getnameinfo(address, NUMBERS)
        end

        # @!visibility private
        # @return [Array] of four, as IPSocket#addr has it
        def describe(address, reverse)
          number, port = numeric(address)
          [FAMILIES.fetch(::Addrinfo.new(address).ipv6?).dup, port.to_i, (name_of(address) if reverse) || number, number]
        end

        # @!visibility private
        # @return [String, nil] nil if it has none
        def name_of(address)
          Polyphony.backend_getnameinfo(address, ::Socket::NI_NUMERICSERV).first
        rescue ::SocketError
          nil
        end

        # @!visibility private
        # Whether a name is wanted, where an argument may say so and +default+ holds without it. nil for what
        # stock Ruby is to judge.
        def reverse?(argument, default)
          { nil => default, true => true, hostname: true, false => false, numeric: false }[argument]
        end

        private

        def constant(value, prefix, known)
          return value || 0 unless value.is_a?(String) || value.is_a?(Symbol)

          name = prefix + value.to_s.sub(known, '')
          ::Socket.const_get(name) if name.match?(/\A[A-Z][A-Z0-9_]*\z/) && ::Socket.const_defined?(name)
        end
      end
    end
    private_constant :Lookup
  end
end
