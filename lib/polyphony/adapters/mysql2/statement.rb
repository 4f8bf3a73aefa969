# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # Prepended to Mysql2::Statement.
      module Statement
        EXECUTE = ::Mysql2::Statement.instance_method(:_execute)
        private_constant :EXECUTE

        # @!visibility private
        def __of(client)
          @__polyphony_client = client
          self
        end

        # As stock, while other fibers run. mysql2 receives the rows with Ruby's lock held, unless they are streamed: no thread runs
        # while a large result arrives.
        def execute(*args, **options)
          return super unless @__polyphony_client

          @__polyphony_client.__execute(options) { EXECUTE.bind_call(self, *args, **options) }
        end

        # As stock.
        def close
          return super unless @__polyphony_client

          @__polyphony_client.__close_statement(self) { super() }
        end
      end
    end
  end
end
