# frozen_string_literal: true

module Polyphony
  module Testing
    class Network
      # What happens to what is sent. Chances are numbers from 0 to 1.
      class Conditions
        NAMES = %i[latency chunk loss retransmit short_write reset capacity].freeze

        # @return [Numeric, Range] seconds that bytes are on their way; any of a Range
        attr_reader :latency
        # @return [Integer, Range, nil] how many bytes arrive at once, at most; nil: all that were written at once
        attr_reader :chunk
        # @return [Numeric] chance that a datagram is lost, or that a piece of a stream has to be sent again
        attr_reader :loss
        # @return [Numeric] seconds by which a piece of a stream comes later then
        attr_reader :retransmit
        # @return [Numeric] chance that +syswrite+, +send+ and +write_nonblock+ take a part only
        attr_reader :short_write
        # @return [Numeric] chance, for each piece that is sent, that the connection is reset
        attr_reader :reset
        # @return [Integer] how many bytes may be on their way, or wait to be read, before a writer waits
        attr_reader :capacity

        # @!visibility private
        def initialize(random, latency: 0, chunk: nil, loss: 0, retransmit: 0.2, short_write: 0, reset: 0, capacity: 65_536)
          @random = random
          set(latency: latency, chunk: chunk, loss: loss, retransmit: retransmit, short_write: short_write, reset: reset, capacity: capacity)
        end

        # Changes some of them, for what is sent from now on.
        # @param changes [Hash]
        # @return [self]
        def set(**changes)
          changes.each do |name, value|
            raise ArgumentError, "a network has #{NAMES.join(', ')}, but no #{name}" unless NAMES.include?(name)

            instance_variable_set("@#{name}", check(name, value))
          end
          self
        end

        # @!visibility private
        def __delay
          @latency.is_a?(Range) ? @random.rand(@latency.begin.to_f..@latency.end.to_f) : @latency
        end

        # @!visibility private
        def __chance?(name)
          chance = public_send(name)
          chance.positive? && @random.rand < chance
        end

        # How many of so many bytes are taken at once.
        # @!visibility private
        def __part(size)
          limit = @chunk.is_a?(Range) ? @random.rand(@chunk) : @chunk
          limit ? [limit, size].min : size
        end

        # @!visibility private
        def __shortened(size)
          size > 1 && __chance?(:short_write) ? @random.rand(1...size) : size
        end

        private

        def check(name, value)
          return value if valid?(name, value)

          raise ArgumentError, "#{name} of a network cannot be #{value.inspect}"
        end

        def valid?(name, value)
          case name
          when :latency then range(value, Numeric).all? { |one| one >= 0 }
          when :chunk then value.nil? || range(value, Integer).all?(&:positive?)
          when :retransmit then value.is_a?(Numeric) && value >= 0
          when :capacity then value.is_a?(Integer) && value.positive?
          else value.is_a?(Numeric) && value.between?(0, 1)
          end
        rescue NoMethodError
          false
        end

        # Both ends of a Range, or the value twice; [nil] if it is neither.
        def range(value, klass)
          ends = value.is_a?(Range) ? [value.begin, value.end] : [value]
          ends.all?(klass) && (ends.size == 1 || ends[0] <= ends[1]) ? ends : [nil]
        end
      end
    end
  end
end
