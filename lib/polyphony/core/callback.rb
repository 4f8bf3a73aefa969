# frozen_string_literal: true

module Polyphony
  # Turns a library that calls back into something to loop over. What it calls back with waits in a queue, and #each hands it
  # out, one event at a time, in the fiber that asks. When nothing is left, the library is given its next input, and not before:
  # who is slow to consume is not sent more. Whatever ends an #each, a stop, a limit, an exception, +break+: the next one goes on
  # with the event after the last that was handed out.
  #
  # @example A parser that is fed from a socket
  #   parser = Http::Parser.new
  #   events = Polyphony::Callback.new(socket) { |data| parser << data }
  #   parser.on_headers_complete = events.on(:headers) { parser.http_method }
  #   parser.on_message_complete = events.on(:complete)
  #   events.each { |kind, *values| p kind, values }
  # @example A library that calls back from threads of its own
  #   changes = Polyphony::Callback.new(capacity: 100)
  #   watcher.on_change(&changes)
  #   changes.each { |path| p path }
  class Callback
    include Enumerable

    # What waits in the queue in the place of an event, where something was raised.
    Failure = Struct.new(:error)
    private_constant :Failure

    # How much is read at a time.
    MAXLEN = 8192

    # With a source and a block: what is read from the source is given to the block, which feeds the library; callbacks come
    # meanwhile. With a block alone: it makes the library do a piece of its work, and may wait; EOFError or StopIteration say that
    # there is no more. With neither: callbacks come from other fibers or threads, until #close.
    # @param source [#readpartial, #call, nil] where input comes from: an IO, or what returns the next piece, nil at the end
    # @param maxlen [Integer] how much is read from an IO at a time
    # @param capacity [Integer, nil] how many events may wait before a callback has to; only without a block
    # @param at_end [#call, nil] told once that the input is over, as some parsers want to be; callbacks may come from it
    # @yield [String] the input
    def initialize(source = nil, maxlen: MAXLEN, capacity: nil, at_end: nil, &feed)
      check(source, feed, capacity)
      check_numbers(maxlen: maxlen, capacity: capacity)
      raise ArgumentError, "at_end must be something to call, got #{at_end.inspect}" unless at_end.nil? || at_end.respond_to?(:call)

      @source = source.respond_to?(:readpartial) ? -> { source.readpartial(maxlen) } : source
      @feed = feed
      @at_end = at_end
      @events = Queue.new(capacity).__for_ourselves
      @pumping = Mutex.new
      @ended = false
    end

    # A callback for the library. It does not wait (unless there is a capacity), and does not raise: an error of the block is raised
    # by #each, in its turn, and not through the library.
    # @param kind [Object] what #each says first, to tell events of one kind from others; none if left out
    # @param answer [Object] what the callback returns to the library
    # @yield called by the library, in the middle of its work. What it returns is the event's value, in the place of the arguments:
    #   for what must be copied or asked at once. It should not wait
    # @return [Proc]
    def on(*kind, answer: nil, &block)
      raise ArgumentError, "on takes one kind of event, got #{kind.size}" if kind.size > 1

      noted = method(:note) # whatever object the library makes the callback a method of
      lambda do |*values|
        noted.call(kind, values, block)
        answer
      end
    end

    # An object with a method of each name, for libraries that want a listener. #each says the name first.
    # @param names [Array<Symbol>]
    # @return [Object]
    def listener(*names)
      names.each_with_object(Object.new) { |name, object| object.define_singleton_method(name, &on(name)) }
    end

    # Adds an event. From any fiber and thread; after #close it is dropped.
    # @param event [Array] what #each hands out
    # @return [nil]
    def call(*event)
      push(event)
    end

    # @return [Proc] a callback whose arguments are the event
    def to_proc
      on
    end

    # Hands out events until the input is over. Several fibers share them.
    # @yield [*Object] the kind, if it has one, and its values
    # @return [self, Enumerator] an Enumerator without a block
    # @raise [Exception] what a callback or the library has raised, after the events that came before it. Events that came after
    #   it are for the next call
    # @raise [FiberError] in a callback of the same library
    def each
      return enum_for(:each) unless block_given?

      while (event = take)
        yield(*event)
      end
      self
    end

    # Hands out one event, as Enumerator#next does.
    # @return [Object, Array] its value; an Array if there are several
    # @raise [StopIteration] at the end
    def next
      event = take or raise StopIteration, 'there are no more events'
      event.size > 1 ? event : event.first
    end

    # @return [Integer] how many events wait
    def size
      @events.size
    end

    # Ends the input: #each hands out what is left, and returns. From any fiber and thread.
    # @return [self]
    def close
      @ended = true
      @events.close
      @wait&.cancel
      self
    end

    # @return [Boolean] whether no more input is read; events may be left
    def ended?
      @ended
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{size} waiting#{', ended' if @ended}>"
    end

    private

    def check(source, feed, capacity)
      if source
        raise ArgumentError, 'with a source there must be a block that takes the input' unless feed
        return if source.respond_to?(:readpartial) || source.respond_to?(:call)

        raise ArgumentError, "a source is read with readpartial or called, and this is neither: #{source.inspect}"
      end
      raise ArgumentError, 'with a block no more is read while events wait: leave capacity out' if feed && capacity
    end

    def check_numbers(numbers)
      name, number = numbers.find { |_, n| !n.nil? && !(n.is_a?(Integer) && n.positive?) }
      raise ArgumentError, "#{name} must be a positive Integer, got #{number.inspect}" if name
    end

    # Errors of the block wait in the queue: the library would be left in the middle of its work.
    def note(kind, values, block)
      values = [block.call(*values)] if block
      push(kind + values)
    rescue ::StandardError => e
      push(Failure.new(e))
    end

    def push(event)
      @events.push(event) unless @events.closed?
      nil
    rescue ClosedQueueError # while it waited for room
      nil
    end

    # @return [Array, nil] nil at the end
    def take
      event = @feed ? pumped : arrived
      raise event.error if event.is_a?(Failure)

      event
    end

    def arrived
      @events.shift
    rescue ClosedQueueError
      nil
    end

    # Another fiber may be at it: then this one waits, and looks again.
    def pumped
      if @feeding.equal?(::Fiber.current)
        raise FiberError, 'a callback cannot wait for the next event: the library is in the middle of its work'
      end

      until (event = ready)
        return if @ended

        @pumping.synchronize { pump if @events.empty? && !@ended }
      end
      event
    end

    # Another thread may take it between the question and the answer.
    def ready
      @events.shift(true) unless @events.empty?
    rescue ThreadError, ClosedQueueError
      nil
    end

    def pump
      more = @source ? read_and_feed : work
      finish unless more || @ended
    rescue ::StandardError => e
      push(Failure.new(e))
    end

    # Input that was read reaches the library whole, also if its callbacks wait and the fiber is stopped.
    def read_and_feed
      input = until_closed { @source.call } or return false
      CancelScope.shield { feeding { @feed.call(input) } }
      true
    rescue EOFError
      raise if input # not the source's

      false
    end

    def work
      until_closed { feeding { @feed.call }; true }
    rescue EOFError, StopIteration
      false
    end

    def finish
      @ended = true
      CancelScope.shield { feeding { @at_end.call } } if @at_end
    end

    def until_closed
      CancelScope.move_on_after(nil, nil) do |wait|
        @wait = wait
        yield
      end
    ensure
      @wait = nil
    end

    def feeding
      @feeding = ::Fiber.current
      yield
    ensure
      @feeding = nil
    end
  end
end
