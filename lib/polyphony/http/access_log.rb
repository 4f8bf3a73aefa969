# frozen_string_literal: true

require 'json'
require 'polyphony/http/access_log/mask'
require 'polyphony/http/access_log/proxies'

module Polyphony
  module HTTP
    # A line for each request. Lines are gathered, and written by a fiber of its own, so that a slow disk or a pipe that
    # nobody reads keeps no request waiting: when too much has gathered, lines are dropped and counted.
    #
    # Whatever comes from clients is escaped. Authorization and cookies are never written; of a query, values whose
    # names sound like secrets are masked.
    #
    # @example
    #   log = Polyphony::HTTP::AccessLog.new('log/access.log', format: :json)
    #   server = Polyphony::HTTP::Server.new(8080, access_log: log) { |request| request.respond('hello') }
    class AccessLog
      # How long a line may be kept, in seconds, and how many bytes may be.
      FLUSH_AFTER = 0.5
      # Bytes at which they are written at once.
      FLUSH_SIZE = 16_384
      # Bytes at which lines are dropped.
      CAPACITY = 1 << 20
      # How much of a field is written.
      FIELD = 4_096
      # Whatever is not printable ASCII, or ends a quoted field.
      UNSAFE = /[^ !#-\[\]-~]/.freeze
      private_constant :UNSAFE

      # @return [Integer] lines that were dropped since the last flush
      attr_reader :dropped

      # @param target [LogFile, String, IO, nil] see LogFile
      # @param format [:common, :combined, :json]
      # @param query [Boolean, :mask, Array<String>] whether query strings are written; :mask hides values whose names
      #   are in Mask::SECRETS, an Array adds names to these
      # @param trusted_proxies [Array<String>] networks whose X-Forwarded-For is believed
      # @raise [ArgumentError] for a format that is none, or a network
      def initialize(target = '-', format: :combined, query: :mask, trusted_proxies: [])
        @file = target.is_a?(LogFile) ? target : LogFile.new(target)
        unless %i[common combined json].include?(format)
          raise ArgumentError, "no such format: #{format.inspect}; there are :common, :combined and :json"
        end

        @format = method(:"#{format}_line")
        @mask = Mask.new(query)
        @proxies = Proxies.new(trusted_proxies)
        @buffer = String.new(encoding: Encoding::BINARY)
        @dropped = 0
        @writer = nil
        @lock = ::Mutex.new
        @second = @precise_second = nil
      end

      # Notes a request that is over.
      # @param request [Request]
      # @param seconds [Float] how long it took
      def call(request, seconds)
        line = @format.call(request, seconds)
        return @dropped += 1 if @buffer.bytesize + line.bytesize > CAPACITY

        @buffer << line << "\n"
        wake
      end

      # Writes what has gathered.
      # @return [nil]
      def flush
        @lock.synchronize { write_out }
      end

      # The file may have been moved away: what has gathered goes to the old one.
      # @return [Boolean] whether there was something to do
      def reopen
        @lock.synchronize do
          write_out
          @file.reopen
        end
      end

      # Writes what has gathered and closes the file.
      # @return [nil]
      def close
        @writer&.stop
        @writer = nil
        flush
        @file.close
      end

      # Who asks, as far as proxies that we trust tell.
      # @param request [Request]
      # @return [String, nil]
      def client(request)
        @proxies.client(request.peer, request['x-forwarded-for'])
      end

      private

      # --- lines ---------------------------------------------------------------------------------

      def common_line(request, _seconds)
        "#{field(client(request))} - - [#{time}] \"#{field(request.verb)} #{field(target(request))} " \
          "HTTP/#{request.version}\" #{request.status || '-'} #{request.sent}"
      end

      def combined_line(request, seconds)
        "#{common_line(request, seconds)} \"#{field(@mask.url(request['referer']))}\" \"#{field(request['user-agent'])}\""
      end

      # By hand: it is three times as fast as to generate it from a Hash.
      def json_line(request, seconds)
        line = +"{\"time\":\"#{precise_time}\",\"pid\":#{::Process.pid}"
        add(line, 'client', client(request))
        add(line, 'method', request.verb)
        add(line, 'path', request.path)
        add(line, 'query', @mask.query(request.query))
        line << ",\"protocol\":\"HTTP/#{request.version}\",\"status\":#{request.status || 'null'},\"bytes\":#{request.sent}," \
                "\"seconds\":#{seconds.round(6)}"
        add(line, 'host', request.authority)
        add(line, 'referer', @mask.url(request['referer']))
        add(line, 'agent', request['user-agent'])
        add(line, 'id', request['x-request-id'])
        Telemetry.ids.each { |name, value| add(line, name.to_s, value) } if Telemetry.on?
        line << '}'
      end

      def add(line, name, value)
        return if value.nil?

        line << ',"' << name << '":'
        plain?(value) ? line << '"' << value << '"' : line << JSON.generate(text(value))
      end

      # @return [Boolean] whether it may stand between quotes as it is
      def plain?(value)
        value.bytesize <= FIELD && value.ascii_only? && !value.match?(UNSAFE)
      end

      # Seconds are enough, so it is made once a second.
      def time
        now = Time.now
        return @time if @second == now.to_i

        @second = now.to_i
        @time = now.strftime('%d/%b/%Y:%H:%M:%S %z')
      end

      # With milliseconds.
      def precise_time
        now = Time.now
        unless @precise_second == now.to_i
          @precise_second = now.to_i
          @date = now.strftime('%FT%T')
          @zone = now.strftime('%:z')
        end
        "#{@date}.#{(now.nsec / 1_000_000).to_s.rjust(3, '0')}#{@zone}"
      end

      def field(value)
        return '-' if value.nil? || value.empty?
        return value if plain?(value)

        value.byteslice(0, FIELD).b.gsub(UNSAFE) { |byte| Kernel.format('\x%02X', byte.ord) }
      end

      # JSON escapes the rest; what is not UTF-8 cannot be in it, and some terminals obey C1 codes and DEL.
      def text(value)
        value = value.byteslice(0, FIELD).force_encoding(Encoding::UTF_8).scrub('?')
        value.gsub(/[\u007f-\u009f\u2028\u2029]/) { |char| Kernel.format('\u%04x', char.ord) }
      end

      def target(request)
        query = @mask.query(request.query)
        query ? "#{request.path}?#{query}" : request.path
      end

      # --- writing -------------------------------------------------------------------------------

      # The writer belongs to nobody's request, which would take it along when it ends.
      def wake
        if @writer.nil? || @writer.dead?
          @full = Event.new
          @writer = Fiber.current.thread.main_fiber.spin(:access_log) { write_on }
        elsif @buffer.bytesize >= FLUSH_SIZE then @full.signal
        end
      end

      # Ends when there is nothing to do: the next line makes a new one.
      def write_on
        until @buffer.empty?
          move_on_after(FLUSH_AFTER) { @full.await } if @buffer.bytesize < FLUSH_SIZE
          flush
        end
      ensure
        @writer = nil
        flush
      end

      def write_out
        until @buffer.empty? && @dropped.zero?
          text, @buffer = @buffer, String.new(encoding: Encoding::BINARY)
          text << dropped_line if @dropped.positive?
          @file.write(text)
        end
      rescue ::SystemCallError, ::IOError
        @dropped += text.count("\n") # a full disk must not stop the server
        nil
      end

      def dropped_line
        count, @dropped = @dropped, 0
        @format.name == :json_line ? "{\"dropped\":#{count}}\n" : "# #{count} lines dropped: the log was too slow\n"
      end
    end
  end
end
