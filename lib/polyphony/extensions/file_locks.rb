# frozen_string_literal: true

require 'polyphony/extensions/aside'

module Polyphony
  # File#flock: only the fiber waits for the lock.
  module FileLocks
    # @param operation [Integer] as stock
    # @return [0, false]
    def flock(operation)
      return super unless StandIn.possible? && FileLocks.waits?(operation)

      # What was printed is written, and a free lock is taken at once.
      super(operation | ::File::LOCK_NB) || wait_for_lock(operation)
    end

    # @return [nil]
    def close
      Aside.release(self) if Thread.__polyphony_main_ractor? && Aside.waiting?
      super
    end

    # @!visibility private
    def self.waits?(operation)
      operation.is_a?(Integer) && (operation & (::File::LOCK_NB | ::File::LOCK_UN)).zero?
    end

    private

    def wait_for_lock(operation)
      descriptor = fileno
      unlock = ->(_) { Aside.flock(descriptor, ::File::LOCK_UN) unless closed? }
      Aside.run(unlock, self) { Aside.flock(descriptor, operation) }
    end

    ::File.prepend self
  end
end
