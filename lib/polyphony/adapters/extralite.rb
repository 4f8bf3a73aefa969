# frozen_string_literal: true

require 'extralite'
require 'polyphony/adapters/sqlite_connection'

module Polyphony
  module Adapters
    # Statements of extralite let other fibers run, also in the middle of a long one; a busy file is waited for in the fiber; a
    # cancel ends the statement.
    module Extralite
      # Prepended to Extralite::Database.
      module Database
        include SQLiteConnection

        # As stock, without +gvl_release_threshold:+ -- with it, statements are left as stock has them.
        def initialize(path, options = {})
          return super if options[:gvl_release_threshold]

          # Settings may wait for the file: they come when the connection is ready for it.
          plain, later = options.partition { |name, _| name == :read_only }.map(&:to_h)
          super(path, plain)
          self.gvl_release_threshold = -1
          __attach(path)
          __apply(later)
        end

        # Also when another fiber uses it: after its call. A transaction is rolled back.
        # @return [self]
        def close
          return super unless @__polyphony_link && !closed?

          @__polyphony_link.close { super() }
        end

        # As stock, but everything that is raised rolls back: a stop of the fiber and a time limit as well.
        # @param mode [Symbol]
        # @return [Object] what the block returns; nil after rollback!
        def transaction(mode = :immediate, &block)
          execute "begin #{mode} transaction"
          __within_transaction(&block)
        rescue ::Extralite::Database::Rollback
          nil
        end

        # @param seconds [Numeric, nil] how long to wait for a file that another connection has locked; 0 or nil: not at all
        def busy_timeout=(seconds)
          return super unless @__polyphony_link

          @__polyphony_link.busy_timeout = seconds || 0
        end

        # As stock. The connection is then left as stock has it: the handler may let others run, with snooze for instance.
        # @return [self]
        def on_progress(**options, &block)
          __detach
          super
        end

        # As stock. With 0 or more the interpreter's lock is given up within SQLite: other threads run, other fibers of this one do not. See
        # Polyphony.blocking.
        def gvl_release_threshold=(steps)
          __detach if steps.nil? || (steps.is_a?(Integer) && steps >= 0)
          super
        end

        private

        def __attach(path)
          return unless respond_to?(:load_extension)

          @__polyphony_link = SQLiteConnection.attach(self, 'extralite', filename, ::Extralite::Error) { |ours| load_extension(ours) }
          return unless @__polyphony_link

          @__polyphony_link.turns = false if path.match?(/[?&]cache=shared/)
          return if @__polyphony_link.turns? || path.match?(/[?&]cache=shared/)

          SQLiteConnection.warn_once('extralite mutex', 'extralite: statements of SQLite stop all fibers, because a database had been ' \
                                                        "opened before: require 'polyphony/adapters/extralite' earlier")
        end

        def __apply(options)
          pragma(options[:pragma]) if options[:pragma]
          return unless options[:wal]

          query('pragma journal_mode=wal')
          query('pragma synchronous=1')
        end

        def __detach
          @__polyphony_link&.detach
          @__polyphony_link = nil
        end
      end

      # Prepended to Extralite::Query.
      module Query
      end

      # Prepended to Extralite::Iterator.
      module Iterator
      end

      class << self
        # @!visibility private
        def install
          library = $LOADED_FEATURES.find { |file| file.match?(%r{/extralite_ext\.[a-z]+\z}) }
          SQLiteLink.without_mutexes(library, unused?) if library
          guard(::Extralite::Database, Database,
                %i[batch_execute batch_query batch_query_array batch_query_splat batch_query_hash columns execute execute_multi query
                   query_splat query_array query_hash query_single query_single_array query_single_splat query_single_hash
                   load_extension trace wal_checkpoint backup track_changes])
          SQLiteLink.guard_preparing(Query, :initialize)
          SQLiteLink.guard_tidying(Query, :close)
          guard(::Extralite::Query, Query, %i[columns each execute << batch_execute batch_query next to_a bind reset eof?])
          SQLiteLink.guard_preparing(Iterator, :initialize)
          guard(::Extralite::Iterator, Iterator, %i[each next to_a])
          SQLiteConnection.inherit_none(::Extralite::Database, ::Extralite::Query)
          { ::Extralite::Database => Database, ::Extralite::Query => Query, ::Extralite::Iterator => Iterator }
            .each { |klass, mod| klass.prepend mod }
        end

        private

        # The two gems may share a SQLite, and what was closed lives on there while it has statements.
        def unused?
          classes = [::Extralite::Database, ::Extralite::Query]
          classes.push(::SQLite3::Database, ::SQLite3::Statement) if defined?(::SQLite3::Database)
          classes.none? { |klass| ObjectSpace.each_object(klass).any? }
        end

        def guard(klass, mod, names)
          SQLiteLink.guard(mod, *names.select { |name| klass.method_defined?(name) })
        end
      end

      install
    end
  end
end
