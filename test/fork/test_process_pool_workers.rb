# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/pool_case'
require 'socket'

# Workers: how they die and are replaced, and what they have of their parent's.
class TestProcessPoolWorkers < Polyphony::PoolCase
  time_limit 180 # a collection at every allocation takes its time on a busy machine

  on_every_driver

  ProcessPool = Polyphony::ProcessPool

  # --- death ----------------------------------------------------------------------------------------

  def test_the_error_names_process_status_and_task
    one = pool(1)
    { [:kill, :KILL] => /killed by SIGKILL while it ran task :kill/, [:exit!, 3] => /ended with status 3 .*task :exit!/,
      [:exit, 4] => /ended with status 4 .*task :exit/, [:segv] => /killed by SIG(SEGV|ABRT)/ }.each do |task, text|
      pid = one.process(:pid)
      error = error_of(ProcessPool::WorkerDied) { one.process(*task) }
      assert_match text, error.message
      assert_equal [pid, pid, "task #{task.first.inspect}"], [error.pid, error.status.pid, error.task]
      refute_equal pid, one.process(:pid)
    end
    assert_equal 4, one.stats[:died]
  end

  def test_a_task_is_tried_again_if_asked
    file = track(Tempfile.new('tries'))
    once = ->(times) { File.write(file.path, '.', mode: 'a'); File.size(file.path) > times ? :survived : exit!(1) }
    one = pool(2, retries: 2, once: once)
    assert_equal :survived, one.process(:once, 2)
    assert_equal [2, 2], one.stats.values_at(:died, :retried)
    assert_raises(ProcessPool::WorkerDied) { one.process(:once, 9) }
    assert_equal 6, File.size(file.path)
    assert_raises(ProcessPool::WorkerDied) { one.retrying(0).process(:once, 9) }
    assert_equal 7, File.size(file.path)
    assert_equal [:survived] * 3, one.retrying(5).map([9] * 3, :once)
  end

  def test_a_worker_killed_while_idle_is_replaced
    one = pool(2)
    before = one.stats[:pids]
    before.each { |pid| ::Process.kill(:KILL, pid) }
    eventually { (one.stats[:pids] - before).size == 2 }
    assert_equal [1, 4, 9], one.map(1..3, :square)
  end

  def test_a_worker_killed_while_it_computes_or_waits
    one = pool(2)
    %i[wait compute stuck].each do |task|
      fiber = spin { error_of(ProcessPool::WorkerDied) { one.process(task) } }
      eventually { one.stats[:running] == 1 }
      pids = one.stats[:pids]
      pids.each { |pid| ::Process.kill(:KILL, pid) }
      assert_includes pids, fiber.await.pid
      eventually { (one.stats[:pids] - pids).size == 2 }
    end
    assert_equal 4, one.process(:square, 2)
  end

  # What has not begun is nobody's fault.
  def test_what_a_dead_worker_had_not_begun_is_done_by_another
    one = pool(1)
    busy = spin { error_of(ProcessPool::WorkerDied) { one.process(:compute) } }
    eventually { one.stats[:running] == 1 }
    waiting = Array.new(20) { |i| spin { one.process(:square, i) } }
    eventually { one.stats[:waiting] == 20 }
    ::Process.kill(:KILL, one.stats[:pids].first)
    assert_equal Array.new(20) { |i| i * i }, Fiber.await(waiting)
    assert_kind_of ProcessPool::WorkerDied, busy.await
  end

  def test_a_worker_killed_in_the_middle_of_a_large_frame
    heavy
    one = pool(1)
    bytes = 'b' * 8_000_000
    busy = begun(one, :wait)
    pid = one.stats[:pids].first
    ::Process.kill(:STOP, pid)                 # it reads and writes nothing
    large = Array.new(2) { spin { one.process(:size, bytes) } }
    eventually { one.stats[:waiting] == 2 }
    ::Process.kill(:KILL, pid)
    assert_raises(ProcessPool::WorkerDied) { busy.await }
    assert_equal [8_000_000] * 2, large.map(&:await)
    half = pool(1, half: -> { Thread.new { Polyphony::PoolCase.burn(0.01); ::Process.kill(:KILL, $$) }; loop { 'x' * 1000 } })
    assert_raises(ProcessPool::WorkerDied) { half.process(:half) }
  end

  # There is work as long as workers are killed. Each time something is done in between: one that dies before it was of any
  # use is replaced after a pause, in which nobody is there to be killed.
  def test_killed_at_any_moment_every_task_is_answered
    one = pool(2, retries: 100)
    random = Random.new(3)
    killer = spin do
      until one.stats[:died] >= 20
        done = one.stats[:done]
        eventually('an answer') { one.stats[:done] > done }
        sleep random.rand(0.004)
        kill_any(one, random)
      end
    end
    count = 0
    results = one.map(Enumerator.new { |y| y << (count += 1) until killer.dead? }, :square)
    assert_equal (1..count).map { |x| x * x }, results
  end

  def kill_any(pool, random)
    pool.stats[:pids].sample(random: random)&.then { |pid| ::Process.kill(:KILL, pid) }
  rescue Errno::ESRCH
    nil # it is being replaced
  end

  # The socket stays open in what the worker has forked.
  def test_a_dead_worker_whose_child_lives_on_is_noticed
    reader, writer = pipe_pair
    one = pool(1, share: [reader], leave: lambda {
      fork { reader.read; exit!(0) }
      ::Process.kill(:KILL, ::Process.pid)
    })
    assert_raises(ProcessPool::WorkerDied) { one.process(:leave) }
    assert_equal 4, one.process(:square, 2)
    one.stop
    writer.close
  end

  def test_a_worker_that_closes_its_socket_is_replaced
    one = pool(1, close: -> { $stderr.reopen(File::NULL); ObjectSpace.each_object(UNIXSocket) { |io| io.close unless io.closed? }; sleep })
    assert_raises(ProcessPool::WorkerDied) { one.process(:close) }
    assert_equal 4, one.process(:square, 2)
  end

  def test_somebody_who_waits_for_any_child_does_not_get_a_worker
    one = pool(1)
    ::Process.kill(:KILL, one.stats[:pids].first)
    any = spin { ::Process.wait }
    other = ::Process.spawn('exit 0')
    assert_equal other, any.await
    assert_equal 4, one.process(:square, 2)
  end

  # --- the parent's end -----------------------------------------------------------------------------

  def test_workers_end_with_a_parent_that_is_killed_whatever_they_do
    code = <<~'RUBY'
      require 'openssl'
      require 'polyphony'
      $stdout.sync = true
      stuck = -> { OpenSSL::PKCS5.pbkdf2_hmac('x', 'salt', 2**31 - 1, 32, 'sha512') }
      pool = Polyphony::ProcessPool.new(4, wait: -> { sleep }, turn: -> { loop {} }, stuck: stuck)
      %i[wait turn stuck].each { |task| pool.cast(task) }
      sleep 0.001 until pool.stats[:running] == 3
      fork { sleep 30 }                         # has the parent's ends of the sockets
      puts pool.stats[:pids].join(' ')
      sleep
    RUBY
    reader, writer = pipe_pair
    parent = ::Process.spawn(RbConfig.ruby, '--disable-gems', "-I#{POLYPHONY_LIB}", '-e', code, out: writer, pgroup: true)
    writer.close
    pids = reader.gets.split.map(&:to_i)
    assert_equal 4, pids.size
    ::Process.kill(:KILL, parent)
    ::Process.wait(parent)
    eventually('the end of all workers') { pids.none? { |pid| %w[R S D].include?(state_of(pid)) } }
  ensure
    ::Process.kill(:KILL, -parent) if parent
  end

  def test_a_program_that_ends_ends_its_workers_and_only_it_does_what_is_at_exit
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      at_exit { puts 'at exit' }
      pool = Polyphony::ProcessPool.new(2, hi: -> { puts 'hi'; 1 }, wait: -> { sleep }, quit: -> { exit(2) })
      pool.process(:hi)
      pool.cast(:wait)
      begin; pool.process(:quit); rescue Polyphony::ProcessPool::WorkerDied; puts 'died'; end
      $pids = pool.stats[:pids]
      at_exit { print $pids.size, ' ' }
    RUBY
    assert_equal ["hi\ndied\n2 at exit\n", '', true], [out, err, status.success?]
  end

  def test_ctrl_c_is_the_parents_business
    code = <<~'RUBY'
      require 'polyphony'
      $stdout.sync = true
      pool = Polyphony::ProcessPool.new(2, nap: -> { sleep 0.3; :rested }, turn: -> { loop {} })
      pool.cast(:turn)
      begin
        task = spin { pool.process(:nap) }
        sleep 0.001 until pool.stats[:running] == 2
        puts 'ready'
        sleep
      rescue Interrupt
        puts task.await, pool.stats[:died]
        pool.stop(timeout: 0)
      end
    RUBY
    reader, writer = pipe_pair
    parent = ::Process.spawn(RbConfig.ruby, '--disable-gems', "-I#{POLYPHONY_LIB}", '-e', code, out: writer, err: writer, pgroup: true)
    writer.close
    assert_equal "ready\n", reader.gets
    ::Process.kill(:INT, -parent)
    assert_equal "rested\n0\n", reader.read
    ::Process.wait(parent)
    assert_predicate $?, :success?
  end

  # --- what a worker has ----------------------------------------------------------------------------

  def test_sockets_and_pipes_of_the_parent_are_not_held_open
    listener = track(TCPServer.new('127.0.0.1', 0))
    reader, writer = pipe_pair
    ours, theirs = socket_pair
    log = track(Tempfile.new('log'))
    one = pool(2, say: -> { log.write('kept'); log.flush; nil })
    writer.close
    theirs.close
    assert_equal ['', ''], [reader.read, ours.read]
    port = listener.local_address.ip_port
    listener.close
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new('127.0.0.1', port) }
    one.process(:say)
    assert_equal 'kept', File.read(log.path)
  end

  def test_an_inherited_socket_raises_in_a_task
    ours, theirs = socket_pair
    one = pool(1, use: -> { theirs.write('x') })
    assert_raises(Errno::EPIPE) { one.process(:use) }
    theirs.write('y')
    assert_equal 'y', ours.readpartial(9)
  end

  def test_standard_input_is_empty_and_what_is_printed_arrives
    out, err, = run_ruby(<<~RUBY, input: __FILE__)
      require 'polyphony'
      pool = Polyphony::ProcessPool.new(1, read: -> { $stdin.read }, say: -> { print 'said ' })
      p pool.process(:read)
      pool.process(:say)
      p gets[0, 8]
    RUBY
    assert_equal ["\"\"\nsaid \"# frozen\"\n", ''], [out, err]
  end

  def test_fiber_storage_and_handlers_of_the_parent_stay_there
    Fiber[:user] = 'ann'
    one = pool(1, storage: -> { Fiber[:user] }, alone: -> { [Fiber.current.parent.parent.main?, Thread.list.size] })
    assert_nil one.process(:storage)
    assert_equal [true, 1], one.process(:alone)
  ensure
    Fiber[:user] = nil
  end

  def test_idle_workers_use_no_processor_time
    one = pool(2)
    one.map(1..10, :square)
    ticks = -> { one.stats[:pids].sum { |pid| fields("/proc/#{pid}/stat").values_at(13, 14).sum(&:to_i) } }
    before = ticks.call
    sleep 0.3
    assert_operator ticks.call - before, :<=, 1
  end

  def test_a_task_may_fork_and_start_programs
    one = pool(1, child: -> { ::Process.wait2(fork { exit!(5) }).last.exitstatus }, echo_by: -> { `echo hello` })
    assert_equal 5, one.process(:child)
    assert_equal "hello\n", one.process(:echo_by)
  end

  def test_a_collection_at_every_allocation_on_both_sides
    out, err, = run_ruby(<<~RUBY, timeout: 150)
      require 'polyphony'
      pool = Polyphony::ProcessPool.new(1, fibers: 2, grace: 300, stress: ->(on) { GC.stress = on }, square: ->(x) { x * x },
                                           fail: -> { raise IOError, 'x' }, wait: -> { sleep })
      pool.process(:stress, true)
      GC.stress = true
      p pool.process(:square, 2), move_on_after(0.05) { pool.process(:wait) }
      begin; pool.process(:fail); rescue IOError => e; p e; end
      GC.stress = false
      pool.stop
      p pool.stats[:died]
    RUBY
    assert_equal ["4\nnil\n#<IOError: x>\n0\n", ''], [out, err]
  end

  def test_memory_is_put_in_order_before_the_fork
    ProcessPool.open(1, square: ->(x) { x * x }) { |one| assert_equal 4, one.process(:square, 2) }
  end
end
