# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # The rows of a result that is streamed. Each may have to be waited for, so a thread fetches them, some at a time: it comes to its
      # end by itself when nobody wants more.
      # @api private
      class Stream
        # How many rows are fetched before somebody has taken them.
        AHEAD = 100
        EACH = ::Mysql2::Result.instance_method(:each)
        PAUSE = ::Object.new.freeze
        private_constant :AHEAD, :EACH, :PAUSE

        # @param result [Mysql2::Result]
        def initialize(result)
          @result = result
          @rows = Queue.new
          @done = false
        end

        # @return [Boolean] whether all rows have been taken
        def done?
          @done
        end

        # Calls the block with each row that is left.
        def each(options)
          until @done
            @call ||= fetch(options)
            row = @rows.shift
            row.equal?(PAUSE) ? finish_part : yield(row)
          end
        end

        # Waits for the thread, if there is one.
        def wait
          @call&.wait
        end

        # There will be no more.
        def give_up
          @done = true
        end

        private

        def fetch(options)
          Call.new { fetch_some(options) }.in_thread
        end

        # @return [Boolean] whether these were all
        def fetch_some(options)
          left = AHEAD
          EACH.bind_call(@result, *options) do |row|
            @rows << row
            return false if (left -= 1).zero?
          end
          true
        ensure
          @rows << PAUSE
        end

        def finish_part
          part = @call
          @call = nil
          @done = true
          @done = part.value
        end
      end
      private_constant :Stream
    end
  end
end
