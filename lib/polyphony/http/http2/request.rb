# frozen_string_literal: true

module Polyphony
  module HTTP
    class HTTP2
      # A request on a stream.
      class Request < HTTP::Request
        # How many bytes of a file are read at once.
        FILE_PIECE = 65_536
        # What a handler has not read of a body is thrown away, if it is no more than this and comes within so many seconds.
        MOST_UNREAD = 65_536
        PATIENCE = 1
        private_constant :FILE_PIECE, :MOST_UNREAD, :PATIENCE

        # @return [Integer] of the stream
        # @!visibility private
        attr_reader :id
        # @return [String, nil] what an extended CONNECT asks for, as in +websocket+
        attr_reader :protocol

        # @!visibility private
        def initialize(http2, id, verb, target, headers, protocol, body)
          @http2 = http2
          @session = http2.session
          @connection = http2.connection
          @id = id
          @verb = verb
          @target = target
          @headers = headers
          @protocol = protocol
          @body = body
          @state = :idle
          @status = @declared = @waiting = nil
          @sent = 0
        end

        # (see HTTP::Request#version)
        def version
          '2'
        end

        # What the client calls it is not asked: it might say https where there is no TLS.
        # @return [String] +http+ or +https+
        def scheme
          @connection.transport.scheme
        end

        # @param base [RackHandler::Environment::Base]
        # @return [Hash] env of Rack
        # @!visibility private
        def __make_env(base)
          HTTP.__http2_env(base, self, @verb, @target, @headers)
        end

        # The stream has news.
        # @!visibility private
        def __wake
          @waiting&.wake_all
        end

        # Reads what the handler has not, if it is little. A client that was told to stop in the middle of it may take
        # that for a failure and throw our answer away, as curl did until 8.0; most have sent all already, or soon will have.
        # @!visibility private
        def __discard_rest
          return unless @body && @state == :done && !@duplex
          return if @headers.key?('expect') && !@continued # it was not asked for

          deadline = Clock.now + PATIENCE
          rest = 0
          while rest <= MOST_UNREAD && (data = __take([deadline - Clock.now, 0].max))
            rest += data.bytesize
          end
        rescue ClientGone
          nil
        end

        # The handler has ended.
        # @!visibility private
        def __release
          @duplex&.close
          @session.release(@id)
        end

        # --- for Duplex -------------------------------------------------------------------------

        # @param timeout [Numeric, nil]
        # @return [String, nil, false] bytes; nil at the end; false when the time is over
        # @!visibility private
        def __take(timeout)
          deadline = timeout && (Clock.now + timeout)
          loop do
            data = @session.take(@id)
            return received(data) if data.is_a?(String)
            return nil if data
            raise ClientGone, 'the client has reset the stream' if data == false
            return false unless await_news(deadline && [deadline - Clock.now, 0].max)
          end
        end

        # @!visibility private
        def __write(data)
          after(@session.send_data(@id, data))
        end

        # @!visibility private
        def __close
          @session.finish(@id, nil)
          @http2.flush
        end

        # @!visibility private
        def __reset
          @session.reset(@id, CANCEL)
          @http2.flush
        end

        private

        # --- what Request asks for --------------------------------------------------------------

        def __body?
          @body
        end

        def __read_chunk
          return unless @body && !@duplex

          say_continue unless @continued
          data = take_in_time or return check_trailers
          @received = (@received || 0) + data.bytesize
          most = @http2.limits.body
          raise BadRequest.new('body too large (HTTP/2)', 413) if most && @received > most

          data
        end

        def __trailers
          @session.trailers(@id) || {}
        end

        def __send_head(status, headers, length, last)
          after(@session.respond(@id, status, headers, length, nil, last))
        end

        def __send_whole(status, headers, body)
          empty = body.empty?
          after(@session.respond(@id, status, headers, body.bytesize, empty ? nil : body, empty), body.bytesize)
        end

        def __send_data(data)
          after(@session.send_data(@id, data))
        end

        def __send_file(file, offset, length)
          while length.positive?
            data = file.pread([length, FILE_PIECE].min, offset)
            __send_data(data)
            offset += data.bytesize
            length -= data.bytesize
          end
        end

        def __send_last(trailers)
          after(@session.finish(@id, trailers))
        end

        def __send_info(status, headers)
          after(@session.inform(@id, status, headers))
        end

        def __upgrade(protocol, headers)
          unless @protocol&.casecmp?(protocol)
            raise BadResponse, "the client has not asked for an upgrade to #{protocol}"
          end

          __send_head(200, headers, nil, false)
          Stream.new(@duplex = Duplex.new(self))
        end

        def __abort(_reason)
          @session.reset(@id, INTERNAL_ERROR)
          @http2.flush
        end

        # --- waiting ----------------------------------------------------------------------------

        # @return [Object] false when the time is over
        def await_news(timeout)
          (@waiting ||= WaitList.new(self, 'the client')).park(timeout)
        end

        # The answer of the session: true, go on; nil, wait until the client took some; false, it is gone.
        def after(answer, size = 0)
          raise ClientGone, 'the client has reset the stream' if answer == false

          @http2.flush
          return if answer && size < 65_536

          loop do
            case @session.room(@id)
            when true then return
            when false then raise ClientGone, 'the client has reset the stream'
            else await_news(nil)
            end
          end
        end

        def say_continue
          @continued = true
          return unless @headers.key?('expect') && @state == :idle

          after(@session.inform(@id, 100, {}))
        end

        # Slow is who had to be waited for longer than the grace and the time that what came may take.
        def take_in_time
          limits = @http2.limits
          began = Clock.now
          @waited ||= 0
          data = __take([limits.body_grace + ((@received || 0) / limits.body_rate) - @waited, 0].max)
          raise TooSlow, "a body came slower than #{limits.body_rate} bytes a second (HTTP/2)" if data == false

          @waited += Clock.now - began
          data
        end

        def check_trailers
          @body = false
          raise BadRequest.new('trailers too large (HTTP/2)', 431) if @session.trailers_too_large?(@id)
        end

        def received(data)
          @http2.flush # maybe its window grows
          data
        end
      end
    end
  end
end
