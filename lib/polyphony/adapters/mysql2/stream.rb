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

        # Options for rows that nobody wants.
        UNWANTED = { cast: false, cache_rows: false }.freeze
        UNWANTED_OF_STATEMENT = { cache_rows: false }.freeze # mysql2 insists on making objects of these
        private_constant :UNWANTED, :UNWANTED_OF_STATEMENT

        # @param result [Mysql2::Result]
        # @param prepared [Boolean] whether it is of a prepared statement
        def initialize(result, prepared: false)
          @result = result
          @prepared = prepared
          @draining = false
          @rows = Queue.new.__for_ourselves
          @done = false
        end

        # @return [Boolean] whether all rows have been taken
        def done?
          @done
        end

        # Calls the block with each row that is left. May be ended anywhere, and called again then.
        def each(options)
          until @done
            begin_part(options) unless @call
            next finish_part if @fetched && @rows.empty?

            row = @rows.shift
            yield row unless row.equal?(PAUSE)
          end
        end

        # Takes the rows that are left, for nobody.
        def drain
          @draining = true
          each([@prepared ? UNWANTED_OF_STATEMENT : UNWANTED]) { nil }
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

        def begin_part(options)
          ::Thread.handle_interrupt(::Object => :never) do
            @fetched = false
            errors_tell = @prepared || @draining
            @call = Call.new { fetch_some(options, errors_tell) }.in_thread
          end
        end

        # In the thread. It says what it has done before it wakes who waits for rows. mysql2 also raises when it cannot make an object of
        # a value, and more rows come then. Its own errors tell these apart only where it does not look at values itself.
        def fetch_some(options, errors_tell)
          left = AHEAD
          @all = true
          EACH.bind_call(@result, *options) do |row|
            @rows << row
            break @all = false if (left -= 1).zero?
          end
        rescue ::StandardError => e
          @all = errors_tell && e.is_a?(::Mysql2::Error)
          raise
        ensure
          @fetched = true
          @rows << PAUSE
        end

        # Whether there is more is noted when the thread has ended, and not before: the wait for it may be ended. Two fibers wait if one that
        # drains was left to itself.
        def finish_part
          part = @call.wait
          return unless part.equal?(@call)

          @done = @all
          @call = nil
          @rows << PAUSE
          part.value unless @draining && !@done # nobody wants the row
        end
      end
      private_constant :Stream
    end
  end
end
