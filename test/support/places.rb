# frozen_string_literal: true

module Polyphony
  # The places from which stock Ruby is called: fibers for which Ruby asks the scheduler, and others for
  # which it does not. In each of them another fiber of the same thread has to get its turns meanwhile.
  module Places
    KINDS = {
      main: ->(work) { work.call },
      spun: ->(work) { spin(&work).await },
      enumerator: ->(work) { Enumerator.new { |yielder| yielder << work.call }.next },
      enumerator_in_spun: ->(work) { spin { Enumerator.new { |yielder| yielder << work.call }.next }.await },
      generator: ->(work) { Fiber.new(&work).resume },
      thread: ->(work) { Thread.new(&work).value },
      spun_in_thread: ->(work) { Thread.new { spin(&work).await }.value }
    }.freeze

    # @yield [kind] in each of the places, the work; it calls +beating+ where it waits
    # @return [Hash] kind => what the work returned
    def in_all_places(kinds = KINDS.keys)
      kinds.to_h { |kind| [kind, KINDS.fetch(kind).call(-> { yield kind })] }
    end

    # Asserts that another fiber of the thread gets at least so many turns while the block waits. The
    # block must not be able to end before: what it waits for is given by +enough+, called then.
    # @param enough [#call] run in that other fiber
    # @return [Object] what the block returned
    def beating(enough, turns: 5)
      beats = 0
      other = spin do
        turns.times { beats += 1; snooze }
        enough.call
      end
      value = yield
      assert_operator beats, :>=, turns, 'others had no turn'
      other.await
      value
    end
  end
end
