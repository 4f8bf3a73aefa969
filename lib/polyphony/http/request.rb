# frozen_string_literal: true

module Polyphony
  module HTTP
    # A request and the way to answer it. The handler gets one as soon as its head is in; the body is read
    # when it is asked for, and the answer goes out while it is made: a handler that is faster than its client
    # waits for it.
    #
    # This is what HTTP/1 and HTTP/2 have in common. Each has a subclass with the methods +__like_this+ at
    # the end, which is all that a protocol has to bring along.
    class Request
      # No headers.
      NONE = {}.freeze
      # How much of a body is received at once.
      PIECE = 65_536
      private_constant :NONE, :PIECE

      # @return [String] what the client asks for as it was sent, as in +/search?q=ruby+
      attr_reader :target
      # @return [String] +1.0+, +1.1+ or +2+
      attr_reader :version
      # @return [String] +http+ or +https+
      attr_reader :scheme
      # @return [Hash{String => String}] lower-case names; a field that came several times is joined by
      #   commas, cookies by semicolons
      attr_reader :headers
      # @return [Connection]
      attr_reader :connection
      # @return [Integer, nil] the status of our answer, once it is on its way
      attr_reader :status
      # @return [Integer] bytes of the answer's body that were handed to the client
      attr_reader :sent

      # Readers that Ruby makes cost a third of what others do, and these are asked for with every request.
      attr_reader :state, :on_finish, :body, :head
      # @!method __state
      #   @return [Symbol] +:idle+ until the answer has begun, +:body+, then +:done+
      #   @!visibility private
      alias __state state
      # @!method __on_finish
      #   @return [Array<Proc>, nil] whom to tell when it is over
      #   @!visibility private
      alias __on_finish on_finish
      # @!method __body
      #   @return [true, nil] whether a body came along
      #   @!visibility private
      alias __body body
      # @!method __head
      #   @return [HTTP1::Head, nil] of a request of HTTP/1
      #   @!visibility private
      alias __head head
      remove_method :state, :on_finish, :body, :head

      # What the head says, and +connection+, from which the rest comes.
      # @!visibility private
      def initialize(connection, verb:, target:, version:, scheme:, headers:)
        @connection = connection
        @verb = verb
        @target = target
        @version = version
        @scheme = scheme
        @headers = headers
        @status = nil
        @sent = 0
        @state = :idle # then :body, then :done
        @declared = nil # the content-length of the answer, if there is one
      end

      # @overload method
      #   @return [String] +GET+, +POST+ …
      # @overload method(name)
      #   @return [Method] as Object#method
      def method(*name)
        name.empty? ? verb : super
      end

      # @return [String] +GET+, +POST+ …
      attr_reader :verb

      # @return [Boolean]
      def head?
        verb == 'HEAD'
      end

      # @return [String] the target without its query, as it was sent (nothing is decoded)
      def path
        @path ||= @target[/\A[^?]*/]
      end

      # @return [String, nil] what stands behind the question mark
      def query
        cut = @target.index('?')
        cut && @target[(cut + 1)..]
      end

      # @return [String, nil] host and port as the client named them
      def authority
        @headers['host']
      end
      alias host authority

      # @param name [String, Symbol] of a header, in any case; underscores stand for dashes in a Symbol
      # @return [String, nil]
      def [](name)
        name = name.name.tr('_', '-') if name.is_a?(Symbol)
        @headers[name.downcase]
      end

      # @return [String, nil] the address of the client; nil on a unix socket
      def peer
        connection.peer
      end

      # --- the body of the request --------------------------------------------------------------

      # @return [Boolean] whether a body was announced
      def body?
        __body?
      end

      # Reads the body as it comes.
      # @yield [String] each piece; it is yours
      # @return [self]
      # @raise [ClientGone] if it ends too soon
      # @raise [BadRequest] if it breaks the rules or a limit
      def each_chunk
        return to_enum(:each_chunk) unless block_given?

        while (chunk = __read_chunk)
          yield chunk
        end
        self
      end

      # @return [String, nil] the next piece of the body as it comes; nil at its end
      # @raise [ClientGone, BadRequest] as each_chunk
      def read_chunk
        __read_chunk
      end

      # @return [String] the whole body, or what is left of it; at most Limits#body
      def read
        body = String.new(encoding: Encoding::BINARY)
        loop do
          next if __read_into(body, PIECE)

          chunk = __read_chunk or return body
          body << chunk
        end
      end

      # @return [Hash{String => String}] what came behind a chunked body; empty before its end
      def trailers
        __trailers
      end

      # --- the answer ---------------------------------------------------------------------------

      # Answers in one go.
      # @overload respond(body = nil, headers = {}, status: 200)
      #   @param body [String, nil]
      #   @param headers [Hash{String, Symbol => String, Array<String>}] +':status'+ may be among them; underscores
      #     stand for dashes in a Symbol
      #   @param status [Integer]
      #   @return [self]
      #   @raise [BadResponse] for what must not be sent
      #   @raise [ClientGone]
      # @example
      #   request.respond('hello', 'content-type' => 'text/plain')
      #   request.respond('not here', { 'content-type' => 'text/plain' }, status: 404)
      def respond(body = nil, headers = NONE, options = nil)
        # Without keywords among the parameters, headers without braces cost one Hash instead of three.
        status = status_among(headers, options)
        headers = without_status(headers) if status && options.nil?
        __respond(status || 200, headers, body ? text(body) : '')
      end

      # Begins an answer whose body comes with send_chunk. With a content-length among the headers, so many
      # bytes have to follow.
      # @overload send_headers(headers = {}, status: 200)
      #   @return [self]
      def send_headers(headers = NONE, options = nil)
        status = status_among(headers, options)
        headers = without_status(headers) if status && options.nil?
        begin_answer(status || 200)
        answer_head(@status, headers)
        self
      end

      # Sends a piece of the body, after send_headers, or by itself with headers of 200.
      # @param chunk [String]
      # @param done [Boolean] whether it is the last
      # @return [self]
      def send_chunk(chunk, done: false)
        size = text(chunk).bytesize
        send_headers if @state == :idle
        check_open
        count(size)
        __send_data(chunk) unless @silent || chunk.empty?
        finish if done
        self
      end

      # Sends a part of a file as a piece of the body; the kernel copies it where that can be.
      # @param file [File]
      # @param offset [Integer]
      # @param length [Integer]
      # @return [self]
      def send_file_part(file, offset, length)
        check_open
        count(length)
        __send_file(file, offset, length) unless @silent || length.zero?
        self
      end

      # Ends the answer. Called for you when the handler returns.
      # @param trailers [Hash{String => String}, nil] go behind a body without a content-length
      # @return [self]
      def finish(trailers: nil)
        return self if @state == :done

        check_open
        fields(trailers) if trailers
        if @declared && @sent < @declared
          __abort("#{@sent} of the #{@declared} bytes that content-length said")
          raise BadResponse, "the body had #{@sent} bytes, its content-length says #{@declared}"
        end
        @state = :done
        __send_last(trailers) unless @silent
        self
      end

      # Tells the client what it will need, while the answer is being made (103). Does nothing for HTTP/1.0.
      # @param headers [Hash{String => String, Array<String>}] as in <tt>'link' => '</a.css>; rel=preload'</tt>
      # @return [self]
      def early_hints(headers)
        raise BadResponse, 'early hints come before the answer' unless @state == :idle

        __send_info(103, fields(headers)) unless version == '1.0'
        self
      end

      # Leaves HTTP: answers with 101 (HTTP/2: 200, for an extended CONNECT) and hands out the bytes in both
      # directions. They belong to the caller now, who closes them; else they are closed when the handler
      # returns.
      # @param protocol [String] what is spoken from here on
      # @param headers [Hash{String => String, Array<String>}]
      # @return [Stream]
      # @raise [BadResponse] if the client has not asked for it, or the answer has begun
      def upgrade(protocol, headers = {})
        raise BadResponse, 'an upgrade comes before the answer' unless @state == :idle

        stream = __upgrade(protocol, headers)
        @state = :done
        @status = version == '2' ? 200 : 101
        stream
      end

      # Takes the connection away from HTTP, without an answer: whoever calls this says all that is to be said
      # to the client, and closes. Only HTTP/1 has a connection for one request.
      # @return [Stream]
      # @raise [BadResponse] if the answer has begun, or with HTTP/2
      def hijack
        raise BadResponse, "a connection of HTTP/#{version} cannot be taken over"
      end

      # @return [String, nil] what an extended CONNECT of HTTP/2 asks for, such as +websocket+
      def protocol
        nil
      end

      # @return [Boolean] whether headers went out
      def answered?
        @state != :idle
      end

      # @return [Boolean] whether all of the answer went out
      def finished?
        @state == :done
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{verb} #{@target[0, 100]}>"
      end

      # As respond, for those who have all three at hand.
      # @!visibility private
      def __respond(status, headers, body)
        begin_answer(status)
        answer_whole(@status, headers, body)
        self
      end

      # An answer of Rack's, if it is one String under headers that say nothing to the server.
      # @return [Boolean] whether it was
      # @!visibility private
      def __plain(status, headers, body, rack2)
        text = HTTP.__plain_answer(status, headers, body, rack2) or return false
        __respond(status, headers, text)
        true
      end

      # Runs after the answer has gone out or has failed, also when the client is gone.
      # @yield [error] nil if all went well
      # @return [self]
      def on_finish(&block)
        raise ArgumentError, 'on_finish needs a block' unless block

        (@on_finish ||= []) << block
        self
      end

      # Appends what comes next of the body, if that saves copying it.
      # @param _string [String] binary
      # @param _most [Integer] bytes
      # @return [Integer, nil] how many; nil: use __read_chunk
      # @!visibility private
      def __read_into(_string, _most)
        nil
      end

      # @!visibility private
      def __finished(error)
        @on_finish&.reverse_each { |block| block.call(error) }
      end

      # Gives up an answer that has begun: the client is to see that it is not whole.
      # @!visibility private
      def __give_up
        return if @state == :done

        @state = :done
        __abort('the handler failed')
      end

      private

      # A status can stand beside the headers or among them; ':status' is how Tipi and HTTP/2 spell it.
      def status_among(headers, options)
        fields(headers)
        return headers[:status] || headers[':status'] unless options

        options.each_key { |name| raise ArgumentError, "unknown option: #{name.inspect}" unless name == :status }
        options[:status]
      end

      # What else was handed to us would fail somewhere below, with words about our inside.
      def text(body)
        return body if body.is_a?(::String)

        raise BadResponse, "a body is a String, got #{body.class}: to_s, to_json or join make one; pieces go out with send_chunk"
      end

      def fields(headers)
        return headers if headers.is_a?(::Hash)

        raise BadResponse, "headers are a Hash, as in { 'content-type' => 'text/plain' }, got #{headers.inspect[0, 60]}"
      end

      def without_status(headers)
        headers.reject { |name, _| name == :status || name == ':status' } # rubocop:disable Style/MultipleComparison -- an Array less
      end

      def begin_answer(status)
        raise BadResponse, "answered with #{self.status} already" unless @state == :idle

        number = status.is_a?(Integer) ? status : Integer(status, exception: false)
        unless number && number > 199 && number < 600
          raise BadResponse, "status must be a number between 200 and 599, got #{status.inspect}"
        end

        @status = number
        @sent = 0
      end

      def answer_whole(status, headers, body)
        @state = :done
        if head? then __send_head(status, headers, body.bytesize, true)
        elsif Status.bodiless?(status) then __send_head(status, headers, nil, true)
        else
          @sent = body.bytesize
          __send_whole(status, headers, body)
        end
      rescue StandardError => e
        not_answered if unsaid?(e)
        raise
      end

      def answer_head(status, headers)
        @state = :body
        @silent = head? || Status.bodiless?(status)
        length = declared_length(headers)
        @declared = length unless @silent
        __send_head(status, headers, length, @silent)
      rescue StandardError => e
        not_answered if unsaid?(e)
        raise
      end

      # Whether it was raised before a byte was written: a header must not be sent, or its to_s has failed.
      def unsaid?(error)
        error.is_a?(BadResponse) || !error.is_a?(Error)
      end

      # Nothing of it went out, so that another answer can be given.
      def not_answered
        @state = :idle
        @status = @declared = nil
        @sent = 0
      end

      def check_open
        return if @state == :body

        raise BadResponse, @state == :idle ? 'headers come first: send_headers' : 'the answer has been finished'
      end

      def count(bytes)
        @sent += bytes
        return if @silent || !@declared || @sent <= @declared

        __abort("more than the #{@declared} bytes that content-length said")
        raise BadResponse, "the body has more than the #{@declared} bytes of its content-length"
      end

      def declared_length(headers)
        name = headers.each_key.find { |key| key.is_a?(Symbol) ? key == :content_length : key.to_s.casecmp?('content-length') }
        value = headers[name] unless name.nil?
        return if value.nil?
        return Integer(value.to_s, 10) if value.to_s.match?(/\A\d{1,18}\z/)

        raise BadResponse, "content-length must be a number, got #{value.inspect}"
      end

      # --- what a protocol brings along; all may wait, all raise ClientGone ----------------------

      # @return [Boolean] whether the request has a body
      def __body?
        raise NotImplementedError
      end

      # @return [String, nil] the next piece of the body; nil at its end. Sends 100 Continue where it is due
      def __read_chunk
        raise NotImplementedError
      end

      # @return [Hash]
      def __trailers
        raise NotImplementedError
      end

      # @param length [Integer, nil] of the body, if it is known
      # @param last [Boolean] whether no body follows
      def __send_head(status, headers, length, last)
        raise NotImplementedError
      end

      # Head and body, which may go out together.
      def __send_whole(status, headers, body)
        __send_head(status, headers, body.bytesize, body.empty?)
        return if body.empty?

        __send_data(body)
        __send_last(nil)
      end

      # @param data [String] never empty
      def __send_data(data)
        raise NotImplementedError
      end

      def __send_file(file, offset, length)
        raise NotImplementedError
      end

      # The end of the body.
      def __send_last(trailers)
        raise NotImplementedError
      end

      # An informational response.
      def __send_info(status, headers)
        raise NotImplementedError
      end

      # @return [Stream]
      def __upgrade(protocol, headers)
        raise NotImplementedError
      end

      # Gives up the answer so that the client notices: HTTP/1 closes, HTTP/2 resets the stream.
      def __abort(reason)
        raise NotImplementedError
      end
    end
  end
end
