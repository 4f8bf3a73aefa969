# frozen_string_literal: true

module Polyphony
  module HTTP
    class HTTP2
      # The protocol of a connection, written in C on libnghttp2. It never waits and never calls back: bytes are fed
      # and pulled, and what happened comes as events. For HTTP2, not for users.
      class Session
        # @!method self.nghttp2_version
        #   @return [String] of the library that is loaded, as in +1.52.0+

        # @!method initialize(limits)
        #   @param limits [Hash{Symbol => Numeric, nil}] see Limits#to_h

        # @!method upgrade(settings, head)
        #   Begins with a request that came by HTTP/1, as stream 1.
        #   @param settings [String] payload of a SETTINGS frame
        #   @param head [Boolean] whether it is a HEAD
        #   @return [Boolean] false for settings that are none

        # @!method feed(buffer)
        #   Takes all bytes of the client that are in the buffer, and empties it.
        #   @return [Array, nil] events, see #events

        # @!method events
        #   What happened since they were asked for last: an Array is a new request (stream, verb, target, headers,
        #   protocol of an extended CONNECT, whether a body follows; then status and reason, if it is to be refused); an
        #   Integer a stream for which somebody waited; a String a fault of the client's, for the log.
        #   @return [Array, nil]

        # @!method check
        #   Looks at the clocks.
        #   @return [nil]

        # @!method wait_time
        #   @return [Float] seconds after which #check has to be called, if no bytes come

        # @!method pull(output, limit)
        #   Puts frames for the client into the String, in place of what it holds.
        #   @param limit [Integer] about so many bytes
        #   @return [Boolean] whether there were any

        # @!method pending?
        #   @return [Boolean] whether #pull has something

        # @!method open?
        #   @return [Boolean] whether bytes of the client are of interest

        # @!method idle?
        #   @return [Boolean] whether there are no streams and no handlers

        # @!method failure
        #   @return [String, nil] why the connection ends, if it is the client's fault

        # @!method drain
        #   Asks the client to go, without setting the last stream.
        #   @return [nil]

        # @!method drained
        #   Sets the last stream, if #drain was called before.
        #   @return [nil]

        # @!method close
        #   The connection is gone, and all streams with it.
        #   @return [nil]

        # @!method take(stream)
        #   @return [String, nil, Boolean] bytes of the request's body; nil: an event will tell when there are some;
        #     true: that was all; false: the stream was reset

        # @!method trailers(stream)
        #   @return [Hash{String => String}, nil] what came behind the body

        # @!method trailers_too_large?(stream)
        #   @return [Boolean]

        # @!method respond(stream, status, headers, length, body, last)
        #   Begins an answer.
        #   @param length [Integer, nil] for content-length
        #   @param body [String, nil] all of it
        #   @param last [Boolean] whether there is none
        #   @return [Boolean] false: the stream is closed
        #   @raise [BadResponse] for headers that must not be sent

        # @!method inform(stream, status, headers)
        #   Sends an answer before the answer (1xx).
        #   @return [Boolean] false: the stream is closed

        # @!method send_data(stream, data)
        #   Adds to the body.
        #   @return [Boolean, nil] true: go on; nil: wait for #room; false: the stream is closed

        # @!method room(stream)
        #   @return [Boolean, nil] true: more can be added; nil: an event will tell when it can; false: the stream is closed

        # @!method finish(stream, trailers)
        #   Ends the body.
        #   @param trailers [Hash, nil]
        #   @return [Boolean] false: the stream is closed

        # @!method reset(stream, code)
        #   @param code [Integer] of RST_STREAM
        #   @return [Boolean] false: the stream is closed

        # @!method release(stream)
        #   The handler has ended.
        #   @return [nil]
      end
    end
  end
end
