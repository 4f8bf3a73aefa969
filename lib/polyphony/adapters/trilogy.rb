# frozen_string_literal: true

require 'trilogy'
require 'polyphony/adapters/mysql'

module Polyphony
  module Adapters
    # trilogy waits by Ruby's means, so other fibers run; in a thread's main fiber they do, too, with this. And a statement that was broken off
    # does not take the connection with it. Decision 068.
    module Trilogy
      include MySQL

      STATEMENTS = %i[query ping change_db set_server_option].freeze
      MySQL.check(::Trilogy, ::Trilogy::VERSION, STATEMENTS + %i[next_result close more_results_exist? closed? check discard!])
      QUERY = ::Trilogy.instance_method(:query)
      NEXT = ::Trilogy.instance_method(:next_result)
      CLOSE = ::Trilogy.instance_method(:close)
      CHECK = ::Trilogy.instance_method(:check)
      # Of the C code: in a forked child nobody opens the lock which a fiber of the parent had.
      DISCARD = ::Trilogy.instance_method(:discard!).then { |method| method.super_method || method }
      SIDE = { connect_timeout: 1, read_timeout: 1, write_timeout: 1 }.freeze
      # There is no other way to learn the number; the rest tells whether another connection leads to the same server.
      IDENTITY = 'SELECT CONNECTION_ID(), @@hostname, @@port, @@pid_file'
      private_constant :STATEMENTS, :QUERY, :NEXT, :CLOSE, :CHECK, :DISCARD, :SIDE, :IDENTITY

      # For the class itself.
      module ClassMethods
        # @!visibility private
        def __polyphony_errors
          [::Trilogy::Error, ::SystemCallError]
        end
      end

      # @!visibility private
      def self.prepended(trilogy)
        trilogy.extend ClassMethods
      end

      # As stock, while other fibers run.
      def initialize(options = {})
        MySQL.remember(self) # there may be a fork while it connects
        call = Call.new { super(options); __identify unless @__polyphony_side }.in_fiber
        call.value
        __connected(@__polyphony_side ? nil : __another(options))
        connected = true
      ensure
        __end_connecting(call) unless connected || call.nil?
      end

      # @!method query(sql)
      #   As stock. If the wait is ended, by a stop or a time limit, the server is told to end the statement, and the connection
      #   can be used again when this returns. Where the server does not answer within a second it is closed.
      #   @raise [ConnectionInUse] if another fiber waits on this connection
      STATEMENTS.each do |name|
        define_method(name) do |*args|
          __alone { __to_the_end(Call.new { __skip_results; super(*args) }.in_fiber) }
        end
      end

      # As stock.
      def next_result
        __alone { __to_the_end(Call.new { super() }.in_fiber) }
      end

      if ::Trilogy.method_defined?(:abandon_results!)
        # As stock.
        def abandon_results!
          __alone { __to_the_end(Call.new { super() }.in_fiber) }
        end
      end

      # As stock. It uses the buffer of the connection.
      def escape(string)
        __alone { super }
      end

      # As stock. If the wait is ended, it is closed all the same.
      def close
        __alone do
          call = Call.new { super() }.in_fiber
          call.value
        ensure
          __cut(call) && __throw_away unless call.finished?
        end
      end

      # @!visibility private
      def __forked
        super
        DISCARD.bind_call(self)
      end

      private

      def __identify
        @__polyphony_identity = QUERY.bind_call(self, IDENTITY).rows.first
      rescue ::Trilogy::ProtocolError
        @__polyphony_identity = nil # what speaks this protocol may be something else
      end

      # @return [Proc, nil] makes a connection for words about this one
      def __another(options)
        return unless @__polyphony_identity

        options = options.merge(SIDE)
        options.delete(:database)
        -> { ::Trilogy.allocate.tap { |side| side.__send__(:__initialize_side, options) } }
      end

      def __initialize_side(options)
        @__polyphony_side = true
        initialize(options)
      end

      def __end_connecting(call)
        CancelScope.shield { call.stop } unless call.finished?
        DISCARD.bind_call(self)
      end

      def __kill(side)
        number, *server = @__polyphony_identity
        return false unless side.query(IDENTITY).rows.first.drop(1) == server

        __await_beginning { side.query("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = #{number} AND COMMAND <> 'Sleep'").rows.first }
        side.query("KILL QUERY #{number}")
        true
      end

      def __settle(call)
        return false if __lost?(call.error)

        # A server that was told to stop between two statements has promised a result which never comes.
        return false if __answers_left?

        __despite_server { QUERY.bind_call(self, NOTHING) }
        true
      rescue *self.class.__polyphony_errors
        false
      end

      # Results of a statement before. trilogy would take them for those of the next one.
      def __skip_results
        NEXT.bind_call(self) while __answers_left?
      end

      def __answers_left?
        !closed? && more_results_exist?
      end

      # An error which the server reports is an answer.
      def __despite_server
        yield
      rescue ::Trilogy::Error => e
        raise if __lost?(e)
      end

      # trilogy has shut it down after what it cannot recover from, and looks without waiting.
      def __lost?(_error)
        CHECK.bind_call(self)
        false
      rescue ::Trilogy::Error
        true
      end

      # trilogy shuts the connection down when it is interrupted.
      def __break(call)
        call.cancel
      end

      def __cut(call)
        call.stop
      end

      def __throw_away
        CLOSE.bind_call(self)
      end
    end
  end
end

Trilogy.prepend Polyphony::Adapters::Trilogy
