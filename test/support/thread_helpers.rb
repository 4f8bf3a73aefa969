# frozen_string_literal: true

module Polyphony
  # Threads whose errors the test looks at, and waiting until they are where they should be.
  module ThreadHelpers
    # A thread whose errors are looked at by the test.
    def quiet(*args, &block)
      silently { Thread.new(*args, &block) }
    end

    def silently
      before = Thread.report_on_exception
      Thread.report_on_exception = false
      yield
    ensure
      Thread.report_on_exception = before
    end

    def wait_until(what)
      deadline = clock + patient(20)
      sleep 0.0005 until yield || clock > deadline
      assert yield, "not within #{patient(20)} s: #{what}"
    end

    def wait_until_waiting(thread)
      wait_until('the thread waits') { thread.status == 'sleep' && thread.main_fiber&.state == :waiting }
    end

    def wait_until_stopped(thread)
      wait_until('the thread is stopped') { thread.stop? }
    end
  end
end
