# frozen_string_literal: true

module Polyphony
  # What supervise does about a fiber that has ended: whether it is restarted, which others with it,
  # how often, and after how long.
  # @!visibility private
  class RestartPolicy
    RESTART = { nil => nil, false => nil, true => :always, always: :always, on_error: :on_error }.freeze
    STRATEGIES = %i[one_for_one one_for_all rest_for_one].freeze
    NONE = [].freeze

    # @return [Backoff]
    attr_reader :backoff

    def initialize(restart:, strategy:, max_restarts:, within:, backoff:)
      @restart = RESTART.fetch(restart) { refuse(:restart, 'nil, true, :always or :on_error', restart) }
      @strategy = strategy
      @most = max_restarts
      @within = within
      @backoff = Backoff.from(backoff)
      @restarts = []
      check_values
      check_use(backoff)
    end

    # @return [Boolean] whether anything is restarted at all
    def restarts?
      !@restart.nil?
    end

    def restart?(fiber)
      @restart == :always || (@restart == :on_error && fiber.__failed?)
    end

    # @yieldreturn [Array] all children, in the order in which they were started
    # @return [Array] those that are restarted together with that one, in the same order
    def others(child)
      case @strategy
      when :one_for_one  then NONE
      when :one_for_all  then yield - [child]
      when :rest_for_one then yield.drop_while { |other| !other.equal?(child) }.drop(1)
      end
    end

    # Counts a restart of that fiber.
    # @raise [TooManyRestarts]
    def count(fiber, now)
      return unless @most

      @restarts.shift while @within && @restarts.any? && @restarts.first <= now - @within
      if @restarts.size >= @most
        raise TooManyRestarts.new(fiber, @most, @within), cause: (fiber.result if fiber.__failed?)
      end

      @restarts << now
    end

    private

    def check_values
      refuse(:strategy, STRATEGIES.inspect, @strategy) unless STRATEGIES.include?(@strategy)
      unless @most.nil? || (@most.is_a?(Integer) && !@most.negative?)
        refuse(:max_restarts, 'nil or an Integer from 0', @most)
      end
      return if @within.nil? || (@within.is_a?(Numeric) && @within.positive?)

      refuse(:within, 'nil or a positive number', @within)
    end

    # What would be ignored is more likely a mistake.
    def check_use(backoff)
      raise ArgumentError, "within: #{@within.inspect} needs max_restarts" if @within && !@most
      return if @restart

      strategy = @strategy unless @strategy == :one_for_one
      name, value = { strategy: strategy, max_restarts: @most, backoff: backoff }.compact.first
      raise ArgumentError, "#{name}: #{value.inspect} needs restart" if name
    end

    def refuse(name, expected, value)
      raise ArgumentError, "#{name} must be #{expected}, got #{value.inspect}"
    end
  end

  private_constant :RestartPolicy
end
