# frozen_string_literal: true

module Polyphony
  # Operations that go wrong on purpose, by chance. The environment variable POLYPHONY_FAULTS has them for a whole program, for instance
  # +short_write:0.01,eintr:0.05,seed:7+; Testing.faults for a block.
  module Faults
    class << self
      # @!method names
      #   @return [Array<Symbol>] what can go wrong

      # @!method counts
      #   @return [Hash{Symbol => Integer}] how often each of the faults that are on has happened

      # @return [String] those that are on, as in the environment
      def inspect
        @current&.any? ? "#<Polyphony::Faults #{@current.map { |pair| pair.join(':') }.join(',')}>" : '#<Polyphony::Faults off>'
      end

      # Sets those that the environment names.
      # @return [nil]
      # @raise [ArgumentError] naming the word that is not understood
      def from_environment
        text = ENV.fetch('POLYPHONY_FAULTS', '')
        words = text.split(',').to_h do |word|
          name, chance = word.strip.split(':', 2)
          number = chance && (Integer(chance, exception: false) || Float(chance, exception: false))
          number or raise ArgumentError, "POLYPHONY_FAULTS: expected name:chance, as in eintr:0.05, got #{word.inspect} in #{text.inspect}"
          [name.to_sym, number]
        end
        __use(words)
        nil
      rescue ArgumentError => e
        raise e.message.start_with?('POLYPHONY_FAULTS') ? e : ArgumentError.new("POLYPHONY_FAULTS: #{e.message}")
      end

      # @param faults [Hash{Symbol => Numeric}] chances, and +seed+
      # @return [Hash] what was there before
      # @!visibility private
      def __use(faults)
        faults = __check(faults)
        before = @current
        @current = faults
        __set(faults, faults.fetch(:seed, 0))
        before || {}
      end

      # @!visibility private
      def __check(faults)
        faults.each do |name, chance|
          next if name == :seed && chance.is_a?(Integer) && chance.between?(0, (1 << 64) - 1)
          raise ArgumentError, "the seed of faults must be an Integer that is not negative, got #{chance.inspect}" if name == :seed
          raise ArgumentError, "there is no fault #{name}; there are #{names.join(', ')}, and seed" unless names.include?(name)
          next if chance.is_a?(Numeric) && chance.real? && chance.between?(0, 1)

          raise ArgumentError, "the chance of #{name} must be a number from 0 to 1, got #{chance.inspect}"
        end
      end
    end
  end
end
