# frozen_string_literal: true

module Polyphony
  # Runs code in a Ruby that has the scheduler and nothing else of Polyphony.
  module Alone
    # same(expected) { } compares, outcome { } makes errors comparable.
    WORDS = <<~'RUBY'
      def same(expected)
        actual = yield
        raise "expected #{expected.inspect}, got #{actual.inspect}" unless actual == expected
      end

      def outcome
        yield
      rescue StandardError => e
        [e.class, e.message]
      end

    RUBY

    # In each thread { }: Polyphony::Scheduler is set. beside(satisfy) { wait } runs the block in a fiber of
    # its own; satisfy is called when a heartbeat has had some turns since the block began, so a hook or a
    # stock method that stops the thread makes this hang.
    PRELUDE = WORDS + <<~'RUBY'
      require 'polyphony/core'
      require 'socket'
      require 'timeout'
      Warning[:experimental] = false
      BEATS = 5

      def hooks
        Fiber.scheduler
      end

      def thread
        Thread.new do
          Thread.current.report_on_exception = false
          Fiber.set_scheduler(Polyphony::Scheduler.new)
          yield
        end.value
      end

      def beside(satisfy, &wait)
        beats = 0
        result = ended = nil
        Fiber.schedule { result = wait.call; ended = beats }
        raise "it did not wait: #{result.inspect}" if ended

        Fiber.schedule { until ended; sleep 0.0005; beats += 1; end }
        Fiber.schedule { sleep 0.0005 until beats >= BEATS; satisfy.call } if satisfy
        hooks.run
        raise "only #{ended} beats" if ended < (satisfy ? BEATS : 1)

        result
      end

      # It ends by itself, after a time that is long enough for a beat.
      def beside_nothing(&wait)
        beside(nil, &wait)
      end

      # Waits for what another thread does.
      def wait_until
        Thread.pass until yield
      end
    RUBY

    # Runs the code, which raises if something is not as it should be.
    def assert_alone(code, prelude: PRELUDE, **options)
      out, err, status = run_ruby("#{prelude}\n#{code}\nprint :ok", **options)
      assert status.success?, "#{status}\n#{out}\n#{err}"
      assert_equal ['ok', ''], [out, err]
    end
  end
end
