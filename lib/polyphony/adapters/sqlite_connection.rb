# frozen_string_literal: true

require 'polyphony'
require 'weakref'

module Polyphony
  # A connection of SQLite's, and the fibers that use it. In C: see ext/polyphony/class_sqlite.c.
  # @!visibility private
  class SQLiteLink
    # @!method self.path
    #   @return [String, nil] of what SQLite loads
    # @!method self.fetch(database, file, errors)
    #   @return [SQLiteLink, nil] of the connection that has just loaded it, in this fiber
    # @!method self.without_mutexes(path, unused)
    #   @param unused [Boolean] whether there is no connection
    #   @return [Boolean] whether connections of the SQLite which that library uses will have no mutex
    # @!method self.guard(mod, *names)
    #   Defines methods that call +super+ while no other fiber calls SQLite.
    # @!method self.guard_preparing(mod, *names)
    #   The same for those whose first argument is what the object belongs to.
    # @!method self.guard_tidying(mod, *names)
    #   The same for those that end a statement.
    # @!method self.disown
    #   In a forked child.
    #   @return [Boolean] whether there are connections that are left to the parent
    # @!method self.empty(object)
    #   Makes a closed one of a database or statement that is left to the parent.
    # @!method use
    #   @yield while no other fiber uses the connection
    # @!method close
    #   @yield closes it
  end

  module Adapters
    # Raised when a fiber goes on with a transaction of SQLite's that is lost. SQLite has rolled it back because a statement in it was broken
    # off, by a stop or a time limit: what comes next would be committed without what came before.
    class TransactionLost < ::RuntimeError
    end

    # What the adapters of sqlite3 and extralite have in common.
    # @api private
    module SQLiteConnection
      # Seconds to wait for a file that another connection has locked, unless the program says otherwise. SQLite itself does not wait,
      # and in a program of many fibers somebody always has it locked.
      BUSY_TIMEOUT = 5

      @kinds = []
      @files = {} # path => WeakRef of a WaitList
      @lock = ::Thread::Mutex.new

      class << self
        # @param path [String, nil] of the file
        # @param errors [Class] of what the gem raises for SQLite
        # @yield loads an extension of SQLite's into it
        # @return [SQLiteLink, nil] nil if that is not possible; then a line has said why
        def attach(database, name, path, errors)
          yield SQLiteLink.path
          link = SQLiteLink.fetch(database, waiters(path), errors) or raise "#{SQLiteLink.path} was not started by SQLite"
          link.busy_timeout = BUSY_TIMEOUT
          link
        rescue ::StandardError => e
          warn_once(name, "#{name}: statements of SQLite stop all fibers, because it could not load an extension: #{e.message} (#{e.class})")
          nil
        end

        # @param kinds [Array<Class>] of a gem's objects that belong to a connection
        def inherit_none(*kinds)
          ProcessFork.in_child { disown } if @kinds.empty?
          @kinds.concat(kinds)
        end

        # In a forked child: it leaves its parent's connections and their statements alone, see ext/polyphony/sqlite_fork.c.
        def disown
          return unless SQLiteLink.disown

          @kinds.each { |kind| ::ObjectSpace.each_object(kind) { |object| SQLiteLink.empty(object) } }
        end

        # @return [WaitList, nil] of those who wait for the file
        def waiters(path)
          return if path.nil? || path.empty?

          @lock.synchronize do
            list = alive(@files[path])
            next list if list

            @files.delete_if { |_, reference| !alive(reference) }
            WaitList.new(nil, "a lock on #{path}").tap { |made| @files[path] = ::WeakRef.new(made) }
          end
        end

        def warn_once(name, text)
          return if (@warned ||= {})[name]

          @warned[name] = true
          warn text
        end

        private

        def alive(reference)
          reference&.__getobj__
        rescue ::WeakRef::RefError
          nil
        end
      end

      # Runs the block in a transaction that has begun. Any exception rolls it back, a stop and a time limit too, and so does a kill of
      # the fiber or its thread; the gems by themselves would commit it then. After break, throw and return it is committed, as they do.
      # @api private
      def __within_transaction
        failed = false
        killed = []
        Polyphony.__noting_kill(killed) { yield self }
      rescue ::Exception # rubocop:disable Lint/RescueException -- it is raised again
        failed = true
        raise
      ensure
        failed || killed.any? ? __give_up_transaction : __commit_transaction
      end

      # @api private
      # @raise [TransactionLost]
      def __transaction_lost
        raise TransactionLost, 'SQLite has rolled this transaction back, since a statement in it was broken off, by a stop or a time limit: ' \
                               'roll it back, and begin anew'
      end

      private

      def __commit_transaction
        execute('commit')
      rescue ::Exception # rubocop:disable Lint/RescueException -- it is raised again
        __give_up_transaction
        raise
      end

      # SQLite has rolled back by itself what was interrupted.
      def __give_up_transaction
        CancelScope.shield { execute('rollback') if transaction_active? } unless closed?
      end
    end
  end
end
