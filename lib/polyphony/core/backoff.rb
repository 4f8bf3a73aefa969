# frozen_string_literal: true

module Polyphony
  # How long to wait before the next try: longer after each failure, and not the same for all.
  # @!visibility private
  class Backoff
    # @param spec [Numeric, Range, Hash, nil] see Fiber#supervise
    def self.from(spec)
      case spec
      when nil     then new(from: 0, to: 0, jitter: 0)
      when Numeric then new(from: spec, to: spec, jitter: 0)
      when Range   then new(from: spec.begin, to: spec.end)
      when Hash    then new(**spec)
      else raise ArgumentError, "backoff must be seconds, a Range or a Hash, got #{spec.inspect}"
      end
    end

    # @return [Float] seconds
    attr_reader :to

    def initialize(from:, to:, factor: 2, jitter: 0.5)
      @from = check(:from, from, 0..)
      @to = check(:to, to, from..)
      @factor = check(:factor, factor, 1..)
      @jitter = check(:jitter, jitter, 0..1)
    end

    # @param failures [Integer] how many there were before
    # @return [Float] seconds; the jitter makes it shorter
    def delay(failures)
      return 0.0 if @from.zero?

      [@from * @factor**failures, @to].min * (1 - @jitter * rand)
    end

    private

    def check(name, value, range)
      ok = value.is_a?(Numeric) && value.real? && value.to_f.finite? && range.cover?(value)
      raise ArgumentError, "#{name} of a backoff must be in #{range}, got #{value.inspect}" unless ok

      value.to_f
    end
  end

  private_constant :Backoff
end
