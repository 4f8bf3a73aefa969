# frozen_string_literal: true

module Polyphony
  module HTTP
    class RackHandler
      # Sends what an application answered. Its body is closed once, whatever happens.
      class Response
        # A file up to this size goes out together with the headers.
        SMALL_FILE = 16_384

        # @param request [Request]
        # @param rack2 [Boolean] whether values of headers may have several lines, and a status may be a String
        def initialize(request, rack2)
          @request = request
          @rack2 = rack2
          @dechunker = nil
          @hijack = nil
          @protocol = nil
        end

        # @param status [Integer]
        # @param headers [Hash{String => String, Array<String>}]
        # @param body [#each, #call]
        def deliver(status, headers, body)
          @open_body = body
          @status = status_of(status)
          @headers = cleaned(headers)
          choose(body)
        ensure
          @open_body.close if @open_body.respond_to?(:close)
        end

        private

        def choose(body)
          if @protocol || @status == 101 then send_upgrade(body)
          elsif @request.head? || Status.bodiless?(@status) then send_head(body)
          elsif @hijack then send_hijacked
          elsif (file = file_of(body)) then send_file(file)
          elsif !@rack2 && !@dechunker && body.respond_to?(:to_ary) then send_array(body)
          elsif body.instance_of?(Array) then send_whole(joined(body))
          else send_stream(body)
          end
        end

        def send_stream(body)
          if body.respond_to?(:each) then send_each(body)
          elsif body.respond_to?(:call) then send_callable(body)
          else refuse_body(body)
          end
        end

        # --- what the application said ------------------------------------------------------------

        def status_of(status)
          return status if status.is_a?(Integer)
          return Integer(status, 10) if status.is_a?(String) && status.match?(/\A\d{3}\z/)
          return Integer(status) if status.is_a?(Float) && status % 1 == 0

          raise BadResponse, "the application answered with status #{status.inspect}, not with a number"
        end

        # Without those that speak to us. In Rack 2 several values of a header come as lines of one.
        def cleaned(headers)
          unless headers.respond_to?(:each)
            raise BadResponse, "the application answered with headers that are a #{headers.class}"
          end

          clean = {}
          headers.each do |name, value|
            name = name.to_s
            next if value.nil? || special?(name, value)

            clean[name] = value.is_a?(Array) ? value.flat_map { |one| lines(one) } : single(lines(value))
          end
          clean
        end

        def special?(name, value)
          if name.start_with?('rack.') then speak_to_us(name, value)
          elsif name.casecmp?('transfer-encoding') then @dechunker = dechunker_for(value)
          else return false
          end
          true
        end

        def speak_to_us(name, value)
          case name
          when 'rack.hijack' then @hijack = value
          when 'rack.protocol' then @protocol = value.to_s
          end
        end

        def dechunker_for(value)
          return Dechunker.new if value.to_s.casecmp?('chunked')
          return if value.to_s.casecmp?('identity')

          raise BadResponse, "the application answered with transfer-encoding: #{value.inspect}; only the server can do that"
        end

        def lines(value)
          value = value.to_s
          @rack2 && value.include?("\n") ? value.split("\n") : [value]
        end

        def single(list)
          list.size == 1 ? list.first : list
        end

        def refuse_body(body)
          hint = body.is_a?(String) ? ': put the String into an Array' : ''
          raise BadResponse, "the application's body must respond to each or call, got a #{body.class}#{hint}"
        end

        # --- bodies of each kind ------------------------------------------------------------------

        def joined(array)
          return check(array[0]) if array.size == 1 && !@dechunker

          whole = String.new(encoding: Encoding::BINARY)
          each_piece(array) { |piece| whole << piece.dup.force_encoding(Encoding::BINARY) }
          whole
        end

        # @yield [String] each piece of the body, without chunks of the application's
        def each_piece(body)
          return body.each { |piece| yield check(piece) } unless @dechunker

          body.each { |piece| @dechunker.feed(check(piece)) { |data| yield data } }
          @dechunker.finish
        end

        def check(piece)
          return piece if piece.is_a?(String)

          raise BadResponse, "the pieces of a body must be Strings, got a #{piece.class}"
        end

        # Rack wants to_ary to close the body.
        def send_array(body)
          array = body.to_ary
          @open_body = nil
          send_whole(joined(array))
        end

        def send_whole(text)
          length = declared_length
          if length && length != text.bytesize
            raise BadResponse, "the body has #{text.bytesize} bytes, its content-length says #{length}"
          end

          @request.__respond(@status, @headers, text)
        end

        # What would be the length of a body that is sent may stand here; after Rack::Head nobody knows.
        def send_head(body)
          length = body.instance_of?(Array) ? body.sum { |piece| check(piece).bytesize } : 0
          known = length.zero? || Status.bodiless?(@status) || declared_length
          headers = known ? @headers : @headers.merge('content-length' => length.to_s)
          @request.send_headers(headers, status: @status)
          @request.finish
        end

        # A body with a length that comes in one piece goes out together with the headers.
        def send_each(body)
          length = declared_length
          whole = nil
          begin_answer unless length
          each_piece(body) do |piece|
            next whole = piece if piece.bytesize == length && !@request.answered?

            begin_answer(whole) unless @request.answered?
            @request.send_chunk(piece)
          end
          whole && !@request.answered? ? @request.__respond(@status, @headers, whole) : end_answer
        end

        def begin_answer(first = nil)
          @request.send_headers(@headers, status: @status)
          @request.send_chunk(first) if first
        end

        def end_answer
          begin_answer unless @request.answered?
          @request.finish
        end

        # It reads and writes in this fiber, and ends when it returns.
        def send_callable(body)
          begin_answer
          source = BodySource.new(@request, @dechunker)
          body.call(Stream.new(source))
          source.close
        end

        def file_of(body)
          return if @dechunker || !body.respond_to?(:to_path)

          path = body.to_path or return
          file = ::File.open(path, 'rb')
          return file if file.stat.file?

          file.close
          nil
        rescue ::SystemCallError
          nil # the body itself may know better
        end

        def send_file(file)
          size = file.size
          return send_whole(file.read) if size <= SMALL_FILE

          @headers = @headers.merge('content-length' => size.to_s) unless declared_length
          begin_answer
          @request.send_file_part(file, 0, size)
          @request.finish
        ensure
          file.close
        end

        def declared_length
          @request.__send__(:declared_length, @headers)
        end

        # --- leaving HTTP -------------------------------------------------------------------------

        # The application gets a socket and does with it what it wants, for as long as it wants.
        def send_hijacked
          begin_answer
          pump(BodySource.new(@request, @dechunker))
        end

        def pump(source)
          pump = Pump.new(source).start
          @hijack.call(pump.socket)
          error = pump.wait
          raise error if error
        end

        def send_upgrade(body)
          protocol = @protocol || header('upgrade')
          raise BadResponse, 'status 101 needs a header upgrade, or rack.protocol' unless protocol

          headers = @headers.reject { |name, _| name.match?(/\A(upgrade|connection|content-length)\z/i) }
          stream = @request.upgrade(protocol.to_s, headers)
          speak(stream, body)
        ensure
          stream&.close
        end

        def speak(stream, body)
          if @hijack then pump(stream)
          elsif body.respond_to?(:each) then body.each { |piece| stream.write(check(piece)) }
          elsif body.respond_to?(:call) then body.call(stream)
          else refuse_body(body)
          end
        end

        def header(name)
          _, value = @headers.find { |key, _| key.casecmp?(name) }
          value
        end
      end
    end
  end
end
