# frozen_string_literal: true

module Polyphony
  class Remote
    # Hears from the mailboxes of registered fibers what becomes of messages that came from Redis: when a fiber comes for the next one,
    # it is done with those before. (See class_queue.c. Nothing here may switch.)
    # @api private
    module Courier
      @taken = {}.compare_by_identity # fiber => deliveries that it has received and not acknowledged

      class << self
        # @return [Array<Delivery>]
        def taken(fiber)
          @taken.fetch(fiber, [])
        end

        # @param deliveries [Array<Delivery>] which the fiber is done with
        def take_off(fiber, deliveries)
          left = taken(fiber) - deliveries
          left.empty? ? @taken.delete(fiber) : @taken[fiber] = left
        end

        # What belongs to a Remote that is being closed.
        def forget(remote)
          @taken.keys.each { |fiber| take_off(fiber, taken(fiber).select { |delivery| delivery.remote.equal?(remote) }) }
        end

        def __asked
          @taken.delete(::Fiber.current)&.each(&:__done) unless @taken.empty?
        end

        def __taken(item)
          return item unless item.is_a?(Delivery)

          note(::Fiber.current, item)
          item.__taken
          item.message
        end

        def __dropped(item)
          item.__give_back if item.is_a?(Delivery)
        end

        # A fiber that had taken something has ended.
        def <<(report)
          @taken.delete(report.first)&.each(&:__give_back)
        end

        private

        def note(fiber, delivery)
          list = @taken[fiber]
          return list << delivery if list

          @taken[fiber] = [delivery]
          fiber.__tell_at_end(self)
        end
      end
    end
  end
end
