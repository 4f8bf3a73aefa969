# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # What is put before the methods of PG::Result that wait for more rows. If one is left by an exception, the query is ended. One that is
      # left with +break+ can be read on.
      # @api private
      module Result
        %i[stream_each stream_each_row stream_each_tuple].each do |name|
          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def #{name}
              connection = @__polyphony_connection
              return super unless connection && block_given?

              connection.__stream do
                super() { |row| connection.__aside { yield row } }
              end
            end
          RUBY
        end

        # @param connection [PG::Connection]
        def __come_from(connection)
          @__polyphony_connection = connection
        end
      end
    end
  end
end
