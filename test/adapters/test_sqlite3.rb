# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/sqlite_cases'

# The gem sqlite3 in fibers.
class TestSQLite3 < Polyphony::AdapterCase
  gems 'sqlite3', 'polyphony/adapters/sqlite3'
  # The gem warns in a child that its connections are closed there, which is what is tested.
  SQLite3::ForkSafety.suppress_warnings! if defined?(SQLite3::ForkSafety)

  BUSY = defined?(SQLite3) && SQLite3::BusyException
  INTERRUPTED = defined?(SQLite3) && SQLite3::InterruptException

  include Polyphony::SQLiteCases

  def open(path, **options)
    SQLite3::Database.new(path, options)
  end

  def rows(db, sql)
    db.execute(sql)
  end

  def wait_at_most(db, seconds)
    db.busy_timeout = seconds * 1000
  end

  def holder_program
    "db = SQLite3::Database.new(ARGV[0]); db.execute('begin immediate'); $stdout.puts 'locked'; $stdout.flush; $stdin.gets; db.execute('commit')"
  end

  def opening_program
    'def open(path) = SQLite3::Database.new(path)'
  end

  def first_row
    :step
  end

  def test_statements_that_are_prepared_and_their_rows_one_by_one
    db = with_table
    5.times { |i| db.execute('insert into t values (?, ?)', [i, "n#{i}"]) }
    statement = db.prepare('select name from t where id >= ? order by id')
    names = spin { statement.execute(2).map(&:first) }.await
    assert_equal %w[n2 n3 n4], names
    assert_equal %w[n4], statement.execute(4).map(&:first)
    statement.close
    assert_predicate statement, :closed?
  end

  def test_a_busy_handler_of_the_programs_may_wait_and_may_raise
    db = with_table
    other = connect(path)
    rows(db, 'begin immediate')
    counts = []
    other.busy_handler { |count| counts << count; sleep 0.001; count < 3 }
    assert_raises(BUSY) { rows(other, 'begin immediate') }
    assert_equal [0, 1, 2, 3], counts
    other.busy_handler { raise KeyError, 'enough' }
    assert_raises(KeyError) { rows(other, 'begin immediate') }
    other.busy_handler { |_| sleep }
    assert_equal :over, move_on_after(0.005, with_value: :over) { rows(other, 'begin immediate') }
    rows(db, 'commit')
    rows(other, 'select 1')
  end

  # The exception passes SQLite, which does not know that the statement has failed.
  def test_a_function_that_raises_or_is_stopped_leaves_no_part_of_a_statement
    db = with_table
    db.define_function('nap') { |x| sleep 0.001; x }
    db.define_function('fail') { |x| x > 10 ? raise(KeyError, 'mine') : x }
    write = "insert into t (name) with recursive c(x) as (select 1 union all select x + 1 from c where x < 1000) select %s(x) from c"
    move_on_after(0.01) { rows(db, format(write, 'nap')) }
    assert_raises(KeyError) { rows(db, format(write, 'fail')) }
    assert_equal 0, count(db)
    assert_raises(Polyphony::Adapters::TransactionLost) do
      db.transaction { move_on_after(0.01) { rows(db, format(write, 'nap')) }; rows(db, "insert into t (name) values ('a')") }
    end
    assert_equal 0, count(db)
  end

  def test_functions_in_ruby_may_wait
    db = connect
    db.define_function('nap') { |x| sleep 0.001; x }
    ticks = 0
    clock = spin { loop { snooze; ticks += 1 } }
    assert_equal [[3]], db.execute('select nap(1) + nap(2)')
    assert_operator ticks, :>, 2
    clock.stop
    db.define_function('ever') { sleep }
    assert_equal :over, move_on_after(0.005, with_value: :over) { db.execute('select ever()') }
    assert_equal [[5]], db.execute('select nap(5)')
    db.define_function('ask') { |x| db.get_first_value('select ? + 1', [x]) }
    assert_equal [[8]], db.execute('select ask(7)')
  end

  def test_a_batch_and_a_statement_timeout
    db = connect
    # Older versions make a RuntimeError of whatever ends a batch.
    assert_raises(INTERRUPTED, RuntimeError) { assert_yields(-> { db.interrupt }) { db.execute_batch2(ENDLESS) } }
    return unless db.respond_to?(:statement_timeout=)

    db.statement_timeout = 20
    assert_raises(INTERRUPTED) { rows(db, ENDLESS) }
    db.statement_timeout = 0
    assert_equal [[1]], rows(db, 'select 1')
  end

  def test_a_backup_takes_turns
    db = with_table
    db.transaction { 2000.times { |i| db.execute('insert into t values (?, ?)', [i, 'x' * 500]) } }
    turns = 0
    clock = spin { loop { snooze; turns += 1 } }
    copy = connect
    backup = SQLite3::Backup.new(copy, 'main', db, 'main')
    assert_equal SQLite3::Constants::ErrorCode::DONE, backup.step(-1)
    backup.finish
    assert_operator turns, :>=, 2
    clock.stop
    assert_equal 2000, count(copy)
  end

  # The handler that is called when the file is busy belongs to the connection's object.
  def test_a_backup_keeps_its_connections
    db = connect(path)
    ['create table t (name)', "insert into t values ('a')", 'begin exclusive'].each { |sql| rows(db, sql) }
    backup = Thread.new { SQLite3::Backup.new(SQLite3::Database.new(':memory:'), 'main', SQLite3::Database.new(path), 'main') }.value
    3.times { GC.start; Array.new(10_000) { Object.new } }
    stepping = spin { backup.step(-1) }
    3.times { sleep 0.001 }
    assert_predicate stepping, :alive?
    rows(db, 'commit')
    assert_equal SQLite3::Constants::ErrorCode::DONE, stepping.await
    backup.finish
  end

  def test_a_shared_cache_works_without_turns
    options = { flags: 0x20000 | SQLite3::Constants::Open::READWRITE | SQLite3::Constants::Open::CREATE }
    db = SQLite3::Database.new(path, options)
    other = SQLite3::Database.new(path, options)
    assert_equal [[30_000, 1]], rows(db, format(BRIEF, 1))
    assert_equal [[30_000, 2]], rows(other, format(BRIEF, 2))
    [db, other].each(&:close)
  end

  def test_a_block_of_new_and_options
    SQLite3::Database.new(path, results_as_hash: true) { |db| assert_equal [{ 'a' => 1 }], db.execute('select 1 as a') }
    db = connect(path, readonly: true)
    assert_predicate db, :readonly?
    assert_raises(SQLite3::ReadOnlyException) { rows(db, 'create table x (a)') }
    assert_raises(SQLite3::CantOpenException) { SQLite3::Database.new('/nowhere/at/all') }
  end

  def test_the_example
    out, err, = run_ruby("#{find_gem('sqlite3')}load #{File.expand_path('../../examples/sqlite.rb', __dir__).inspect}")
    assert_equal <<~TEXT, out, err
      counted 300000, others ran meanwhile: true
      with a limit: given up
      orders: 20
      after a delete that was cut short: 20
    TEXT
  end

  def test_it_is_loaded_with_the_gem
    out, err, = run_ruby(find_gem('sqlite3') + <<~RUBY)
      require 'polyphony/adapters/auto'
      require 'sqlite3'
      p SQLite3::Database.ancestors.first
    RUBY
    assert_equal "Polyphony::Adapters::SQLite3::Database\n", out, err
  end
end
