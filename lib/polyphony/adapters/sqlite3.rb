# frozen_string_literal: true

require 'sqlite3'
require 'polyphony/adapters/sqlite_connection'

module Polyphony
  module Adapters
    # Statements of the gem sqlite3 let other fibers run, also in the middle of a long one; a busy file is waited for in the fiber; a
    # cancel ends the statement.
    module SQLite3
      NOMUTEX = 0x8000
      FULLMUTEX = 0x10000
      SHAREDCACHE = 0x20000
      private_constant :NOMUTEX, :FULLMUTEX, :SHAREDCACHE

      # Prepended to SQLite3::Database.
      module Database
        include SQLiteConnection

        # Also when another fiber uses it: after its call. A transaction is rolled back.
        # @return [self]
        def close
          return super unless @__polyphony_link && !closed?

          @__polyphony_link.close { super() }
        end

        # As stock, but everything that is raised rolls back: a stop of the fiber and a time limit as well.
        # @param mode [Symbol, nil] :deferred, :immediate or :exclusive
        # @return [Object, true] what the block returns; true without one
        def transaction(mode = nil, &block)
          # A version that knows no default mode does not know nil either.
          mode ? super(mode, &nil) : super(&nil)
          block ? __within_transaction(&block) : true
        end

        # @param milliseconds [Integer] how long to wait for a file that another connection has locked; 0: not at all
        def busy_timeout=(milliseconds)
          return super unless @__polyphony_link

          @__polyphony_link.busy_timeout = milliseconds.fdiv(1000)
        end

        # @see #busy_timeout=
        # @return [self]
        def busy_timeout(milliseconds)
          self.busy_timeout = milliseconds
          self
        end

        # @see #busy_timeout=
        def busy_handler_timeout=(milliseconds)
          self.busy_timeout = milliseconds
        end

        # As stock. It may wait, and what it raises ends the statement.
        # @return [self]
        def busy_handler(handler = nil, &block)
          return super unless @__polyphony_link

          @__polyphony_link.busy_handler = handler || block
          self
        end

        # As stock.
        # @param milliseconds [Integer]
        def statement_timeout=(milliseconds)
          return super unless @__polyphony_link

          @__polyphony_link.statement_timeout = milliseconds.fdiv(1000)
        end

        private

        # The interpreter's lock is enough: the gem never gives it up within SQLite.
        def open_v2(file, mode, zvfs)
          mode |= NOMUTEX if (mode & FULLMUTEX).zero?
          super
          shared = (mode & SHAREDCACHE).positive? || file.match?(/[?&]cache=shared/)
          __attach(shared)
        end

        def open16(file)
          super.tap { __attach(false) }
        end

        # With a shared cache SQLite locks more than the connection while a statement runs.
        def __attach(shared)
          return unless respond_to?(:enable_load_extension)

          @__polyphony_link = SQLiteConnection.attach(self, 'sqlite3', db_filename('main'), ::SQLite3::Exception) do |path|
            enable_load_extension(true)
            load_extension(path)
          ensure
            enable_load_extension(false)
          end
          @__polyphony_link.turns = false if shared && @__polyphony_link
        end
      end

      # Prepended to SQLite3::Statement.
      module Statement
      end

      # Prepended to SQLite3::Backup.
      module Backup
        # Pages between two turns of other fibers.
        PAGES = 64
        private_constant :PAGES

        # As stock. SQLite calls our handlers while the backup goes on, so the connections must not be collected before it.
        def initialize(destination, destination_name, source, source_name)
          super
          @__polyphony_databases = [destination, source]
        end

        # As stock, a few pages at a time.
        # @return [Integer] a code of SQLite's
        def step(pages)
          left = pages.negative? ? Float::INFINITY : pages
          loop do
            code = super([left, PAGES].min)
            left -= PAGES
            return code if left <= 0 || code != ::SQLite3::Constants::ErrorCode::OK

            snooze
          end
        end
      end

      CALLS = %i[define_function define_function_with_flags define_aggregator2 collation trace authorizer= exec_batch
                 load_extension_internal].freeze
      private_constant :CALLS

      class << self
        # @!visibility private
        def install
          database = ::SQLite3::Database
          statement = ::SQLite3::Statement
          guard(database, Database, CALLS)
          # Which of the two calls SQLite has changed with version 2.
          preparing = statement.private_method_defined?(:prepare) ? :prepare : :initialize
          SQLiteLink.guard_preparing(Statement, preparing)
          Statement.send(:private, preparing)
          SQLiteLink.guard(Statement, :step)
          SQLiteLink.guard_tidying(Statement, :reset!, :close)
          SQLiteConnection.inherit_none(database, statement)
          database.prepend Database
          statement.prepend Statement
          ::SQLite3::Backup.prepend Backup if defined?(::SQLite3::Backup)
        end

        private

        def guard(klass, mod, names)
          there = names.select { |name| klass.method_defined?(name) || klass.private_method_defined?(name) }
          SQLiteLink.guard(mod, *there)
          mod.send(:private, *there.select { |name| klass.private_method_defined?(name) })
        end
      end

      install
    end
  end
end
