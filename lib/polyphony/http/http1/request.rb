# frozen_string_literal: true

module Polyphony
  module HTTP
    class HTTP1
      # A request of HTTP/1. What its head says is made into Strings when it is asked for.
      class Request < HTTP::Request
        # Bodies up to this size go out together with their head, in one piece.
        SMALL = 16_384
        private_constant :SMALL

        # @param http1 [HTTP1]
        # @param head [Head]
        # @param body [Boolean] whether there is one
        # @!visibility private
        def initialize(http1, head, body)
          @http1 = http1
          @head = head
          @state = :idle # an object with three variables needs no memory beside it, and most need no more
          @body = true if body
        end

        # (see HTTP::Request#connection)
        def connection
          @http1.connection
        end

        # (see HTTP::Request#verb)
        def verb
          @head.verb
        end

        # (see HTTP::Request#status)
        def status
          @status || @head.status
        end

        # (see HTTP::Request#sent)
        def sent
          @sent || @head.sent
        end

        # (see HTTP::Request#target)
        def target
          @target ||= @head.target
        end

        # (see HTTP::Request#path)
        def path
          @path ||= @head.path
        end

        # (see HTTP::Request#query)
        def query
          @head.query
        end

        # (see HTTP::Request#version)
        def version
          @head.version
        end

        # (see HTTP::Request#scheme)
        def scheme
          connection.transport.scheme
        end

        # (see HTTP::Request#headers)
        def headers
          @headers ||= @head.headers
        end

        # (see HTTP::Request#[])
        def [](name)
          name = name.name.tr('_', '-') if name.is_a?(Symbol)
          @headers ? @headers[name.downcase] : @head[name]
        end

        # (see HTTP::Request#authority)
        def authority
          @head.host
        end
        alias host authority

        # Takes the connection over: nothing is answered, and it is not closed when the handler returns.
        # @return [Stream] whose bytes belong to the caller now
        # @raise [BadResponse] if the answer has begun
        def hijack
          raise BadResponse, 'the answer has begun, so the connection cannot be taken over' unless @state == :idle

          @state = :done
          connection.__give_away
          @http1.go_over
        end

        # (see HTTP::Request#inspect)
        def inspect
          "#<#{self.class} #{verb} #{target[0, 100]}>"
        end

        # A short way for what most answers are.
        # @!visibility private
        def __respond(status, headers, body)
          return super if @body || @state != :idle

          rest = @http1.parser.express(@head, @http1.__free_socket, @http1.__tls, status, headers, body) or return super
          @state = :done
          @http1.write(rest) unless rest == true
          self
        end

        # +rack.hijack+ was called.
        # @return [IO]
        # @!visibility private
        def __rack_hijack
          connection.app_data.hijack.call(self)
        end

        # @!visibility private
        def __plain(status, headers, body, rack2)
          return super if @body || @state != :idle

          rest = @http1.parser.express_rack(@head, @http1.__free_socket, @http1.__tls, status, headers, body, rack2) or return super
          @state = :done
          @http1.write(rest) unless rest == true
          true
        end

        # What runs from here on may take its time, and the client has been answered.
        # @!visibility private
        def __finished(error)
          @http1.__release
          super
        end

        # @!visibility private
        def __read_into(string, most)
          @http1.read_into(string, most) if @body && @http1.request.equal?(self)
        end

        private

        def __body?
          @body ? true : false
        end

        # A request that is over must not read what belongs to the next.
        def __read_chunk
          @http1.read_body if @body && @http1.request.equal?(self)
        end

        def __trailers
          (@body && @http1.request.equal?(self) && @http1.parser.trailers) || {}
        end

        def __send_head(status, headers, length, last)
          @http1.answering if @body
          @http1.write(@http1.parser.answer(status, headers, length, last ? nil : true))
        end

        def __send_whole(status, headers, body)
          @http1.answering if @body
          size = body.bytesize
          if size <= SMALL
            @http1.write(@http1.parser.answer(status, headers, size, body))
          else
            @http1.write_all(@http1.parser.answer(status, headers, size, false), body)
          end
        end

        def __send_data(data)
          if !@http1.parser.chunked? then @http1.write(data)
          elsif data.bytesize <= SMALL then @http1.write(@http1.parser.chunk(data))
          else @http1.write_all("#{data.bytesize.to_s(16)}\r\n", data, "\r\n")
          end
        end

        def __send_file(file, offset, length)
          return @http1.write_file(file, offset, length) unless @http1.parser.chunked?

          @http1.write_file(file, offset, length, "#{length.to_s(16)}\r\n", "\r\n")
        end

        def __send_last(trailers)
          @http1.write(@http1.parser.last_chunk(trailers)) if @http1.parser.chunked?
        rescue StandardError # of bad trailers; the body has no end now
          @http1.break_off(false)
          raise
        end

        def __send_info(status, headers)
          @http1.write(@http1.parser.info(status, headers))
        end

        def __upgrade(protocol, headers)
          asked = @head.upgrade? && HTTP.__list(self['upgrade']).any? { |one| one.casecmp?(protocol) }
          raise BadResponse, "the client has not asked for an upgrade to #{protocol}" unless asked
          raise BadResponse, 'the body has to be read before an upgrade' if @http1.parser.body?

          @http1.write(@http1.parser.info(101, { 'upgrade' => protocol, **headers }))
          @http1.go_over
        end

        # The client sees that chunks or bytes are missing; if it counts neither, the reset tells.
        def __abort(_reason)
          @http1.break_off(!@http1.parser.chunked? && @declared.nil?)
        end
      end
    end
  end
end
