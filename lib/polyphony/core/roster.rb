# frozen_string_literal: true

module Polyphony
  # The pools of this process that have threads or workers, by their crews. These are not kept alive by it: each leaves when its last
  # thread or worker does.
  # @api private
  module Roster
    CREWS = PerProcess.new { {}.compare_by_identity }
    private_constant :CREWS

    class << self
      def enter(crew, kind)
        CREWS.value[crew] = kind
      end

      def leave(crew)
        CREWS.value.delete(crew)
      end

      # @return [Array<Hash>] what those of a kind say of themselves
      def stats(kind, except: nil)
        CREWS.value.to_a.filter_map { |crew, its| crew.stats if its == kind && !crew.equal?(except) }
      end
    end
  end

  private_constant :Roster

  # What all pools of this process are doing: a part of Polyphony.stats.
  # @api private
  def self.__pool_stats
    files, lookups = __thread_stats
    { blocking: blocking_pool.stats, files: files, lookups: lookups, thread_pools: Roster.stats(:thread_pools),
      blocking_pools: Roster.stats(:blocking_pools, except: blocking_pool.__crew), process_pools: Roster.stats(:process_pools) }
  end
end
