# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/sqlite_cases'

# The gem extralite in fibers.
class TestExtralite < Polyphony::AdapterCase
  gems 'extralite', 'polyphony/adapters/extralite'

  BUSY = defined?(Extralite) && Extralite::BusyError
  INTERRUPTED = defined?(Extralite) && Extralite::InterruptError

  include Polyphony::SQLiteCases

  def open(path, **options)
    Extralite::Database.new(path, options)
  end

  def rows(db, sql)
    db.query_array(sql) || []
  end

  def wait_at_most(db, seconds)
    db.busy_timeout = seconds
  end

  def holder_program
    "db = Extralite::Database.new(ARGV[0]); db.query('begin immediate'); $stdout.puts 'locked'; $stdout.flush; $stdin.gets; db.query('commit')"
  end

  def opening_program
    'def open(path) = Extralite::Database.new(path)'
  end

  def first_row
    :next
  end

  def test_queries_that_are_prepared_and_iterators
    db = with_table
    5.times { |i| db.execute('insert into t values (?, ?)', i, "n#{i}") }
    query = db.prepare_splat('select name from t where id >= ? order by id')
    assert_equal(%w[n2 n3 n4], spin { query.bind(2).to_a }.await)
    iterator = query.bind(3).each
    assert_equal 'n3', iterator.next
    assert_equal 'n4', spin { iterator.next }.await
    query.close
    assert_predicate query, :closed?
  end

  def test_a_long_query_that_is_prepared_lets_others_run
    db = connect
    query = db.prepare(ENDLESS)
    assert_raises(INTERRUPTED) { assert_yields(-> { db.interrupt }) { query.next } }
    query.close
  end

  def test_options
    db = connect(path, wal: true, pragma: { cache_size: -1000 })
    assert_equal 'wal', db.pragma(:journal_mode)
    assert_equal(-1000, db.pragma(:cache_size))
    assert_predicate connect(path, read_only: true), :read_only?
  end

  def test_rollback_of_the_gem
    db = with_table
    assert_nil(db.transaction { rows(db, "insert into t (name) values ('a')"); db.rollback! })
    assert_equal 0, count(db)
  end

  def test_with_a_threshold_or_a_handler_of_its_own_it_is_stock
    db = connect
    db.gvl_release_threshold = 10
    assert_equal [[30_000, 1]], rows(db, format(BRIEF, 1))
    assert_equal [[30_000, 2]], Polyphony.blocking { rows(db, format(BRIEF, 2)) }
    calls = 0
    other = connect
    other.on_progress { calls += 1 }
    rows(other, format(BRIEF, 3))
    assert_operator calls, :>, 1
    third = connect(':memory:', gvl_release_threshold: 5)
    assert_equal [[30_000, 4]], rows(third, format(BRIEF, 4))
  end

  def test_a_handler_of_its_own_waits_for_the_statement_of_another_fiber
    db = connect
    first = stepping(db)
    second = spin { db.on_progress { nil } }
    5.times { snooze }
    assert_predicate second, :alive?
    end_stepping(first)
    second.await
    assert_equal [[30_000, 1]], rows(db, format(BRIEF, 1))
  end

  def test_it_is_loaded_with_the_gem
    out, err, = run_ruby(find_gem('extralite') + <<~RUBY)
      require 'polyphony/adapters/auto'
      require 'extralite'
      p Extralite::Database.ancestors.first
    RUBY
    assert_equal "Polyphony::Adapters::Extralite::Database\n", out, err
  end
end
