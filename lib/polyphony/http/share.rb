# frozen_string_literal: true

module Polyphony
  module HTTP
    # A worker's view of how many connections each worker has, in memory that all of them see. Who has more than others
    # lets them go first when a connection comes: connections live long, and whoever happens to be first keeps them.
    # @!visibility private
    class Share
      # Seconds. Who is not busy has accepted by then.
      PAUSE = 0.001
      # How many connections may be accepted after a pause.
      CREDIT = 8
      # Where the number is in a place of the scoreboard: one more than the connections, 0 if nothing is accepted there.
      OFFSET = 504

      # @param memory [IO::Buffer] the scoreboard
      # @param size [Integer] of a place on it
      # @param place [Integer] ours
      # @param places [Enumerable<Integer>] where there may be workers
      # @yield how many connections we have
      def initialize(memory, size, place, places, &count)
        @memory = memory
        @size = size
        @place = place
        @count = count
        @others = places.reject { |other| other == place }.map { |other| (other * size) + OFFSET }
        @credit = 0
      end

      # Waits a moment if others have fewer connections. If they are too busy to take them, some are ours.
      def give_way
        return @credit -= 1 if @credit.positive?
        return unless crowded?

        sleep(PAUSE)
        @credit = CREDIT
      end

      # @return [Boolean] whether we have more than our share
      def crowded?
        mine = @count.call
        @memory.set_value(:u32, (@place * @size) + OFFSET, mine + 1)
        least = nil
        @others.each do |offset|
          count = @memory.get_value(:u32, offset)
          least = count - 1 if count.positive? && (least.nil? || count <= least)
        end
        !least.nil? && mine > least + (least / 8) + 2
      end

      # Nothing is accepted here any longer.
      def leave
        @memory.set_value(:u32, (@place * @size) + OFFSET, 0)
      end
    end
    private_constant :Share
  end
end
