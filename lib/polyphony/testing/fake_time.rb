# frozen_string_literal: true

module Polyphony
  module Testing
    # Time.now, Time.new without arguments and Process.clock_gettime, in virtual time. The methods are there only as long as a
    # test wants them: off, nothing stands before Ruby's own.
    # @api private
    module FakeTime
      STOCK_CLOCK = ::Process.method(:clock_gettime)
      STOCK_NOW = ::Time.method(:now)
      UNITS = { second: 1_000_000_000, millisecond: 1_000_000, microsecond: 1000, nanosecond: 1,
                float_second: 1e9, float_millisecond: 1e6, float_microsecond: 1e3, nil => 1e9 }.freeze
      # Clocks that go on with time; those of processor time do not.
      CLOCKS = %i[REALTIME MONOTONIC REALTIME_COARSE MONOTONIC_COARSE MONOTONIC_RAW BOOTTIME TAI]
               .map { |name| "CLOCK_#{name}" }.select { |name| ::Process.const_defined?(name) }
               .map { |name| ::Process.const_get(name) }.freeze

      module ProcessMethods; end
      module TimeMethods; end

      class << self
        def on
          return if @on

          @on = true
          @start = Clock.nanoseconds
          @time = STOCK_NOW.call
          @readings = CLOCKS.to_h { |id| [id, STOCK_CLOCK.call(id, :nanosecond)] }
          ProcessMethods.module_eval { def clock_gettime(id, unit = :float_second) = FakeTime.clock(id, unit) { super } }
          TimeMethods.module_eval do
            def now(**zone) = FakeTime.time(zone) { super }
            def new(*parts, **zone) = parts.empty? ? now(**zone) : super
          end
        end

        def off
          return unless @on

          @on = false
          ProcessMethods.remove_method(:clock_gettime)
          TimeMethods.remove_method(:now, :new)
        end

        def clock(id, unit)
          return yield unless @on && Clock.stopped_here? && @readings.key?(id) && UNITS.key?(unit)

          nanoseconds = @readings[id] + Clock.nanoseconds - @start
          nanoseconds / UNITS[unit]
        end

        def time(zone)
          return yield unless @on && Clock.stopped_here?

          now = @time + Rational(Clock.nanoseconds - @start, 1_000_000_000)
          zone[:in] ? now.getlocal(zone[:in]) : now
        end
      end
    end

    private_constant :FakeTime
    ::Process.singleton_class.prepend FakeTime::ProcessMethods
    ::Time.singleton_class.prepend FakeTime::TimeMethods
  end
end
