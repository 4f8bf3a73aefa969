# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # Prepended to Mysql2::Result, for those that are streamed.
      module Result
        # @!visibility private
        def __streamed(client, stream)
          @__polyphony_client = client
          @__polyphony_stream = stream
        end

        # As stock; other fibers run while a row is waited for. If an exception comes out of it, a stop or a time limit for instance, the
        # rows that are left are given up.
        def each(*options, &block)
          return super if @__polyphony_stream.nil? || @__polyphony_stream.done?

          @__polyphony_client.__each_row(@__polyphony_stream, options, &block)
          []
        end

        # As stock; the server is told that nobody wants the rows that are left.
        def free
          @__polyphony_client.__give_up_stream(@__polyphony_stream) if @__polyphony_stream
          super
        end
      end
    end
  end
end
