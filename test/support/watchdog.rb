# frozen_string_literal: true

module Polyphony
  # Ends the process when a test hangs, after writing where every thread and fiber is. One plain
  # thread, made before the extension is loaded and using Ruby's own sleep, so that it goes on
  # whatever the code under test does to threads and timers.
  module Watchdog
    STOCK_SLEEP = Kernel.instance_method(:sleep)
    EXIT_STATUS = 70
    SHOWN = 100                                         # fibers

    @deadline = nil
    @name = nil

    class << self
      # Runs the block; if that takes longer, nobody survives.
      def watch(name, seconds)
        @name = name
        @deadline = now + seconds
        yield
      ensure
        @deadline = nil
      end

      def start
        @thread = Thread.new do
          Thread.current.name = 'watchdog'
          loop do
            STOCK_SLEEP.bind_call(self, 0.5)
            deadline = @deadline
            bark if deadline && now > deadline
          end
        end
      end

      def bark
        $stderr.puts "\nwatchdog: #{@name} hangs; threads and fibers:"
        Thread.list.each { |thread| show(thread.inspect, thread.backtrace) unless thread == @thread }
        ObjectSpace.each_object(Fiber).lazy.select(&:alive?).first(SHOWN).each { |it| show(it.inspect, it.backtrace) }
        $stderr.puts "watchdog: this was #{@name}"      # where the log is cut, its end is what is left
        $stderr.flush
        exit!(EXIT_STATUS)
      end

      private

      def show(title, backtrace)
        $stderr.puts "  #{title}"
        (backtrace || ['(no backtrace)']).first(25).each { |line| $stderr.puts "    #{line}" }
      rescue StandardError => e
        $stderr.puts "  #{e.class}: #{e.message}"
      end

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end
    end

    start
  end
end
