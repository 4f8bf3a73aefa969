# frozen_string_literal: true

module Polyphony
  module Adapters
    class SharedRedis
      # Commands of one caller, which are sent together, and their replies.
      # @api private
      class Request
        # @return [Array<Array<String>>]
        attr_reader :commands

        def initialize(commands)
          @commands = commands
          @replies = []
          @waiting = WaitList.new(self, 'a reply from Redis')
          @sent = @abandoned = @settled = false
        end

        def size
          @commands.size
        end

        # Waits until the replies are there, or there is something to be done for all.
        def park
          @waiting.park
        end

        def wake
          @waiting.wake
        end

        def send!
          @sent = true
        end

        def sent?
          @sent
        end

        # Nobody wants the replies any more. They come nevertheless.
        def abandon
          @abandoned = true
          @commands = Array.new(size) # how many is enough to know
        end

        def abandoned?
          @abandoned
        end

        # @return [Boolean] whether that was the last
        def <<(reply)
          @replies << reply
          settle if @replies.size == size
          @settled
        end

        def fail(error)
          @error = error
          settle
        end

        def settled?
          @settled
        end

        # @return [Array] the replies
        # @raise [RedisClient::Error] of its own: each who shares the connection shows where it was waiting
        def value
          return @replies unless @error

          error = @error.clone
          error.set_backtrace(caller)
          raise error, cause: @error
        end

        # @return [String]
        def inspect
          "#<#{self.class} #{size} commands, #{@replies.size} replies>"
        end

        private

        def settle
          @settled = true
          wake
        end
      end
    end
  end
end
