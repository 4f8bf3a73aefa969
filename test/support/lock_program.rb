# frozen_string_literal: true

require 'monitor'

module Polyphony
  # A random program: fibers of several threads, main fibers and enumerators pass items through Ruby's own
  # queues and through buffers made of locks and conditions, while some of them are cancelled at any
  # time. What must hold: one at a time has a lock, every item arrives once, and everybody comes to an end.
  class LockProgram
    class Chaos < StandardError; end

    # A store for so many items, by a mutex and two condition variables.
    class Buffer
      def initialize(random, lock: ::Mutex.new, conditions: Array.new(2) { ::ConditionVariable.new })
        @random = random
        @lock = lock
        @filled, @emptied = conditions
        @items = []
        @room = 1 + random.rand(3)
        @inside = 0
        @closed = false
      end

      def put(item)
        alone do
          wait(@emptied) while @items.size >= @room
          @items << item
          @filled.signal
        end
      end

      # @return [Object, nil] nil when it is closed and empty
      def take
        alone do
          wait(@filled) while @items.empty? && !@closed
          item = @items.shift
          @emptied.signal if item
          item
        end
      end

      def close
        alone { @closed = true; @filled.broadcast }
      end

      private

      def alone
        @lock.synchronize do
          Kernel.raise "#{@inside} are inside already" unless (@inside += 1) == 1
          begin
            LockProgram.dawdle(@random)
            yield
          ensure
            @inside -= 1
          end
        end
      end

      def wait(condition)
        @inside -= 1
        limit = @random.rand(3).zero? ? @random.rand * 0.0005 : nil
        begin
          pause(condition, limit)
        ensure
          Kernel.raise "#{@inside} are inside after a wait" unless (@inside += 1) == 1
        end
      end

      def pause(condition, limit)
        condition.wait(@lock, limit)
      end
    end

    # The same by a monitor.
    class MonitorBuffer < Buffer
      def initialize(random)
        monitor = ::Monitor.new
        super(random, lock: monitor, conditions: Array.new(2) { monitor.new_cond })
      end

      def pause(condition, limit)
        condition.wait(limit)
      end
    end

    # Ruby's own queues by the same names.
    class Store
      def initialize(queue) = @queue = queue
      def put(item) = @queue.push(item)
      def take = @queue.pop
      def close = @queue.close
    end

    def self.dawdle(random)
      case random.rand(8)
      when 0 then snooze
      when 1 then sleep(random.rand * 0.0002)
      when 2 then Thread.pass
      end
    end

    # @param seed [Integer]
    # @param size [Integer] how many items each producer makes
    def initialize(seed, size: 12)
      @random = Random.new(seed)
      @size = size
      @stores = [Store.new(::Queue.new), Store.new(::SizedQueue.new(1 + @random.rand(2))), Buffer.new(@random), MonitorBuffer.new(@random)]
      @sent = []
      @received = []
      @victims = []
      @serial = 0
    end

    # Those who are cancelled come to an end first. Then everything has to reach the steady ones, who wait
    # for as long as it takes, without their being told that the end is near.
    # @return [Array(Array, Array)] what was sent and what was received, in order
    def run
      steady = @stores.flat_map { |store| Array.new(1 + @random.rand(2)) { settle(store) } }
      threads = Array.new(@random.rand(3)) { Thread.new { crew } }
      chaos = spin { wreak_havoc }
      crew
      threads.each { |thread| insist { thread.join } }
      insist { chaos.stop }
      insist { chaos.await }
      insist { sleep 0.0005 } until @sent.size == @received.size
      @stores.each { |store| insist { store.close } }
      steady.each { |one| insist { one.await } }
      [@sent.sort, @received.sort]
    end

    private

    # Takes until the store is closed, in any kind of fiber.
    def settle(store)
      drain = -> { nil while take(store) }
      case @random.rand(5)
      when 0 then Thread.new(&drain)
      when 1 then Thread.new { spin { sleep }; snooze; drain.call }
      when 2 then Thread.new { spin(&drain).await }
      when 3 then spin { Enumerator.new { |yielder| yielder << drain.call }.next }
      else spin(&drain)
      end
    end

    # What comes late is not to be lost, but to be over with.
    def insist
      yield
    rescue Chaos
      retry
    end

    # In each thread some fibers, the main one, and an enumerator.
    def crew
      fibers = Array.new(1 + @random.rand(3)) { spin { work } }
      work
      insist { enumerate } if @random.rand(2).zero?
      @victims.delete(Fiber.current)
      fibers.each { |fiber| insist { fiber.await } }
    end

    def enumerate
      list = Enumerator.new { |yielder| yielder << work }
      list.next
    end

    def work
      @victims << Fiber.current
      @size.times { |i| one_step(i) }
    ensure
      @victims.delete(Fiber.current)
    end

    # Takes are cancelled, or there would be nobody left to give.
    def one_step(number)
      store = @stores.sample(random: @random)
      if number.even? then limited { give(store) }
      else move_on_after(@random.rand * 0.002) { take(store) }
      end
      LockProgram.dawdle(@random)
    rescue Chaos
      nil
    end

    def limited(&block)
      move_on_after(@random.rand * 0.005, &block)
    end

    def give(store)
      item = @serial += 1
      store.put(item)
      @sent << item
    end

    def take(store)
      item = store.take
      @received << item if item
      item
    end

    def wreak_havoc
      loop do
        sleep @random.rand * 0.0005
        strike(@victims.sample(random: @random))
      end
    end

    # Between the choice and the blow the victim's thread can come to its end, which is an error of whoever schedules.
    def strike(victim)
      victim&.schedule(Chaos.new)
    rescue FiberError
      raise if @victims.include?(victim)
    end
  end
end
