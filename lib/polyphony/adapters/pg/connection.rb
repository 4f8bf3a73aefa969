# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # What is put before the methods of PG::Connection that talk to the server.
      # @api private
      module Connection
        include Exclusive

        stock = ::PG::Connection

        # These are whole conversations: a query and its answer. The block gets the answer, and may use the connection.
        %i[exec async_exec query async_query exec_params async_exec_params prepare async_prepare exec_prepared
           async_exec_prepared describe_prepared async_describe_prepared describe_portal async_describe_portal close_prepared
           async_close_prepared close_portal async_close_portal set_client_encoding async_set_client_encoding
           client_encoding=].each do |name|
          next unless stock.method_defined?(name)

          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def #{name}(*args)
              result = __converse(true) { super(*args, &nil) }
              __part(result) if @__polyphony_talker
              return result unless block_given?

              begin
                yield result
              ensure
                result&.clear
              end
            end
          RUBY
        end

        # libpq's own way of waiting stops all threads.
        %i[exec exec_params prepare exec_prepared describe_prepared describe_portal close_prepared close_portal
           set_client_encoding get_last_result reset].each do |name|
          next unless stock.method_defined?(:"sync_#{name}") && stock.method_defined?(:"async_#{name}")

          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def sync_#{name}(*args, &block)
              async_#{name}(*args, &block)
            end
          RUBY
        end

        # These begin a conversation, or go on with a pipeline of the same fiber.
        %i[send_query send_query_params send_prepare send_query_prepared send_describe_prepared send_describe_portal
           send_close_prepared send_close_portal].each do |name|
          next unless stock.method_defined?(name)

          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def #{name}(*args)
              __transmit { super(*args) }
            end
          RUBY
        end

        # These are part of one, and wait.
        %i[block flush async_flush get_last_result async_get_last_result get_result async_get_result].each do |name|
          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def #{name}(*args)
              __part(__converse { super(*args, &nil) })
            end
          RUBY
        end

        # These are part of one too. Where they wait, they call one of the above.
        %i[put_copy_data async_put_copy_data put_copy_end async_put_copy_end pipeline_sync async_pipeline_sync
           exit_pipeline_mode].each do |name|
          next unless stock.method_defined?(name)

          class_eval <<~RUBY, __FILE__, __LINE__ + 1
            def #{name}(*args)
              __talk { super(*args) }
            end
          RUBY
        end

        def set_single_row_mode
          @__polyphony_single = true
          super
        end

        if stock.method_defined?(:set_chunked_rows_mode)
          def set_chunked_rows_mode(rows)
            @__polyphony_single = true
            super
          end
        end

        if Ending::PIPELINES
          # libpq takes rows one by one also in the pipeline, if the last query before it did so. Any other ends that.
          def enter_pipeline_mode
            __talk(true) do
              exec('') if @__polyphony_single && transaction_status != ::PG::PQTRANS_ACTIVE && !__pipeline?
              @__polyphony_single = false
              super
            end
          end
        end

        def sync_get_result(&block)
          result = __converse { block(); super(&nil) }
          return __part(result) unless block && result

          begin
            yield result
          ensure
            result.clear
          end
        end

        # A decoder may raise, and the next row be read nevertheless: only the wait is watched.
        def get_copy_data(async = false, decoder = nil) # rubocop:disable Style/OptionalBooleanParameter -- as stock
          return super if async

          __talk do
            while (row = sync_get_copy_data(true, decoder)) == false
              __watch { socket_io.wait_readable }
              consume_input
            end
            row
          end
        end
        alias async_get_copy_data get_copy_data

        def sync_get_copy_data(async = false, decoder = nil) # rubocop:disable Style/OptionalBooleanParameter -- as stock
          async ? super : get_copy_data(false, decoder)
        end

        # The block is called when the connection is free again.
        def wait_for_notify(*args)
          news = nil
          name = __talk(true) { super(*args) { |*parts| news = parts } }
          yield(*news) if news && block_given?
          name
        end
        alias notifies_wait wait_for_notify

        # A COPY whose block is left early, in whatever way, fails as a whole.
        def copy_data(sql, coder = nil)
          super(sql, coder) do |result|
            finished = false
            value = yield result
            finished = true
            value
          ensure
            __give_up unless finished
          end
        end

        # As stock; and a cancel rolls back as well, and cannot keep the ROLLBACK from being done. So does a kill of the fiber.
        def transaction
          killed = []
          exec('BEGIN')
          Polyphony.__noting_kill(killed) { yield(self) }
        rescue ::Exception => error # rubocop:disable Lint/RescueException -- is raised again
          raise unless error.is_a?(SILENT)
        ensure
          error || killed.any? || ::Thread.current.status == 'aborting' ? __rollback : exec('COMMIT')
        end
        # The first versions of 1.5 have none.
        SILENT = ::PG.const_defined?(:RollbackTransaction) ? ::PG::RollbackTransaction : Class.new(::StandardError)
        private_constant :SILENT

        def async_encrypt_password(password, username, algorithm = nil)
          algorithm ||= exec('SHOW password_encryption').getvalue(0, 0)
          ENCRYPT.bind_call(self, password, username, algorithm)
        end
        ENCRYPT = stock.instance_method(:sync_encrypt_password)
        private_constant :ENCRYPT
        alias encrypt_password async_encrypt_password
        alias sync_encrypt_password async_encrypt_password

        # Stock asks the server and stops the thread.
        def internal_encoding=(encoding)
          return set_client_encoding('JOHAB') if encoding.to_s.casecmp?('JOHAB') # Ruby does not have it

          known = encoding && ::Encoding.find(encoding.to_s)
          plain = [nil, ::Encoding::BINARY, ::Encoding::US_ASCII].include?(known)
          set_client_encoding(plain ? 'SQL_ASCII' : known.name)
        rescue ::PG::InvalidParameterValue, ::PG::UndefinedObject => e
          raise ::EncodingError::CompatibilityError, "incompatible character encodings: #{external_encoding} and #{encoding} (#{e.message.strip})"
        end

        # libpq must never wait by itself.
        def sync_setnonblocking(enabled)
          enabled ? super : setnonblocking(false)
        end

        def reset
          __alone do
            raise __ended if finished? && @__polyphony_ended

            super
            @__polyphony_ended = @__polyphony_stray = @__polyphony_both = nil
            __at_rest
            self
          end
        end
        alias async_reset reset

        # As stock. Nothing happens if it was thrown away, so that it can be closed by those who do not know.
        def finish
          finished? && @__polyphony_ended ? nil : __alone { super }
        end
        alias close finish

        # A call that is all there is to a conversation, or a part of it in which only waiting can be broken off.
        # @param begins [Boolean] whether it begins one
        def __converse(begins = false)
          return yield if ::Fiber.current.equal?(@__polyphony_user)

          __talk(begins) { __watch { yield } }
        end

        # Rows that come one by one. Left by an exception, the rest is not wanted; left otherwise, it may be.
        def __stream
          __talk do
            @__polyphony_open = true
            yield
          rescue ::Exception => e # rubocop:disable Lint/RescueException -- is raised again
            __give_up unless e.is_a?(::PG::Error) && __own?(e)
            raise
          ensure
            @__polyphony_open = false
          end
        end

        # While the block of somebody who reads a stream has the word, which may be for ever.
        def __aside
          user = @__polyphony_user
          @__polyphony_user = nil
          @__polyphony_open = false
          result = yield
          raise ConnectionInUse, __in_use if @__polyphony_user

          @__polyphony_open = true
          result
        ensure
          @__polyphony_user ||= user
        end

        private

        # Nobody else may use it meanwhile.
        def __talk(begins = false)
          return yield if ::Fiber.current.equal?(@__polyphony_user)

          __alone do
            __ready(begins)
            @__polyphony_talker = ::Fiber.current
            yield
          ensure
            @__polyphony_talker = nil if finished? || !__busy?
          end
        end

        # What is broken off in a wait is ended. The error of a server ends it in order; but a limit may have been given an
        # error of that class.
        def __watch
          @__polyphony_open = true
          finished = false
          result = yield
          finished = true
          result
        rescue ::PG::Error => e
          finished = __own?(e)
          raise
        ensure
          finished ? @__polyphony_open = false : __give_up
        end

        def __own?(error)
          error.connection.equal?(self)
        end

        # Who begins anew gets a connection on which nothing is left of what another fiber began.
        def __ready(begins)
          raise __ended if @__polyphony_ended
          return if finished? || !(@__polyphony_open || @__polyphony_talker || @__polyphony_stray)

          __give_up if @__polyphony_open || (begins && @__polyphony_talker && !@__polyphony_talker.equal?(::Fiber.current))
          __recover_from_stray if @__polyphony_stray
          raise __ended if @__polyphony_ended
        end

        def __recover_from_stray
          __throw_away('a request to cancel its query may still be on its way') unless finished? || __busy?
        end

        def __ended
          ::PG::ConnectionBad.new(__why_ended, connection: self)
        end

        # The sending itself can fail because of its arguments, which is no reason to end a pipeline; so the waiting is done here.
        def __transmit(&send)
          return __converse(true, &send) unless FLUSHES

          __talk(true) do
            next yield if nonblocking?

            result = __without_flush(&send)
            __watch { Ending::FLUSH.bind_call(self) }
            result
          end
        end

        # Whether stock sends can be told not to wait.
        FLUSHES = stock.private_method_defined?(:flush_data=)
        private_constant :FLUSHES

        def __without_flush
          self.flush_data = false
          yield
        ensure
          self.flush_data = true
        end

        # Results that come one by one know where they come from; what can be ended in one way only is noted.
        def __part(result)
          return result unless result.is_a?(::PG::Result)

          case result.result_status
          when ::PG::PGRES_SINGLE_TUPLE, CHUNK then result.__come_from(self)
          when ::PG::PGRES_COPY_BOTH then @__polyphony_both = true
          end
          result
        end
        CHUNK = ::PG.const_defined?(:PGRES_TUPLES_CHUNK) ? ::PG::PGRES_TUPLES_CHUNK : ::PG::PGRES_SINGLE_TUPLE
        private_constant :CHUNK

        # While it is made, or made again.
        def async_connect_or_reset(*)
          connected = false
          super
          connected = true
        ensure
          __throw_away('connecting was broken off') unless connected
        end
      end
    end
  end
end
