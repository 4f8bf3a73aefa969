# frozen_string_literal: true

module Polyphony
  # For stock methods that wait: what they return in stock Ruby, and that others run meanwhile.
  module Beside
    # How often others have to run before the wait is ended.
    BEATS = 5

    # Calls +wait+, which can only be ended by +satisfy+, and that only happens when another fiber has run
    # often enough. A method that stops the thread makes this hang.
    # @return [Object] what +wait+ returns
    def beside(satisfy)
      beats = 0
      heart = spin { loop { snooze; beats += 1 } }
      helper = spin { snooze until beats >= BEATS; satisfy.call }
      result = yield
      assert_operator beats, :>=, BEATS
      helper.await
      result
    ensure
      heart&.stop
      heart&.await
    end

    # In threads that have never waited, every method is Ruby's own.
    # @return [Object] what +wait+ returns
    def stock(wait, satisfy)
      waiting = Thread.new { [wait.call, Thread.current.__polyphony_backend?] }
      Thread.new { satisfy.call }.join
      result, switched = waiting.value
      refute switched
      result
    end

    WHERE = {
      main: ->(wait) { wait.call },
      spun: ->(wait) { spin { wait.call }.await },
      enumerator: ->(wait) { Enumerator.new { |yielder| yielder << wait.call }.next }
    }.freeze

    # @yield prepares anew and returns [wait, satisfy, look]: look makes results comparable
    def assert_like_stock(where, &prepare)
      wait, satisfy, look = instance_exec(&prepare)
      expected = look.call(stock(wait, satisfy))
      wait, satisfy, look = instance_exec(&prepare)
      actual = look.call(beside(satisfy) { instance_exec(wait, &WHERE.fetch(where)) })
      assert_equal [expected], [actual]
    end
  end
end
