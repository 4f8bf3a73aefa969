# frozen_string_literal: true

require 'minitest/mock'
require 'open3'
require 'tmpdir'
require 'polyphony/testing'
require_relative 'kills'

module Polyphony
  # What both adapters of SQLite have to stand. Included by the tests of a gem, which define +open+, +rows+, +wait_at_most+ and the
  # constants BUSY and INTERRUPTED.
  module SQLiteCases
    include Testing::CancelEverywhere

    # Counts for so long that only an interrupt ends it; some seconds, if nobody does.
    ENDLESS = 'with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000000) select count(*) from c'
    BRIEF = 'with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000) select count(*), %d from c'

    # @return [String] lets a Ruby without a bundle find a gem of this one
    def find_gem(name)
      "$LOAD_PATH.unshift(*#{$LOAD_PATH.grep(/#{name}/).inspect})\n"
    end

    def self.included(base)
      base.on_every_driver
      define_in_both(base)
      define_killed(base)
    end

    def self.define_killed(base)
      base.extend Kills
      base.test_killed(:a_transaction_is_rolled_back) do |way|
        db = with_table
        way.call(->(pause) { db.transaction { rows(db, "insert into t (name) values ('x')"); pause.call } })
        assert_equal [false, 0], [db.transaction_active?, count(db)]
      end
    end

    def setup
      super
      @folder = Dir.mktmpdir('polyphony-sqlite')
      @opened = []
    end

    def teardown
      @opened&.each { |db| close(db) }
      FileUtils.rm_rf(@folder) if @folder
      super
    end

    # Older versions do not close what has statements.
    def close(db)
      db.close unless db.closed?
    rescue self.class::BUSY
      GC.start
    end

    def connect(path = ':memory:', **options)
      open(path, **options).tap { |db| @opened << db }
    end

    def path
      File.join(@folder, 'data.db')
    end

    # A table of that file, in WAL mode.
    def with_table
      connect(path).tap do |db|
        rows(db, 'pragma journal_mode=wal')
        rows(db, 'pragma synchronous=off')
        rows(db, 'create table t (id integer primary key, name text)')
      end
    end

    def count(db)
      rows(db, 'select count(*) from t')[0][0]
    end

    # A fiber within a statement.
    def stepping(db, sql = ENDLESS)
      fiber = spin { rows(db, sql) }
      5.times { snooze }
      assert_predicate fiber, :alive?
      fiber
    end

    def end_stepping(fiber)
      fiber.stop
      fiber.await
    end

    # --- one statement -------------------------------------------------------------------------------

    def self.define_in_both(base)
      base.test_in_both(:a_long_statement_lets_others_run) do
        db = connect
        assert_raises(self.class::INTERRUPTED) { assert_yields(-> { db.interrupt }) { rows(db, ENDLESS) } }
        assert_equal [[1]], rows(db, 'select 1')
      end

      base.test_in_both(:a_busy_file_is_waited_for_while_others_run) do
        db = with_table
        other = connect(path)
        release = Polyphony::Event.new
        begun = Polyphony::Event.new
        holder = spin { rows(other, 'begin immediate'); begun.signal; release.await; rows(other, 'commit') }
        begun.await
        assert_yields(-> { release.signal; holder.await }) { rows(db, "insert into t (name) values ('a')") }
        assert_equal 1, count(db)
      end
    end

    def test_others_get_their_turn_many_times_within_a_statement
      db = connect
      turns = 0
      other = spin { loop { turns += 1; snooze } }
      cpu = ::Process.clock_gettime(::Process::CLOCK_THREAD_CPUTIME_ID)
      rows(db, ENDLESS.sub('20000000', '1000000'))
      milliseconds = (::Process.clock_gettime(::Process::CLOCK_THREAD_CPUTIME_ID) - cpu) * 1000
      assert_operator turns, :>, milliseconds / 5, 'others have to run at least every 5 ms'
    ensure
      other&.stop
    end

    def test_many_short_statements_take_turns
      db = connect
      assert_others_have_turns { |enough| rows(db, 'select 1') until enough.call }
    end

    def test_many_short_statements_of_a_transaction_take_turns
      db = with_table
      assert_others_have_turns do |enough|
        db.transaction { rows(db, 'insert into t (name) values (1)') until enough.call }
      end
      refute_predicate db, :transaction_active?
    end

    def test_a_connection_may_be_closed_while_its_transaction_takes_a_turn
      db = with_table
      over = false
      other = spin do
        sleep 0.005
        db.close
      rescue self.class::BUSY # sqlite3 1.6, if the turn came between two calls of a statement
        over = true
      end
      assert_raises(StandardError) do
        db.transaction do
          rows(db, 'insert into t (name) values (1)') until over
          raise 'not closed'
        end
      end
      other.await
      assert_equal 0, count(connect(path))
    end

    def assert_others_have_turns
      turns = 0
      other = spin { loop { turns += 1; snooze } }
      snooze
      turns = 0
      deadline = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) + 5
      yield -> { turns > 3 || ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) > deadline }
      assert_operator turns, :>, 3
    ensure
      other&.stop
    end

    # --- ending it -----------------------------------------------------------------------------------

    def test_a_time_limit_ends_a_statement
      db = connect
      assert_equal :over, move_on_after(0.01, with_value: :over) { rows(db, ENDLESS) }
      assert_raises(Polyphony::Cancel) { cancel_after(0.01) { rows(db, ENDLESS) } }
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { rows(db, ENDLESS) } }
      assert_equal [[1]], rows(db, 'select 1')
    end

    def test_a_fiber_that_is_stopped_within_a_statement_leaves_a_connection_that_works
      db = connect
      end_stepping(stepping(db))
      assert_equal [[2]], rows(db, 'select 2')
    end

    def test_a_fiber_of_rubys_that_is_killed_within_a_statement_leaves_a_connection_that_works
      db = with_table
      raw = Fiber.new { db.transaction { rows(db, "insert into t (name) values ('x')"); rows(db, ENDLESS) } }
      resumer = spin { raw.resume }
      5.times { snooze }
      assert_predicate raw, :alive?
      raw.kill
      resumer.await
      assert_equal [false, 0], [db.transaction_active?, count(db)]
    end

    def test_an_exception_for_the_fiber_is_raised_and_not_sqlites
      db = connect
      fiber = stepping(db)
      fiber.raise(KeyError, 'mine')
      assert_equal 'mine', assert_raises(KeyError) { fiber.await }.message
    end

    def test_a_fiber_that_is_ended_anywhere_leaves_all_in_order
      db = with_table
      cancel_everywhere do |run|
        before = count(db)
        run.scenario do
          rows(db, format(BRIEF, 1))
          db.transaction { 2.times { rows(db, "insert into t (name) values ('x')"); snooze } }
        end
        run.check do |finished|
          assert_includes finished ? [2] : [0, 2], count(db) - before
          refute_predicate db, :transaction_active?
        end
      end
    end

    # --- one connection, several fibers --------------------------------------------------------------

    def test_fibers_that_share_a_connection_get_their_own_rows
      db = connect
      assert_equal (0...30).map { |i| [[30_000, i]] }, Fiber.map(0...30) { |i| rows(db, format(BRIEF, i)) }
    end

    def test_a_second_fiber_waits_for_the_statement_of_the_first
      db = connect
      first = stepping(db)
      second = spin { rows(db, 'select 7') }
      5.times { snooze }
      assert_predicate second, :alive?
      first.stop
      assert_equal [[7]], second.await
      first.await
    end

    def test_who_waits_for_a_connection_can_be_stopped
      db = connect
      first = stepping(db)
      second = spin { rows(db, 'select 7') }
      snooze
      end_stepping(second)
      end_stepping(first)
      assert_equal [[8]], rows(db, 'select 8')
    end

    def test_threads_can_share_a_connection
      db = connect
      first = stepping(db)
      thread = Thread.new { rows(db, 'select 9') }
      first.stop
      assert_equal [[9]], thread.value
      first.await
    end

    def test_a_collection_in_another_thread_does_not_wait_for_a_statement
      db = connect
      20.times { |i| db.prepare("select #{i}") } # nobody closes them
      first = stepping(db)
      3.times { Thread.new { GC.start }.join }
      end_stepping(first)
      assert_equal [[3]], rows(db, 'select 3')
    end

    # The weak maps of other gems would not survive a compaction: see test/gc/test_gc_weak_maps.rb.
    def test_collections_and_compactions_within_a_statement
      assert_equal ["[[30000, 4]]\n", ''], alone(<<~RUBY)
        first = spin { db.QUERY(#{ENDLESS.inspect}) }
        5.times { snooze }
        GC.start
        GC.compact if GC.respond_to?(:compact) && RUBY_PLATFORM.include?('x86_64-linux')
        5.times { snooze }
        first.stop
        first.await
        p db.QUERY(#{format(BRIEF, 4).inspect})
      RUBY
    end

    # A collection takes as long as there is much in memory.
    def test_a_collection_at_every_allocation_within_a_statement
      assert_equal ["[[3000, 4]]\n", ''], alone(<<~RUBY)
        GC.stress = true
        result = db.QUERY(#{format(BRIEF.sub('30000', '3000'), 4).inspect})
        GC.stress = false
        p result
      RUBY
    end

    # A program with a database and little else.
    # @param code [String] with QUERY for the method that gives all rows
    # @return [Array(String, String)] output and errors
    def alone(code)
      gem = GEM_OF_TEST.fetch(self.class.name)
      run_ruby(<<~RUBY).first(2)
        #{find_gem(gem)}
        require 'polyphony/adapters/#{gem}'
        #{opening_program}
        db = open(':memory:')
        #{code.gsub('QUERY', gem == 'extralite' ? 'query_array' : 'execute')}
      RUBY
    end

    def test_closing_waits_for_a_statement_of_another_fiber
      db = connect
      first = stepping(db)
      closer = spin { db.close }
      5.times { snooze }
      refute_predicate db, :closed?
      first.stop
      closer.await
      first.await
      assert_predicate db, :closed?
    end

    def test_closing_does_not_wait_for_a_transaction
      db = with_table
      fiber = spin { rows(db, 'begin'); rows(db, "insert into t (name) values ('x')"); suspend }
      5.times { snooze }
      db.close
      fiber.stop
      assert_equal 0, count(connect(path))
    end

    def test_a_thread_that_is_killed_within_a_statement_lets_go
      db = connect
      begun = Thread::Queue.new
      thread = Thread.new { begun << 1; rows(db, ENDLESS) }
      begun.pop
      sleep 0.01
      thread.kill
      thread.join
      assert_equal [[1]], rows(db, 'select 1')
    end

    # --- transactions --------------------------------------------------------------------------------

    def test_a_transaction_keeps_others_out
      db = with_table
      log = []
      first = spin { db.transaction { rows(db, "insert into t (name) values ('a')"); snooze; log << :first } }
      second = spin { rows(db, "insert into t (name) values ('b')"); log << :second }
      Fiber.await(first, second)
      assert_equal %i[first second], log
      assert_equal 2, count(db)
    end

    def test_a_stop_a_limit_and_an_error_roll_back
      db = with_table
      fiber = spin { db.transaction { rows(db, "insert into t (name) values ('a')"); suspend } }
      5.times { snooze }
      end_stepping(fiber)
      move_on_after(0.005) { db.transaction { rows(db, "insert into t (name) values ('a')"); sleep } }
      assert_raises(KeyError) { db.transaction { rows(db, "insert into t (name) values ('a')"); raise KeyError } }
      move_on_after(0.005) { db.transaction { rows(db, "insert into t (name) values ('a')"); rows(db, ENDLESS) } }
      assert_equal 0, count(db)
      refute_predicate db, :transaction_active?
    end

    def test_a_transaction_that_is_left_by_break_is_committed
      db = with_table
      db.transaction { rows(db, "insert into t (name) values ('a')"); break }
      assert_equal :value, db.transaction { :value }
      assert_equal 1, count(db)
    end

    def test_a_fiber_that_ends_within_a_transaction_leaves_none
      db = with_table
      other = connect(path)
      spin { rows(db, 'begin immediate'); rows(db, "insert into t (name) values ('a')") }.await
      rows(other, "insert into t (name) values ('b')") # nobody had to use the connection for it
      assert_equal [['b']], rows(db, 'select name from t')
    end

    def test_an_enumerator_within_a_transaction_is_the_same_fiber
      db = with_table
      values = db.transaction do
        enumerator = Enumerator.new { |y| 2.times { |i| y << rows(db, "select #{i}") } }
        [enumerator.next, enumerator.next]
      end
      assert_equal [[[0]], [[1]]], values
    end

    # --- one file, several connections ---------------------------------------------------------------

    def test_writers_wait_for_each_other
      with_table
      writers = Array.new(20) do
        db = connect(path)
        spin { 5.times { db.transaction(:immediate) { rows(db, "insert into t (name) values ('x')"); snooze } } }
      end
      Fiber.await(writers)
      assert_equal 100, count(connect(path))
    end

    def test_a_writer_that_never_waits_does_not_starve_another
      db = with_table
      other = connect(path)
      written = 0
      busy = spin { loop { db.transaction(:immediate) { rows(db, "insert into t (name) values ('x')"); snooze; written += 1 } } }
      snooze
      5.times { before = written; other.transaction(:immediate) { nil }; assert_operator written - before, :<, 50 }
    ensure
      end_stepping(busy)
    end

    def test_five_hundred_fibers_and_one_file
      with_table
      pool = Polyphony::ResourcePool.new(limit: 10) { connect(path) }
      Fiber.map(0...500) do |i|
        pool.acquire do |db|
          db.transaction(:immediate) { rows(db, "insert into t (id, name) values (#{i}, 'n#{i}')") }
          assert_equal [["n#{i}"]], rows(db, "select name from t where id = #{i}")
        end
      end
      assert_equal 500, count(connect(path))
    end

    def test_a_file_that_stays_busy_is_an_error_in_time
      db = with_table
      other = connect(path)
      rows(db, 'begin immediate')
      wait_at_most(other, 0.02)
      turns = 0
      other_fiber = spin { loop { turns += 1; snooze } }
      assert_raises(self.class::BUSY) { rows(other, 'begin immediate') }
      assert_operator turns, :>, 0
      wait_at_most(other, 0)
      assert_raises(self.class::BUSY) { rows(other, 'begin immediate') }
    ensure
      other_fiber&.stop
    end

    def test_a_pragma_sets_the_time_as_well
      db = with_table
      other = connect(path)
      rows(db, 'begin immediate')
      rows(other, 'PRAGMA Busy_Timeout = 20')
      turns = 0
      other_fiber = spin { loop { turns += 1; snooze } }
      assert_raises(self.class::BUSY) { rows(other, 'begin immediate') }
      assert_operator turns, :>, 0
    ensure
      other_fiber&.stop
    end

    def test_who_waits_for_a_file_can_be_stopped
      db = with_table
      other = connect(path)
      rows(db, 'begin immediate')
      waiter = spin { rows(other, 'begin immediate') }
      10.times { snooze }
      end_stepping(waiter)
      assert_equal :over, move_on_after(0.01, with_value: :over) { rows(other, 'begin immediate') }
      rows(db, 'commit')
      rows(other, 'begin immediate')
      rows(other, 'commit')
    end

    def test_another_process_can_have_the_file
      with_table
      db = connect(path)
      ready, tell = IO.pipe
      listen, go = IO.pipe
      gem = GEM_OF_TEST.fetch(self.class.name)
      pid = spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, '--disable-gems', '-e', "#{find_gem(gem)}require '#{gem}'\n#{holder_program}", path, in: listen, out: tell)
      [tell, listen].each(&:close)
      assert_equal "locked\n", ready.gets
      assert_yields(-> { go.puts }) { rows(db, "insert into t (name) values ('x')") }
      ::Process.wait(pid)
      assert_equal 1, count(db)
    ensure
      [ready, go].each { |io| io&.close }
    end

    # SQLite itself refuses at once then. There are rows that were not read yet, of another fiber.
    def test_a_file_is_waited_for_while_another_fiber_reads_from_the_same_connection
      db = with_table
      2.times { |i| rows(db, "insert into t (name) values ('#{i}')") }
      reader = db.prepare('select name from t').tap { |statement| statement.respond_to?(:step) ? statement.step : statement.next }
      other = connect(path)
      rows(other, 'begin immediate')
      rows(other, "insert into t (name) values ('other')")
      writers = [spin { rows(db, "insert into t (name) values ('late')") },
                 spin { db.transaction(:immediate) { rows(db, "insert into t (name) values ('later')") } }]
      5.times { sleep 0.001 }
      assert writers.all?(&:alive?)
      rows(other, 'commit')
      5.times { sleep 0.001 }
      assert writers.all?(&:alive?) # what is being read is older than what was written
      reader.close
      writers.each(&:await)
      assert_equal 5, count(db)
    end

    def test_who_reads_from_the_same_connection_for_too_long_is_not_waited_for
      db = with_table
      2.times { |i| rows(db, "insert into t (name) values ('#{i}')") }
      wait_at_most(db, 0.02)
      reader = db.prepare('select name from t').tap { |statement| statement.respond_to?(:step) ? statement.step : statement.next }
      rows(connect(path), "insert into t (name) values ('other')")
      assert_raises(self.class::BUSY.superclass) { rows(db, "insert into t (name) values ('late')") }
      assert_nil(move_on_after(0.01) { wait_at_most(db, 60); rows(db, "insert into t (name) values ('late')") })
      reader.close
      assert_equal 3, count(db)
    end

    def test_a_forked_child_leaves_its_parents_transaction_alone
      skip 'the allocator of AddressSanitizer may be locked at a fork' if ENV['LD_PRELOAD'].to_s.include?('asan')
      db = with_table
      shared = connect
      within = stepping(shared)
      go = Polyphony::Event.new
      writer = spin { db.transaction { rows(db, "insert into t (name) values ('a')"); go.await; rows(db, "insert into t (name) values ('b')") } }
      5.times { snooze }
      pid = fork do
        mine = open(path)
        exit!(rows(mine, 'select count(*) from t') == [[0]] ? 0 : 1)
      end
      _, status = ::Process.wait2(pid)
      assert_predicate status, :success?
      pid = fork { GC.start } # ends in the usual way, with what that closes
      ::Process.wait(pid)
      go.signal
      writer.await
      end_stepping(within)
      assert_equal 2, count(db)
      assert_equal [['ok']], rows(db, 'pragma integrity_check')
    end

    # Runs a program on one or more files, with the adapter; +first_row+ is what takes one from a statement.
    # @return [Array(String, String, ::Process::Status)]
    def run_with_gem(code, *args, **more)
      gem = GEM_OF_TEST.fetch(self.class.name)
      run_ruby(<<~RUBY, *args, options: ['-W0'], **more)
        #{find_gem(gem)}
        require 'polyphony/adapters/#{gem}'
        #{opening_program}
        def rows(db, sql) = db.#{gem == 'extralite' ? 'query_array' : 'execute'}(sql).to_a
        def first_row(statement) = statement.#{first_row}
        #{code}
      RUBY
    end

    # SQLite's structures are the parent's; to end a statement in the child touches what the parent's files are for, or memory that the
    # gem has given back. What is closed and collected when a child ends is the test.
    def test_a_forked_child_ends_well_whatever_its_parent_was_doing
      out, err, = run_with_gem(<<~'RUBY', path)
        long = 'with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000000) select count(*) from c'
        many = "insert into t (name) #{long.sub('count(*)', "'part'")}"
        [[':memory:', 'memory'], *%w[wal delete].map { |mode| [ARGV[0] + mode, mode] }].each do |file, mode|
          db = open(file)
          rows(db, "pragma journal_mode=#{mode}")
          rows(db, 'create table t (id integer primary key, name text)')
          rows(db, "insert into t (name) values ('a'), ('b'), ('c')")
          ended = ['select name from t', "update t set name = 'x' returning name"].map do |sql|
            begun = db.prepare(sql).tap { |statement| first_row(statement) }
            within = spin { rows(db, sql.start_with?('select') ? long : many) }
            3.times { snooze }
            ::Process.wait(fork { begun = nil; GC.start; Array.new(20_000) { Object.new } })
            within.stop
            within.await
            begun.close
            $?.success?
          end
          puts "#{mode}: #{ended.join(' ')}, #{rows(db, 'pragma integrity_check')[0][0]}"
        end
      RUBY
      assert_equal %w[memory wal delete].map { |mode| "#{mode}: true true, ok\n" }.join, out, err
    end

    # The child would roll back in the file what its parent is writing there, and take the journal away.
    def test_a_forked_child_leaves_the_file_of_its_parents_transaction_alone
      out, err, = run_with_gem(<<~'RUBY', path)
        db = open(ARGV[0])
        ['pragma journal_mode=truncate', 'pragma cache_size=5', 'create table t (id integer primary key, name text)',
         "insert into t (name) with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000) select hex(zeroblob(100)) from c",
         'begin', "update t set name = 'changed' || name"].each { |sql| rows(db, sql) }
        ::Process.wait(fork { GC.start })
        rows(db, 'commit')
        p rows(db, "select count(*) from t where name like 'changed%'"), rows(open(ARGV[0]), 'pragma integrity_check')
      RUBY
      assert_equal "[[2000]]\n[[\"ok\"]]\n", out, err
    end

    def test_in_a_forked_child_the_parents_connection_is_refused_and_may_be_closed
      out, err, = run_with_gem(<<~'RUBY', path)
        db = open(ARGV[0])
        rows(db, 'create table t (name)')
        rows(db, "insert into t values ('a'), ('b')")
        reading = db.prepare('select name from t').tap { |statement| first_row(statement) }
        begun = Polyphony::Event.new
        holder = spin { rows(db, 'begin'); rows(db, "insert into t values ('c')"); begun.signal; suspend }
        begun.await
        ::Process.wait(fork do
          [-> { rows(db, 'select 1') }, -> { first_row(reading) }].each do |use|
            use.call
          rescue StandardError => e
            puts e.message
          end
          reading.close
          db.close
          puts db.closed?
          rows(open(ARGV[0]), 'pragma busy_timeout=0')
          puts rows(open(ARGV[0]), 'select count(*) from t').to_s
        end)
        rows(open(ARGV[0]), 'pragma busy_timeout=1')
        holder.stop
        holder.await
        puts rows(db, 'select count(*) from t').to_s
      RUBY
      lines = out.lines(chomp: true)
      assert_match(/closed database|parent process's/, lines.shift, err) # sqlite3 2 closes it by itself
      assert_equal ["this connection is the parent process's: a forked child has to open its own", 'true', '[[2]]', '[[2]]'], lines, err
    end

    # What no file is behind is the child's own; what another fiber has begun there is not.
    def test_in_a_forked_child_a_database_in_memory_goes_on
      out, err, = run_with_gem(<<~'RUBY')
        SQLite3::ForkSafety.singleton_class.undef_method(:discard) && SQLite3::ForkSafety.define_singleton_method(:discard) {} if defined?(SQLite3::ForkSafety)
        db = open(':memory:')
        ['create table t (name)', "insert into t values ('a'), ('b')"].each { |sql| rows(db, sql) }
        begun = Polyphony::Event.new
        holder = spin { rows(db, 'begin'); rows(db, "insert into t values ('c')"); begun.signal; suspend }
        begun.await
        waiter = spin { rows(db, 'select 1') }
        3.times { snooze }
        ::Process.wait(fork { puts rows(db, 'select count(*) from t').to_s })
        [holder, waiter].each(&:stop)
      RUBY
      assert_equal "[[2]]\n", out, err
    end

    # What is freed is overwritten there, where glibc is: who asks SQLite about such a connection crashes.
    OVERWRITING = { 'GLIBC_TUNABLES' => 'glibc.malloc.tcache_count=0:glibc.malloc.perturb=85' }.freeze

    def test_a_connection_that_was_closed_when_something_is_raised_is_closed
      out, err, = run_with_gem(<<~'RUBY', path, env: OVERWRITING)
        db = open(ARGV[0])
        begin
          TracePoint.new(:c_return) { |at| raise IOError, 'late' if at.method_id == :close && at.self.equal?(db) }.enable { db.close }
        rescue IOError => e
          puts e.message
        end
        ::Process.wait(fork { exit!(0) })
        p db.closed?, $?.success?, db.close.nil?
      RUBY
      assert_match(/\Alate\ntrue\ntrue\n(?:true|false)\n\z/, out, err)
    end

    def test_a_connection_whose_opening_is_broken_off_is_forgotten
      out, err, = run_with_gem(<<~'RUBY', path, env: OVERWRITING)
        opening = -> { open(ARGV[0]) rescue puts $!.message }
        TracePoint.new(:c_return) { |at| raise SystemCallError, 'late' if at.method_id.to_s.start_with?('load_extension') }.enable do
          Thread.new { opening.call; GC.start; ::Process.wait(fork { exit!(0) }); p $?.success? }.join
        end
      RUBY
      assert_match(/^true\n\z/, out, err)
    end

    # Nobody unwinds such a fiber. What its statement has written would be committed when that is collected.
    def test_the_statement_of_a_fiber_whose_thread_has_ended_leaves_nothing
      db = with_table
      begun = Thread::Queue.new
      thread = Thread.new do
        raw = Fiber.new { rows(db, WRITING) }
        spin { 3.times { snooze }; begun << true; sleep }
        raw.resume
      end
      begun.pop
      thread.kill.join
      thread = nil
      assert_equal 0, count(db)
      3.times { GC.start; Array.new(10_000) { Object.new } }
      assert_equal 0, count(db)
      rows(db, "insert into t (name) values ('after')")
      assert_equal 1, count(connect(path))
    end

    # --- nothing half done ---------------------------------------------------------------------------

    # Writes for so long that only an interrupt ends it.
    WRITING = "insert into t (name) #{ENDLESS.sub('select count(*)', "select 'part'")}"

    # Runs the block in a thread, and kills that after it has said so and run for a moment.
    def kill_within
      begun = Thread::Queue.new
      thread = Thread.new { yield begun }
      begun.pop
      sleep 0.005
      thread.kill
      thread.join
    end

    # SQLite rolls the whole back, and would commit the next statement by itself.
    def test_a_transaction_goes_no_further_when_a_statement_in_it_was_broken_off
      db = with_table
      error = assert_raises(Polyphony::Adapters::TransactionLost) do
        db.transaction do
          rows(db, "insert into t (name) values ('first')")
          move_on_after(0.005) { rows(db, WRITING) }
          assert_predicate db, :transaction_active?
          rows(db, "insert into t (name) values ('second')")
        end
      end
      assert_match(/begin anew/, error.message)
      assert_equal 0, count(db)
      db.transaction { rows(db, "insert into t (name) values ('third')") }
      assert_equal 1, count(db)
    end

    def test_a_transaction_that_is_lost_is_neither_committed_nor_released
      db = with_table
      insert = db.prepare("insert into t (name) values ('prepared')")
      ['begin', 'savepoint one'].each { |sql| rows(db, sql) }
      move_on_after(0.005) { rows(db, WRITING) }
      ['commit', 'release one', 'rollback to one', 'select 1'].each do |sql|
        assert_raises(Polyphony::Adapters::TransactionLost) { rows(db, sql) }
      end
      assert_raises(Polyphony::Adapters::TransactionLost) { insert.execute }
      rows(db, " -- over\n/* and out */ Rollback Transaction")
      refute_predicate db, :transaction_active?
      insert.execute
      insert.close
      assert_equal 1, count(db)
    end

    def test_a_thread_that_is_killed_commits_neither_a_part_of_a_statement_nor_its_transaction
      db = with_table
      kill_within { |begun| begun << true; rows(db, WRITING) }
      assert_equal 0, count(db)
      kill_within { |begun| db.transaction { rows(db, "insert into t (name) values ('a')"); begun << true; sleep } }
      refute_predicate db, :transaction_active?
      kill_within { |begun| db.transaction { rows(db, "insert into t (name) values ('a')"); begun << true; rows(db, WRITING) } }
      assert_equal 0, count(db)
      assert_equal [['ok']], rows(db, 'pragma integrity_check')
    end

    def test_who_waits_for_a_connection_that_is_closed_does_not_get_into_anothers_transaction
      db = with_table
      holder = spin { rows(db, 'begin'); rows(db, "insert into t (name) values ('a')"); suspend }
      3.times { snooze }
      writer = spin { assert_raises(StandardError) { rows(db, "insert into t (name) values ('b')") } }
      snooze
      close(db)
      assert_match(/closed/i, writer.await.message)
      end_stepping(holder)
      assert_empty rows(connect(path), 'select name from t')
    end

    def test_a_statement_can_be_ended_while_another_fiber_is_in_a_transaction
      db = with_table
      statement = db.prepare('select 1')
      holder = spin { rows(db, 'begin'); rows(db, format(BRIEF, 1)); suspend }
      2.times { snooze }
      assert_predicate db, :transaction_active?
      cancel_after(5) { statement.close }
      end_stepping(holder)
    end

    def test_connections_that_are_opened_at_the_same_time_are_not_mixed_up
      other = connect
      waiters = Polyphony::Adapters::SQLiteConnection.method(:waiters)
      between = ->(file) { mine = Thread.new { other = connect }; mine.join; waiters.call(file) }
      db = Polyphony::Adapters::SQLiteConnection.stub(:waiters, ->(file) { once = between; between = waiters; once.call(file) }) { connect(path) }
      links = [db, other].map { |each| each.instance_variable_get(:@__polyphony_link) }
      assert_equal 2, links.compact.uniq.size
      db.close
      assert_equal [[1]], rows(other, 'select 1')
    end

    # There nobody can wait for a file.
    def test_the_garbage_collector_may_end_a_statement_that_writes
      program = <<~RUBY
        require 'polyphony/adapters/#{gem = GEM_OF_TEST.fetch(self.class.name)}'
        #{opening_program}
        path, = ARGV
        db = open(path)
        db.execute('create table t (name)')
        db.execute("insert into t values ('a'), ('b')")
        reading = db.prepare('select * from t')
        reading.public_send(#{first_row.inspect})
        Thread.new { [open(path).prepare("insert into t values ('c'), ('d') returning name")].each(&:#{first_row}); nil }.join
        3.times { GC.start; Array.new(10_000) { Object.new } }
        puts 'alive'
      RUBY
      load_path = "$LOAD_PATH.unshift(*#{$LOAD_PATH.inspect})\n"
      out, status = Open3.capture2e({ 'RUBYOPT' => nil }, RbConfig.ruby, '--disable-gems', '-e', "#{load_path}#{program}", path)
      assert_predicate status, :success?, "#{gem}: #{out[0, 500]}"
      assert_includes out, 'alive'
    end

    GEM_OF_TEST = { 'TestSQLite3' => 'sqlite3', 'TestExtralite' => 'extralite' }.freeze
  end
end
