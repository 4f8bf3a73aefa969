# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # What is put before the class methods of PG::Connection.
      # @api private
      module Connecting
        SYNC_PING = ::PG::Connection.singleton_class.instance_method(:sync_ping)
        private_constant :SYNC_PING

        # libpq waits for the answer by itself, so a thread does.
        def ping(*args)
          thread = ::Thread.new { SYNC_PING.bind_call(self, *args) }
          thread.report_on_exception = false
          thread.value
        end
        alias async_ping ping
        alias sync_ping ping

        def sync_connect(*args, &block)
          async_connect(*args, &block)
        end

        private

        # Stock leaves names that it cannot resolve to libpq, which would look for them again and stop the thread; and takes a
        # cancel for such a failure.
        def resolve_hosts(options)
          hosts = options[:host].split(',', -1)
          ports = (options[:port] || '').split(',', -1)
          ports = [nil] if ports.empty?
          ports *= hosts.size if ports.size == 1
          raise ::PG::ConnectionBad, "could not match #{ports.size} port numbers to #{hosts.size} hosts" if ports.size != hosts.size

          places = places_of(hosts.zip(ports))
          options.merge(hostaddr: places.map(&:first).join(','), host: places.map { |place| place[1] }.join(','),
                        port: places.map(&:last).join(','))
        end

        # @return [Array<Array>] [address, host, port] of all that can be resolved
        def places_of(hosts)
          failures = []
          places = hosts.flat_map do |host, port|
            addresses_of(host).map { |address| [address, host, port] }
          rescue ::SocketError => e
            failures << "could not translate host name \"#{host}\" to address: #{e.message}"
            []
          end
          raise ::PG::ConnectionBad, failures.join("\n") if places.empty?

          places
        end

        def addresses_of(host)
          return [nil] if host.empty? || host.start_with?('/', '@') # a socket of the file system

          ::Addrinfo.getaddrinfo(host, nil, nil, :STREAM).map(&:ip_address)
        end
      end
    end
  end
end
