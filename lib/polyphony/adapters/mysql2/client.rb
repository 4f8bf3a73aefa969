# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # Prepended to Mysql2::Client.
      module Client
        include MySQL

        # What is sent in one go, without waiting: a socket has room for it.
        SHORT = 16_384
        # Errors of the client library after which nobody knows what the server will say next.
        FATAL = [2006, 2013, 2014, 2020, 2026, 2027, 2055].freeze
        SIDE = { connect_timeout: 1, read_timeout: 1, write_timeout: 1, reconnect: false }.freeze
        # How long the next result is awaited before the server is asked whether there will be one, and how long at most between questions.
        GLANCE = 0.002
        LONGEST_PAUSE = 0.25
        # A server that was told to stop between two statements has promised a result which never comes; one that is at a
        # statement reports an error soon.
        KILLED_PAUSE = 0.03
        KILLED = 'the next result does not come: the server was told to stop between two statements'
        # How long a connection attempt that is given up may take to end.
        FAREWELL = 0.05
        UNDISTURBED = { ::Object => :never }.freeze
        SEND = ::Mysql2::Client.instance_method(:_query)
        RESULT = ::Mysql2::Client.instance_method(:async_result)
        NEXT = ::Mysql2::Client.instance_method(:next_result)
        STORE = ::Mysql2::Client.instance_method(:store_result)
        CLOSE = ::Mysql2::Client.instance_method(:close)
        CLOSE_STATEMENT = ::Mysql2::Statement.instance_method(:close)
        private_constant :SHORT, :FATAL, :SIDE, :GLANCE, :LONGEST_PAUSE, :KILLED_PAUSE, :KILLED, :FAREWELL, :UNDISTURBED,
                         :SEND, :RESULT, :NEXT, :STORE, :CLOSE, :CLOSE_STATEMENT

        # For the class itself.
        module ClassMethods
          # @!visibility private
          def __polyphony_errors
            [::Mysql2::Error]
          end
        end

        # @!visibility private
        def self.prepended(client)
          client.extend ClassMethods
        end

        # As stock, while other fibers run.
        def initialize(opts = {})
          MySQL.remember(self) # there may be a fork while it connects
          @__polyphony_reconnects = false
          @__polyphony_statements = Statements.new
          super
          __connected(@__polyphony_side ? nil : __another(opts))
        end

        # As stock. If the wait is ended, by a stop or a time limit, the server is told to end the statement, and the
        # connection can be used again when this returns. Where the server does not answer within a second it is closed.
        # @raise [ConnectionInUse] if another fiber waits on this connection
        def query(sql, options = {})
          __alone do
            options = @query_options.merge(options)
            __send_statement(sql, options)
            __receive(options) unless options[:async]
          ensure
            # If something was raised just between the two.
            __break_off(Call.new { nil }.here) if @__polyphony_sent && !options[:async]
          end
        end

        # As stock.
        def async_result
          __alone { __receive(@current_query_options) if @__polyphony_sent }
        end

        # As stock.
        def prepare(sql)
          __alone do
            __begin
            __to_the_end(Call.new { __know(super(sql)) }.in_thread)
          end
        end

        # As stock.
        def ping
          __alone { __begin; __to_the_end(Call.new { super() }.in_thread) }
        end

        # As stock.
        def select_db(name)
          __alone { __begin; __to_the_end(Call.new { super(name) }.in_thread) }
        end

        # As stock. mysql2 waits for the server with Ruby's lock held: all threads stand still for that long.
        def set_server_option(option)
          __alone { __begin; super }
        end

        # As stock. It is waited for before mysql2 is asked, which holds Ruby's lock.
        def next_result
          __alone { __to_the_end(Call.new { __await_next; @__polyphony_untaken = super() }.in_fiber) }
        end

        # As stock.
        def store_result
          __alone { __to_the_end(Call.new { __take_result }.in_thread) }
        end

        # As stock.
        def abandon_results!
          __alone { __skip_results }
        end

        # As stock.
        def reconnect=(wanted)
          @__polyphony_reconnects = wanted ? true : false
          super
        end

        # As stock.
        def close
          __alone { __throw_away }
        end

        # --- for results and statements -----------------------------------------------------------

        # @!visibility private
        def __execute(options, &block)
          __alone do
            __begin
            options = @query_options.merge(options)
            __to_the_end(Call.new { __stream(block.call, options, prepared: true) }.in_thread)
          end
        end

        # @!visibility private
        def __close_statement(statement)
          __alone { @__polyphony_statements.delete(statement); yield }
        end

        # @!visibility private
        def __each_row(stream, options, &block)
          __alone do
            was, @__polyphony_reading = @__polyphony_reading, true
            stream.each(options, &block || proc {})
          rescue ::Exception # rubocop:disable Lint/RescueException -- and raised again
            __end_stream(stream)
            raise
          ensure
            @__polyphony_reading = was
          end
        end

        # @!visibility private
        def __give_up_stream(stream)
          __alone { __end_stream(stream) }
        end

        # @!visibility private
        def __forked
          super
          self.automatic_close = false # or the garbage collector says goodbye to the server in the name of the parent
        end

        private

        # A connection that comes when nobody waits for it any more is closed.
        def connect(*args)
          wanted = true
          call = Call.new { super(*args); CLOSE.bind_call(self) unless wanted }.in_thread
          call.value
          arrived = true
        ensure
          wanted = false
          __end_connecting(call) unless arrived || call.nil? || call.error
        end

        # The descriptor is known when the server's greeting is being waited for; earlier the attempt goes on in its thread,
        # until its own time limit (connect_timeout).
        def __end_connecting(call)
          CancelScope.shield do
            __shut_down unless call.finished?
            CancelScope.move_on_after(FAREWELL, nil) { call.wait }
          end
          CLOSE.bind_call(self) if call.finished?
        end

        # @return [Proc] makes a connection for words about this one
        def __another(opts)
          opts = opts.transform_keys(&:to_sym).merge(SIDE)
          %i[database dbname db init_command stream async].each { |name| opts.delete(name) }
          -> { ::Mysql2::Client.allocate.tap { |side| side.__send__(:__initialize_side, opts) } }
        end

        def __initialize_side(opts)
          @__polyphony_side = true
          initialize(opts)
        end

        # What a statement that went before may have left.
        def __begin
          if @__polyphony_reading
            raise ::Mysql2::Error, 'the rows of a streamed result are being read on this connection: use another one meanwhile'
          end

          __end_stream(@__polyphony_stream) if @__polyphony_stream
          __skip_results unless @__polyphony_sent || closed?
          @__polyphony_all_there = false
        end

        def __send_statement(sql, options)
          __begin
          sending = options.merge(async: true)
          if sql.is_a?(::String) && (sql.bytesize > SHORT || @__polyphony_reconnects)
            __to_the_end(Call.new { __hand_over(sql, sending) }.in_thread)
          else
            __hand_over(sql, sending)
          end
          @current_query_options = options
        end

        # Nothing is raised between the sending and the note that it was done, by another thread for instance: nobody would read the answer.
        def __hand_over(sql, options)
          ::Thread.handle_interrupt(UNDISTURBED) do
            SEND.bind_call(self, sql, options)
            @__polyphony_sent = true
          end
        rescue ::Mysql2::Error
          CLOSE.bind_call(self) if closed? # mysql2 has only taken the descriptor away
          raise
        end

        def __receive(options)
          __to_the_end(Call.new { __read_answer(options) }.in_fiber)
        end

        # In a fiber of its own, and to the end.
        def __read_answer(options = {})
          __wait_for_answer
          answer = __socket.recv_nonblock(Answer::LOOK, ::Socket::MSG_PEEK, exception: false)
          return ::Thread.handle_interrupt(UNDISTURBED) { __take_answer(options) } if Answer.whole?(answer)

          Call.new { __take_answer(options) }.in_thread.value_of_all
        end

        # A stream is known as soon as it is there: whoever gets it may be ended before.
        def __take_answer(options)
          __stream(RESULT.bind_call(self), options)
        ensure
          @__polyphony_sent = false
        end

        def __wait_for_answer
          return if __readable(read_timeout)

          __throw_away
          raise ::Mysql2::Error::TimeoutError, "Timeout waiting for a response from the last query. (waited #{read_timeout} seconds)"
        end

        # @param seconds [Numeric, nil] nil: without a limit
        # @return [Boolean] whether something has come
        def __readable(seconds)
          CancelScope.move_on_after(seconds, false) { Polyphony.backend_wait_io(__socket, false); true }
        end

        # The library's descriptor, as an object to wait on.
        def __socket
          number = socket
          return @__polyphony_socket if @__polyphony_socket&.fileno == number

          @__polyphony_socket = ::BasicSocket.for_fd(number).tap { |socket| socket.autoclose = false }
        end

        def __stream(result, options, prepared: false)
          return result unless result.is_a?(::Mysql2::Result) && options[:stream]

          @__polyphony_stream = Stream.new(result, prepared: prepared)
          result.__streamed(self, @__polyphony_stream)
          result
        end

        def __know(statement)
          @__polyphony_statements.add(statement)
          statement.__of(self)
        end

        # It stays known until it has come to its end, or the connection to its own.
        def __end_stream(stream)
          unless stream.done?
            @__polyphony_rows_come = true
            __bring_to_an_end(Call.new { stream.drain }.in_fiber)
            stream.give_up
          end
          @__polyphony_stream = nil if stream.equal?(@__polyphony_stream)
        ensure
          @__polyphony_rows_come = false
        end

        # --- several results ----------------------------------------------------------------------

        def __skip_results
          __to_the_end(Call.new { __read_results }.in_fiber) if @__polyphony_untaken || more_results?
        end

        def __read_results
          while @__polyphony_untaken || more_results?
            __await_next unless @__polyphony_untaken
            break unless @__polyphony_untaken || NEXT.bind_call(self)

            Call.new { __take_result }.in_thread.value_of_all
          end
        end

        def __take_result
          @__polyphony_untaken = false
          STORE.bind_call(self)
        end

        # The library may have read the next answer already, together with the last one, and does not tell; then nothing more comes. But
        # the server knows whether it is done.
        def __await_next
          return if @__polyphony_all_there || !more_results? || __readable(GLANCE)

          side = @__polyphony_again&.call
          pause = GLANCE
          while side && (doing = __doing(side))
            return if __readable(pause)
            break promised = false if doing == 'Killed' && pause > KILLED_PAUSE

            pause = [pause * 2, LONGEST_PAUSE].min
          end
          @__polyphony_all_there = true
        rescue ::Mysql2::Error
          nil # no other connection can be made: mysql2 waits, with Ruby's lock
        ensure
          side&.close
          raise ::Mysql2::Error::ConnectionError.new(KILLED, nil, FATAL.first) if promised == false
        end

        # @return [String, nil] nil: there is nothing it does
        def __doing(side)
          doing, = side.query("SELECT COMMAND FROM information_schema.PROCESSLIST WHERE #{__here}", as: :array).first
          doing unless doing == 'Sleep'
        end

        # The number alone may be somebody else's, when a name leads to several servers.
        def __here
          address = __socket.local_address
          port = " AND HOST LIKE '%:#{address.ip_port}'" if address.ip?
          "ID = #{thread_id}#{port}"
        end

        # --- what MySQL wants -----------------------------------------------------------------------

        def __kill(side)
          there = "SELECT 1 FROM information_schema.PROCESSLIST WHERE #{__here}"
          return false if side.query(there).first.nil?

          __await_beginning { @__polyphony_rows_come || __doing(side) }
          side.query("KILL QUERY #{thread_id}")
          true
        end

        # Whether rows come that nobody has taken: their query was stopped when it had just begun to stream.
        def __streaming?
          @__polyphony_stream && !@__polyphony_stream.done?
        end

        def __answers_left?
          !closed? && (@__polyphony_sent || @__polyphony_untaken || __streaming? || more_results?)
        end

        # What reads is not left behind when the patience is over: it comes to its end with the connection.
        def __settle(call)
          return false if __lost?(call.error)

          reading = Call.new { __read_what_is_left(call) }.in_fiber
          reading.value
        rescue ::Mysql2::Error
          false
        ensure
          __cut(reading) unless reading.nil? || reading.finished?
        end

        def __read_what_is_left(call)
          __despite_server { __drop(@__polyphony_sent ? __read_answer : call.value) } unless call.error
          __despite_server { __drop(Call.new { __take_result }.in_thread.value_of_all) } if @__polyphony_untaken
          # A server that was told to stop between two statements has promised a result which never comes.
          return false if more_results?

          __despite_server { __absorb }
          true
        end

        # An error which the server reports is an answer.
        def __despite_server
          yield
        rescue ::Mysql2::Error => e
          raise if __lost?(e)
        end

        def __lost?(error)
          closed? || (error.is_a?(::Mysql2::Error) && FATAL.include?(error.error_number))
        end

        # What nobody has got.
        def __drop(value)
          case value
          when ::Mysql2::Statement then __drop_statement(value)
          when ::Mysql2::Result then __drop_rows(value) if value.instance_variable_get(:@query_options)[:stream]
          end
        end

        # Whoever drops it is not the fiber that uses the connection.
        def __drop_statement(statement)
          @__polyphony_statements.delete(statement)
          CLOSE_STATEMENT.bind_call(statement)
        end

        def __drop_rows(result)
          stream = @__polyphony_stream || Stream.new(result)
          @__polyphony_stream = nil
          stream.drain
        end

        def __absorb
          __hand_over(NOTHING, @query_options.merge(async: true, stream: false))
          __read_answer
        end

        def __break(_call)
          __shut_down
        end

        def __cut(call)
          __shut_down
          call.wait
        end

        def __shut_down
          __socket.shutdown
        rescue ::Mysql2::Error, ::SystemCallError
          nil # there is no connection
        end

        # A thread that still reads must have ended first.
        def __throw_away
          @__polyphony_sent = false
          if @__polyphony_stream
            __shut_down
            @__polyphony_stream.wait
            @__polyphony_stream.give_up
          end
          CLOSE.bind_call(self)
        end
      end
    end
  end
end
