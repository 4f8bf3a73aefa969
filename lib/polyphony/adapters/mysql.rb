# frozen_string_literal: true

require 'polyphony/adapters/call'
require 'polyphony/adapters/exclusive'

module Polyphony
  module Adapters
    # What the adapters of mysql2 and trilogy share: how a statement that nobody waits for any more is ended, so that the next
    # one on the connection gets its own rows. Decision 068.
    #
    # Whoever includes it has +__kill(side)+, which asks the server by another connection to end what this one is doing;
    # +__settle(call)+, which reads what is left; +__break(call)+, which breaks the connection off so that the call will end, and
    # +__cut(call)+, which also waits for that; +__throw_away+, which closes it; +__lost?(error)+; +__answers_left?+; and a class
    # method +__polyphony_errors+.
    # @api private
    module MySQL
      # Absorbs a KILL QUERY that came when the statement had just ended: it hits the next one.
      NOTHING = 'DO 0'
      LOOK = 0.002
      LOOKS = 10
      private_constant :NOTHING, :LOOK, :LOOKS

      # In a forked child the connections are the parent's.
      ProcessFork.in_child { forget_connections }

      @connections = ::ObjectSpace::WeakMap.new
      @patience = 1

      class << self
        # @return [Numeric] seconds in which a statement that was broken off must have ended, or its connection is closed
        attr_accessor :patience

        # Keeps in mind, weakly, what must be left alone in forked children. Each under itself: with one value under many keys Ruby 3.1
        # breaks the map when memory is compacted (test/gc/test_gc_weak_maps.rb).
        def remember(connection)
          @connections[connection] = connection
        end

        # Two processes that talk on one connection would get each other's answers, and a farewell of the one ends it for the other.
        def forget_connections
          @connections.keys.each(&:__forked)
        end

        # @param library [Module]
        # @param names [Array<Symbol>] methods which the adapter counts on
        # @raise [NotImplementedError] if this version does not have them
        def check(library, version, names)
          missing = names.reject { |name| library.method_defined?(name) || library.private_method_defined?(name) }
          return if missing.empty?

          raise NotImplementedError, "the adapter does not know #{library} #{version}, which has no #{missing.join(', ')}: " \
                                     'use a version that it knows (docs/guide/mysql.md), or do without the adapter'
        end
      end

      include Exclusive

      # In a forked child. Process.daemon is not meant: there the parent ends, and the connection is the child's.
      def __forked
        @__polyphony_forked = true
      end

      # @raise [ConnectionInUse] if another fiber is in
      # @raise [Adapters::ForkedConnection] in a forked child
      def __alone(&block)
        raise ForkedConnection, __foreign if @__polyphony_forked

        super
      end

      private

      # To be called when the connection has been made. +again+ makes another to the same server; nil: this one is such another.
      def __connected(again)
        @__polyphony_again = again
      end

      # Waits for a call that uses the connection. If the wait is ended, it does not return before the call has come to its end.
      # A connection that is lost is closed, so that whoever has it can see it.
      # @return [Object] what the call returns
      def __to_the_end(call)
        value = call.value
        ended = true
        value
      ensure
        if call.error then __throw_away if __lost?(call.error)
        elsif !ended then __break_off(call)
        end
      end

      # Also when the call has just finished: nobody has taken what it returned.
      def __break_off(call)
        __bring_to_an_end(call) unless call.withdraw && !__underway?(call)
      end

      # On return the connection can be used, or is closed.
      def __bring_to_an_end(call)
        in_order = false
        CancelScope.shield do
          CancelScope.move_on_after(MySQL.patience, nil) { in_order = (!__underway?(call) || __ended_by_server?) && __settle(call.wait) }
          __cut(call) unless in_order
        end
      ensure
        __give_up(call) unless in_order
      end

      # It has not ended if the whole program does, or if another thread raises something even here. Then it ends soon, and so does what
      # comes next on this connection.
      def __give_up(call)
        call.finished? ? __throw_away : __break(call)
      end

      # Whether the server has something to say yet.
      def __underway?(call)
        !call.finished? || __answers_left?
      end

      # @return [Boolean] whether the server was told to end the statement
      def __ended_by_server?
        side = @__polyphony_again&.call or return false
        __kill(side)
      rescue *self.class.__polyphony_errors
        false
      ensure
        side&.close
      end

      # A kill that comes before the server has begun with the statement is lost. Waits for that, as long as it may take a server
      # which is not overloaded; the statement may also have ended just now.
      # @yield what the server does on this connection
      def __await_beginning
        LOOKS.times { yield ? break : Polyphony.backend_sleep(LOOK) }
      end

      def __foreign
        "#{self.class} #{__id__} belongs to the process which has forked this one: connect anew in the child"
      end
    end
    private_constant :MySQL

    # Raised in a forked child when it uses a connection of its parent. Polyphony::ResourcePool makes new ones there by itself.
    class ForkedConnection < ::RuntimeError
    end
  end
end
