# frozen_string_literal: true

module Polyphony
  module Adapters
    module RedisClient
      # For connections of every driver. A command that ends without its reply, by a cancel, a limit or an error, closes the
      # connection at once. (redis-client itself does so when the connection is next used. Until then the server goes on with
      # the command: a BLPOP that nobody waits for any more would take the next element, and it would be lost.)
      # @api private
      module Conversation
        def call(*)
          __whole { super }
        end

        def call_pipelined(*, **)
          __whole { super }
        end

        private

        # The error of a command is a reply. In a pipeline, it is raised when all the replies are there.
        def __whole
          result = yield
          whole = true
          result
        rescue ::RedisClient::CommandError
          whole = true
          raise
        ensure
          close unless whole
        end
      end

      # A command that was written in part leaves nothing to go on with.
      # @api private
      module WholeWrites
        def write(*)
          __written { super }
        end

        def write_multi(*)
          __written { super }
        end

        private

        def __written
          result = yield
          written = true
          result
        ensure
          close unless written
        end
      end
    end
  end
end
