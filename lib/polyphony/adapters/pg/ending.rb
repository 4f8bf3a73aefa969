# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # How a conversation ends that was broken off: the server is asked to cancel it, what it still sends is read, and all
      # that within a time. If that fails, so does the connection: whoever has it next must not get an answer to what somebody else
      # asked.
      # @api private
      module Ending
        # As they are without us, except that they let other fibers run.
        FINISH, DISCARD, BLOCK, GET_RESULT, FLUSH, TRY_FLUSH =
          %i[finish discard_results block sync_get_result flush sync_flush].map { |name| ::PG::Connection.instance_method(name) }
        # Versions of libpq before 14 have none.
        PIPELINES = ::PG::Connection.method_defined?(:pipeline_status)
        # A request may come to a server process before the query does, and is without effect then.
        ASK_AGAIN = 0.25

        # Requests that the server cancels the query under way. Any fiber may do so. Returns when the server has confirmed, or
        # after the drain_time.
        # @return [String, nil] what went wrong
        def cancel
          return __why_ended if finished?
          return nil unless transaction_status == ::PG::PQTRANS_ACTIVE

          answered = false
          failure = nil
          # If it is not known whether it arrived, it may hit a later query.
          CancelScope.shield do
            CancelScope.move_on_after(PG.drain_time, nil) { failure = __request_cancel; answered = true }
          end
          answered ? failure : "the server did not confirm the cancel request within #{PG.drain_time} s"
        ensure
          @__polyphony_stray = true if answered == false || failure
        end
        alias async_cancel cancel
        alias sync_cancel cancel

        # As stock; false also if the connection was thrown away.
        def discard_results
          finished? && @__polyphony_ended ? false : __converse { super }
        end

        # Ends what is under way, if anything is.
        def __give_up
          return if finished? || (@__polyphony_user && !@__polyphony_user.equal?(::Fiber.current))

          __alone do
            at_rest = !__busy?
            CancelScope.shield { at_rest = __end_query } unless at_rest # what it held back is raised at its end
          ensure
            at_rest ? __at_rest : __throw_away(__not_in_time)
          end
        end

        # Makes it fit for the next user: what is under way is ended, a transaction is rolled back.
        # @return [Boolean] whether it can be used
        def __recover
          __give_up if !finished? && (@__polyphony_open || __busy?)
          __throw_away('a request to cancel its query may still be on its way') if @__polyphony_stray && !finished?
          __rollback unless finished?
          !finished? && !@__polyphony_ended && status == ::PG::CONNECTION_OK
        end

        # Rolls a transaction back, if there is one. In any case there is none afterwards.
        def __rollback
          __give_up if __busy?
          return if finished? || !__in_transaction?

          CancelScope.shield { CancelScope.move_on_after(PG.drain_time, nil) { exec('ROLLBACK') } }
        rescue ::PG::Error
          nil # the server is gone, and with it the transaction; or it is thrown away below
        ensure
          __throw_away("a transaction could not be rolled back within #{PG.drain_time} s") if !finished? && __in_transaction?
        end

        # In a forked child. The parent goes on with the connection, so nothing may be said to the server, which happens also
        # when it is collected as garbage. The socket of a broken one is closed already, and its number may be somebody else's.
        def __disown(pid)
          return if finished?

          @__polyphony_ended = "it was made by process #{pid}, which may be using it: connect anew in each process"
          @__polyphony_user = nil
          socket_io.reopen(::IO::NULL) unless status == ::PG::CONNECTION_BAD
        rescue ::PG::Error
          nil # has no socket
        end

        private

        # Closes it, and notes why.
        def __throw_away(why)
          return if finished?

          @__polyphony_ended = why
          @__polyphony_talker = nil
          FINISH.bind_call(self)
        end

        def __at_rest
          @__polyphony_open = false
          @__polyphony_talker = nil
        end

        def __why_ended
          "connection is closed#{": #{@__polyphony_ended}" if @__polyphony_ended}"
        end

        def __not_in_time
          "what was under way on it was cancelled, and did not end within #{PG.drain_time} s (Polyphony::Adapters::PG.drain_time)"
        end

        # @return [Boolean] whether there is a query under way, or a pipeline
        def __busy?
          transaction_status == ::PG::PQTRANS_ACTIVE || __pipeline?
        end

        def __pipeline?
          PIPELINES && pipeline_status != ::PG::PQ_PIPELINE_OFF
        end

        def __in_transaction?
          [::PG::PQTRANS_INTRANS, ::PG::PQTRANS_INERROR].include?(transaction_status)
        end

        # @return [Boolean] whether it is at rest
        def __end_query
          return false if @__polyphony_both || !__sent?

          limit = Clock.now + PG.drain_time
          while (left = limit - Clock.now).positive?
            return false if cancel
            return true if CancelScope.move_on_after([left, ASK_AGAIN].min, false) { __drain }
          end
          false
        end

        # The server runs what it has received, so what was not sent whole must not be. Data of a COPY may be.
        def __sent?
          TRY_FLUSH.bind_call(self) || !(is_busy || __pipeline?)
        rescue ::PG::Error
          false
        end

        def __drain
          __pipeline? ? __drain_pipeline : DISCARD.bind_call(self)
          !__busy?
        rescue ::PG::Error
          finished? || status != ::PG::CONNECTION_OK
        end

        # To the last result. There is a nil after each query, and more of them only at the end.
        def __drain_pipeline
          pipeline_sync
          nothing = 0
          while nothing < 2
            BLOCK.bind_call(self)
            result = GET_RESULT.bind_call(self)
            nothing = result ? 0 : nothing + 1
            ended = result && result.result_status == ::PG::PGRES_PIPELINE_SYNC
            result&.clear
            return if ended && __left_pipeline?
          end
          __left_pipeline?
        end

        def __left_pipeline?
          exit_pipeline_mode
          true
        rescue ::PG::Error
          false # there is more
        end

        # @return [String, nil] what went wrong
        def __request_cancel
          defined?(::PG::CancelConnection) ? __cancel_by_libpq : __cancel_by_socket
          nil
        rescue ::PG::Error, ::SystemCallError => e
          e.message
        end

        def __cancel_by_libpq
          request = ::PG::CancelConnection.new(self)
          request.async_cancel
        ensure
          request&.finish
        end

        # libpq before 17 has no way that does not stop the thread. The message is that of the protocol, and the server closes
        # the connection when it is done.
        def __cancel_by_socket
          socket_io.remote_address.connect do |socket|
            socket.write([16, 1234, 5678, backend_pid, backend_key].pack('NnnNN'))
            socket.read(1)
          end
        end
      end
    end
  end
end
