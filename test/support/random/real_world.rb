# frozen_string_literal: true

require 'socket'
require 'polyphony'
require 'polyphony/testing'

module RandomPrograms
  # The words by the library. A unit of time is a whole number of nanoseconds, as a Float too.
  class RealWorld
    UNIT = 1.0 / 512

    # What the model calls Fiber#raise.
    module Words
      def raise_in(exception) = self.raise(exception)
      def schedule_first(value) = schedule_with_priority(value)
    end
    ::Fiber.include(Words)

    # A number is eight bytes, which go whole.
    Stream = Struct.new(:reader, :writer) do
      def write(value) = writer.write([value].pack('q'))
      def read = reader.readpartial(8).unpack1('q')
      def close = [reader, writer].uniq.each(&:close)
    end

    Items = Struct.new(:queue) do
      def write(value) = queue.push(value)
      def read = queue.shift
      def close; end
    end

    # Ruby's own has its item at once, without a turn for others, in which a stop that is due would be heard.
    class StockItems < Items
      def read
        snooze
        super
      end
    end

    CHANNELS = {
      pipe: -> { Stream.new(*IO.pipe) },
      socket: -> { Stream.new(*UNIXSocket.pair) },
      tcp: -> { Stream.new(*RealWorld.tcp_pair) },
      queue: -> { Items.new(Polyphony::Queue.new) },
      stock_queue: -> { StockItems.new(Thread::Queue.new) }
    }.freeze

    def self.tcp_pair
      server = TCPServer.new('127.0.0.1', 0)
      client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
      [server.accept, client]
    ensure
      server&.close
    end

    def thread(&block) = Thread.new(&block)
    def channel(kind) = CHANNELS.fetch(kind).call

    def run
      Polyphony::Testing.virtual_clock(settle: 0, fake: false) do |clock|
        @clock = clock
        yield
      end
    end

    def current = Fiber.current
    def now = (@clock.elapsed / UNIT).round
    def sleep(units) = Polyphony.backend_sleep(units * UNIT)
    def limit(units, value, &block) = move_on_after(units * UNIT, with_value: value) { block.call }
    def cancel_after(units, &block) = Polyphony::CancelScope.cancel_after(units * UNIT, Polyphony::Cancel) { block.call }
    def scope(&block) = Polyphony.scope(&block)
    def await_children = Fiber.current.await_all_children
    def shut_down_children = Fiber.current.shutdown_all_children
    def await_all(fibers) = Fiber.await(*fibers)
    def select(fibers) = Fiber.select(*fibers)
    def race(fibers) = Fiber.race(*fibers)
    def map(list, limit, &block) = Fiber.map(list, limit: limit, &block)
    def queue(cap) = Polyphony::Queue.new(cap)
    def mutex = Polyphony::Mutex.new
    def semaphore(limit) = Polyphony::Semaphore.new(limit)
    def event = Polyphony::Event.new
    def cancel_class = Polyphony::Cancel

    # They are private words of every object.
    %i[spin snooze suspend receive shield].each do |word|
      define_method(word) { |&block| super(&block) }
    end
  end
end
