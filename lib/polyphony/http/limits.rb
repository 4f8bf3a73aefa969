# frozen_string_literal: true

module Polyphony
  module HTTP
    # What a client may cost us. Sizes are bytes, times are seconds.
    #
    # @example
    #   Polyphony::HTTP::Limits.new(body: 1 << 30, keep_alive: 15)
    class Limits
      # Every limit: its default, and what it holds. nil in place of a number takes a limit away, where
      # it says so.
      TABLE = {
        request_line:         [8_192, 'request line; longer: 414 (a method or version that long: 400)'],
        header_block:         [65_536, 'header block; more: 431'],
        header_fields:        [100, 'header fields; more: 431'],
        chunk_line:           [4_096, 'line with the size of a chunk and its extensions; longer: 400'],
        chunk_overhead:       [16_384, 'extensions of all chunks of a body together; more: 400'],
        trailers:             [8_192, 'trailer block; more: 431'],
        body:                 [16_777_216, 'request body; more: 413. nil: the application decides'],
        header_time:          [10, 'from the first byte of a request to the end of its head; longer: 408'],
        body_grace:           [10, 'how long a body may be slower than body_rate'],
        body_rate:            [1_024, 'bytes a second a body has to come with; slower: 408'],
        write_stall:          [10, 'how long a client may take nothing of our answer; longer: closed'],
        keep_alive:           [65, 'idle time between two requests; longer: closed'],
        requests:             [1_000, 'requests a connection; then it is closed'],
        handshake_time:       [10, 'TLS handshake; longer: closed'],
        connections:          [1_024, 'open connections a worker; then accepting pauses, and who asks for nothing makes room'],
        drain_time:           [30, 'how long a stopping server waits for requests in progress'],
        drain_idle:           [0.5, 'how long it waits for requests on their way before idle connections are closed'],
        h2_streams:           [100, 'HTTP/2: requests at a time; more: REFUSED_STREAM'],
        h2_running:           [8_192, 'HTTP/2: requests in progress a worker; more than one of a connection: REFUSED_STREAM'],
        h2_header_list:       [65_536, 'HTTP/2: decoded header list, 32 added for each field; more: 431'],
        h2_continuations:     [8, 'HTTP/2: CONTINUATION frames a header block; more: ENHANCE_YOUR_CALM'],
        h2_window:            [1_048_576, 'HTTP/2: window of a connection, grown by what is consumed'],
        h2_stream_window:     [65_535, 'HTTP/2: window of a stream, grown by what is consumed'],
        h2_queue:             [1_000, 'HTTP/2: control frames waiting to be sent, or frames without use at once; more: ENHANCE_YOUR_CALM'],
        h2_resets:            [200, 'HTTP/2: resets a client may cause at once; more: ENHANCE_YOUR_CALM'],
        h2_reset_rate:        [33, 'HTTP/2: resets a second it may cause in the long run'],
        h2_settings_time:     [10, 'HTTP/2: until our SETTINGS are acknowledged; longer: SETTINGS_TIMEOUT'],
        h2_stall:             [30, 'HTTP/2: how long a stream may wait for its window; longer: reset'],
        ws_frame:             [1_048_576, 'WebSocket: a frame; more: 1009'],
        ws_message:           [8_388_608, 'WebSocket: a message, inflated; more: 1009'],
        ws_fragments:         [1_024, 'WebSocket: fragments of a message; more: 1009'],
        ws_ping:              [30, 'WebSocket: a ping is sent after so much silence. nil: never'],
        ws_pong:              [20, 'WebSocket: time to answer a ping; longer: closed'],
        ws_close:             [5, 'WebSocket: time to answer a close; longer: closed'],
        ws_queue:             [1_048_576, 'WebSocket: posted bytes that wait for a slow client; more: closed']
      }.freeze
      # Those that may be nil.
      OPTIONAL = %i[body ws_ping requests].freeze

      # @!attribute [r] request_line
      #   @return [Integer] see TABLE
      # @!attribute [r] header_block
      #   @return [Integer] see TABLE
      # @!attribute [r] header_fields
      #   @return [Integer] see TABLE
      # @!attribute [r] chunk_line
      #   @return [Integer] see TABLE
      # @!attribute [r] chunk_overhead
      #   @return [Integer] see TABLE
      # @!attribute [r] trailers
      #   @return [Integer] see TABLE
      # @!attribute [r] body
      #   @return [Integer, nil] see TABLE
      # @!attribute [r] header_time
      #   @return [Numeric] see TABLE
      # @!attribute [r] body_grace
      #   @return [Numeric] see TABLE
      # @!attribute [r] body_rate
      #   @return [Numeric] see TABLE
      # @!attribute [r] write_stall
      #   @return [Numeric] see TABLE
      # @!attribute [r] keep_alive
      #   @return [Numeric] see TABLE
      # @!attribute [r] requests
      #   @return [Integer, nil] see TABLE
      # @!attribute [r] handshake_time
      #   @return [Numeric] see TABLE
      # @!attribute [r] connections
      #   @return [Integer] see TABLE
      # @!attribute [r] drain_time
      #   @return [Numeric] see TABLE
      # @!attribute [r] drain_idle
      #   @return [Numeric] see TABLE
      # @!attribute [r] h2_streams
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_running
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_header_list
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_continuations
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_window
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_stream_window
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_queue
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_resets
      #   @return [Integer] see TABLE
      # @!attribute [r] h2_reset_rate
      #   @return [Numeric] see TABLE
      # @!attribute [r] h2_settings_time
      #   @return [Numeric] see TABLE
      # @!attribute [r] h2_stall
      #   @return [Numeric] see TABLE
      # @!attribute [r] ws_frame
      #   @return [Integer] see TABLE
      # @!attribute [r] ws_message
      #   @return [Integer] see TABLE
      # @!attribute [r] ws_fragments
      #   @return [Integer] see TABLE
      # @!attribute [r] ws_ping
      #   @return [Numeric, nil] see TABLE
      # @!attribute [r] ws_pong
      #   @return [Numeric] see TABLE
      # @!attribute [r] ws_close
      #   @return [Numeric] see TABLE
      # @!attribute [r] ws_queue
      #   @return [Integer] see TABLE
      TABLE.each_key { |name| attr_reader name }

      # @param values [Hash{Symbol => Numeric, nil}] those that are not the default; see TABLE
      # @raise [ArgumentError] for a name that is none, or a value that is no positive number
      def initialize(**values)
        unknown = values.keys - TABLE.keys
        unless unknown.empty?
          raise ArgumentError, "no such limit: #{unknown.first.inspect}; there are #{TABLE.keys.join(', ')}"
        end

        TABLE.each { |name, (default, _)| instance_variable_set(:"@#{name}", check(name, values.fetch(name, default))) }
        freeze
      end

      # @return [Hash{Symbol => Numeric, nil}]
      def to_h
        TABLE.to_h { |name, _| [name, public_send(name)] }
      end

      # @return [Limits] these, but for the given ones
      def with(**values)
        self.class.new(**to_h, **values)
      end

      private

      def check(name, value)
        return value if value.nil? && OPTIONAL.include?(name)
        return value if value.is_a?(Numeric) && value.positive?

        raise ArgumentError, "limit #{name} must be a positive number#{' or nil' if OPTIONAL.include?(name)}, " \
                             "got #{value.inspect}"
      end
    end
  end
end
