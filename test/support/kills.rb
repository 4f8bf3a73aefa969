# frozen_string_literal: true

module Polyphony
  # For tests of what is killed. No rescue sees that, and an ensure takes it for a break.
  module Kills
    in_thread = lambda do |work|
      reached = Queue.new
      thread = ::Thread.new { work.call(-> { reached << true; sleep }) }
      reached.shift
      thread.kill.join
    end
    in_spun = lambda do |work|
      reached = Queue.new
      fiber = Fiber.current.spin { work.call(-> { reached << true; sleep }) }
      reached.shift
      fiber.kill
      fiber.await
    end

    # How: what calls the block, and kills it when that calls what it is given.
    WAYS = {
      thread: in_thread,
      spun_fiber_of_a_thread: ->(work) { in_thread.call(->(pause) { Fiber.current.spin { work.call(pause) }.await }) },
      spun_fiber: in_spun,
      fiber: ->(work) { Fiber.new { work.call(-> { Fiber.yield }) }.tap(&:resume).kill },
      fiber_that_waits: lambda { |work|
        reached = Queue.new
        raw = Fiber.new { work.call(-> { reached << true; sleep }) }
        resumer = Fiber.current.spin { raw.resume }
        reached.shift
        raw.kill
        resumer.await
      },
      fiber_by_itself: ->(work) { Fiber.new { work.call(-> { Fiber.current.kill }) }.resume }
    }.freeze
    STOCK = %i[fiber fiber_by_itself].freeze

    # Skips a test that needs what this Ruby does not have.
    def self.need(test, name)
      test.skip 'Fiber#kill came with Ruby 3.3' if STOCK.include?(name) && !::Fiber.instance_method(:kill).super_method
    end

    # Defines a test for each way.
    # @yield [Proc] the way
    def test_killed(title, &block)
      WAYS.each do |name, way|
        define_method("test_#{title}_in_a_killed_#{name}") do
          Kills.need(self, name)
          instance_exec(way, &block)
        end
      end
    end
  end
end
