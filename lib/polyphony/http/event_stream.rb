# frozen_string_literal: true

module Polyphony
  module HTTP
    # Events for a web page, one after the other, in an answer that does not end (server-sent events). Got
    # from Request#event_stream.
    class EventStream
      # @return [String, nil] the id of the last event that the client has got, if it comes back
      attr_reader :last_id

      # @param request [Request]
      # @param keep_alive [Numeric, nil] seconds of silence after which a comment is sent; nil: never
      # @!visibility private
      def initialize(request, keep_alive)
        @request = request
        @keep_alive = keep_alive
        @last_id = request['last-event-id']
        @lock = Polyphony::Mutex.new
        @sent_at = Clock.now
        @closed = @over = false
      end

      # Sends an event. Waits until the client has room for it. Any number of fibers may send.
      # @param data [String, #to_s] may have several lines
      # @param event [String, Symbol, nil] its kind, for +addEventListener+; nil: +message+
      # @param id [String, Integer, nil] what the client says when it comes back, see #last_id
      # @param retry [Numeric, nil] after how many seconds it is to come back when the connection is lost
      # @return [self]
      # @raise [ArgumentError] for a kind or an id with a line break in it, or data that is not UTF-8
      # @raise [ClientGone]
      def send(data, event: nil, id: nil, retry: nil)
        text = +''
        text << "event: #{one_line(event, 'event')}\n" if event
        text << "id: #{one_line(id, 'id')}\n" if id
        text << "retry: #{(Float(binding.local_variable_get(:retry)) * 1000).round}\n" if binding.local_variable_get(:retry)
        write(add_lines(text, 'data: ', data) << "\n")
      end

      # Sends an event with this data.
      # @param data [String, #to_s]
      # @return [self]
      # @raise (see #send)
      def <<(data)
        send(data)
      end

      # Sends what no page sees.
      # @param text [String]
      # @return [self]
      # @raise [ClientGone]
      def comment(text = '')
        write(add_lines(+'', ': ', text) << "\n")
      end

      # Ends the answer; the client will come back, as browsers do, unless it is told not to.
      # @return [nil]
      def close
        @closed = true
        nil
      end

      # @return [Boolean] whether the client is gone, or #close was called
      def closed?
        @closed
      end

      # @!visibility private
      def __run
        handler = Fiber.current
        keeper = @keep_alive && spin(:event_stream) { keep_alive(handler) }
        yield self
      ensure
        @closed = @over = true
        @lock.synchronize { keeper&.stop } # not in the middle of a write
      end

      private

      # What it finds out about the client, the handler has to know: it may wait for something else.
      def keep_alive(handler)
        loop do
          silence = Clock.now - @sent_at
          silence < @keep_alive ? sleep(@keep_alive - silence) : comment
        end
      rescue Error => e
        handler.raise(e) unless @over
      end

      def write(text)
        @lock.synchronize do
          raise ClientGone, 'the event stream is closed' if @closed

          @sent_at = Clock.now
          @request.send_chunk(text)
        end
        self
      rescue Error
        @closed = true
        raise
      end

      def one_line(value, name)
        text = utf8(value)
        return text unless text.match?(/[\r\n\0]/)

        raise ArgumentError, "#{name} must be one line, got #{text.inspect}"
      end

      # All three kinds of line ends are one to a browser.
      def add_lines(text, prefix, data)
        utf8(data).split(/\r\n|\r|\n/, -1).then { |lines| lines.empty? ? [''] : lines }
                  .each { |line| text << prefix << line << "\n" }
        text
      end

      def utf8(value)
        text = value.to_s
        text = text.encode(Encoding::UTF_8) unless text.encoding == Encoding::UTF_8
        return text if text.valid_encoding?

        raise ArgumentError, 'events are UTF-8: scrub the text, or send it as Base64'
      rescue ::EncodingError => e
        raise ArgumentError, "events are UTF-8: #{e.message}"
      end
    end

    class Request
      # Answers with events that come as they happen (server-sent events, +EventSource+ in a browser). The handler ends
      # when the client is gone.
      # @param headers [Hash{String => String}]
      # @param keep_alive [Numeric, nil] seconds of silence after which a comment is sent, so that nobody on the way takes the
      #   connection for dead, and we learn when the client is gone
      # @yield [EventStream] the answer ends with the block
      # @return [self]
      # @raise [ClientGone]
      # @example
      #   request.event_stream do |events|
      #     prices.each { |price| events.send(price.to_json, event: 'price', id: price.id) }
      #   end
      def event_stream(headers = {}, keep_alive: 15, &block)
        raise ArgumentError, 'an event stream needs a block' unless block

        send_headers({ 'content-type' => 'text/event-stream', 'cache-control' => 'no-store', 'x-accel-buffering' => 'no' }.merge(headers))
        EventStream.new(self, keep_alive).__run(&block) unless head?
        finish
      end
    end
  end
end
