# frozen_string_literal: true

require_relative '../test_helper'
require 'logger'
require 'timeout'

# Handlers set with trap. Those that change how a program ends run in a process of their own.
class TestSignals < Polyphony::TestCase
  on_every_driver

  def setup
    @before = {}
  end

  def teardown
    @before.each { |signal, handler| trap(signal, handler) }
  end

  # A trap that is taken back after the test.
  def handle(signal, command = nil, &block)
    before = command ? trap(signal, command) : trap(signal, &block)
    @before[signal] = before unless @before.key?(signal)
    before
  end

  def signal_myself(signal = 'USR1')
    Process.kill(signal, Process.pid)
  end

  # From outside, as others do: through the kernel.
  def signal_from_outside(signal = 'USR1')
    system('kill', "-#{signal}", Process.pid.to_s)
  end

  # Runs the block, which waits in the main fiber or a spun one; the signal comes when it does. Another fiber has
  # turns while the handler waits.
  def while_waiting(answer, &wait)
    beats = 0
    handle('USR1') do
      heart = spin { loop { beats += 1; snooze } }
      before = beats
      sleep 0.001 until beats > before + 3
      heart.stop
      answer.call
    end
    spin { 3.times { snooze }; signal_from_outside }
    yield_result = wait.call
    assert_operator beats, :>, 3
    yield_result
  end

  # Same output and status with Polyphony and without.
  def assert_stock(code, status: 0)
    programs = [[], ['-rpolyphony']].map { |options| ["$stdout.sync = true\n#{code}", { options: ['-W0', *options] }] }
    results = run_rubies(*programs).map { |out, err, ended| [out, ended.exitstatus || -ended.termsig, err] }
    assert_equal results[0].first(2), results[1].first(2), results.map(&:last).join("\n")
    assert_equal status, results[1][1], results[1].last
    results[1][0]
  end

  def run_with(code, status: 0)
    out, err, ended = run_ruby("require 'polyphony'\nrequire 'tempfile'\n$stdout.sync = true\n#{code}")
    assert_equal status, ended.exitstatus || -ended.termsig, "#{out}\n#{err}"
    out.lines(chomp: true)
  end

  # --- what trap answers ------------------------------------------------------------------------

  def test_trap_returns_what_was_set_before_as_stock
    assert_stock(<<~'RUBY')
      mine = proc { |n| puts "mine #{n}" }
      p trap('USR1', mine), trap('USR1', 'IGNORE').equal?(mine), trap('USR1', nil), trap('USR1', mine)
      p trap('INT', mine), trap('INT', 'DEFAULT').equal?(mine), trap(:INT, 'SYSTEM_DEFAULT'), trap(2, :DEFAULT)
      p trap('SIGTERM', mine), trap(15, 'EXIT').equal?(mine), trap('TERM', 'puts 1'), trap('TERM', ''), trap('TERM', 'SIG_DFL')
      p trap('TERM', 'SIG_IGN'), trap('TERM', 'DEFAULT')
      p Signal.trap('USR1', 'DEFAULT').equal?(mine), Signal.trap('USR1', mine), trap('USR1', mine).equal?(mine)
      p Signal.trap('INT', 'DEFAULT'), Signal.trap('INT', mine), Signal.trap('INT', 'DEFAULT').equal?(mine)
      callable = Object.new
      def callable.call(n) = puts("called #{n}")
      p trap('USR2', callable), Kernel.trap('USR2', callable).equal?(callable)
      Process.kill('USR1', $$)
      Process.kill('USR2', $$)
      old = trap('USR1') { |n| print 'new, '; old.call(n) }
      Process.kill('USR1', $$)
      trap('USR1', old)
      Process.kill('USR1', $$)
    RUBY
  end

  def test_trap_complains_as_stock
    assert_stock(<<~'RUBY')
      def try
        yield
      rescue Exception => e
        puts "#{e.class}: #{e.message} #{e.backtrace.first[/\A.*?:\d+/]}"
      end
      try { trap('SEGV') { } }
      try { trap('KILL') { } }
      try { trap('VTALRM') { } }
      try { trap('NONE') { } }
      try { trap(:SIGNONE, 'DEFAULT') }
      try { trap(4711) { } }
      try { trap('INT') }
      try { trap }
      try { trap('INT', 'DEFAULT', 3) }
      try { trap(nil) { } }
      try { trap(Object) { } }
      p trap('INT', 'DEFAULT'), trap('USR1', 'DEFAULT')
    RUBY
  end

  def test_process_trap
    assert_equal ['"DEFAULT"', '12'], run_with("p Process.trap('USR2') { |n| p n }\nProcess.kill('USR2', $$)")
  end

  def test_it_is_private_and_public_as_stock
    assert_stock("p Object.new.respond_to?(:trap), Kernel.respond_to?(:trap), Signal.respond_to?(:trap), method(:trap).arity")
  end

  # --- what a handler may do --------------------------------------------------------------------

  def test_it_gets_the_number_and_runs_in_a_fiber_of_its_own
    seen = nil
    handle('USR1') { |number| seen = [number, Fiber.current, Fiber.current.parent, Fiber.current.oob] }
    signal_myself
    assert_equal [Signal.list['USR1'], nil, true], [seen[0], seen[2], seen[3]]
    refute_same Fiber.current, seen[1]
  end

  def test_it_may_do_what_others_do
    log = Tempfile.new.tap { |file| file.sync = true }
    queue = Queue.new
    lock = Mutex.new
    victim = spin { sleep }
    socket, peer = socket_pair
    handle('USR1') do
      Logger.new(log).info('from the handler')
      lock.synchronize { queue << socket.gets }
      Polyphony::Event.new.tap { |event| spin { event.signal(1) } }.await
      victim.stop(:stopped)
      queue << spin { sleep 0.001; `echo a child` }.await
    end
    lock.lock
    snooze
    signal_from_outside
    peer.puts 'a line'
    lock.unlock
    assert_equal ["a line\n", "a child\n", :stopped], [queue.pop, queue.pop, victim.await]
    assert_match(/from the handler/, File.read(log.path))
  ensure
    log&.close!
  end

  def test_what_it_spins_outlives_it
    done = Polyphony::Event.new
    handle('USR1') { spin { assert_equal Thread.main.main_fiber, Fiber.current.parent; 3.times { snooze }; done.signal(:done) } }
    signal_myself
    assert_equal :done, done.await
  end

  def test_it_inherits_no_limit_and_no_values
    outcome = Polyphony::Queue.new
    move_on_after(0.005) do
      Fiber[:mine] = 1
      handle('USR1') { outcome << Fiber[:mine]; sleep 0.02; outcome << :slept }
      signal_myself
      sleep
    end
    assert_equal [nil, :slept], [outcome.shift, outcome.shift]
  ensure
    Fiber[:mine] = nil
  end

  # --- whoever waits ----------------------------------------------------------------------------

  WAITS = {
    sleep:     ->(t) { [-> { t.main.schedule(:woken) }, -> { Kernel.sleep }] },
    gets:      ->(t) { r, w = t.pipe_pair; [-> { w.puts 'line' }, -> { r.gets }] },
    join:      ->(_) { q = Queue.new; th = Thread.new { q.pop }; [-> { q << 1 }, -> { th.join.value }] },
    pop:       ->(_) { q = Queue.new; [-> { q << 1 }, -> { q.pop }] },
    lock:      ->(t) { [t.held_lock, -> { t.lock.lock; t.lock.unlock }] },
    process:   ->(t) { r, w = t.pipe_pair; c = Process.spawn('read x; exit 0', in: r); [-> { w.close }, -> { Process.wait(c) }] },
    generator: ->(t) { r, w = t.pipe_pair; e = Enumerator.new { |y| y << r.gets }; [-> { w.puts 'line' }, -> { e.next }] },
    timeout:   ->(t) { r, w = t.pipe_pair; [-> { w.puts 'line' }, -> { Timeout.timeout(t.patient(60)) { r.gets } }] },
    select:    ->(t) { r, w = t.pipe_pair; [-> { w.puts 'line' }, -> { IO.select([r]) }] }
  }.freeze
  attr_reader :main, :lock

  # @return [Proc] lets go of it
  def held_lock
    @lock = Mutex.new
    gate = Polyphony::Event.new
    spin { @lock.synchronize { gate.await } }
    snooze
    -> { gate.signal }
  end

  WAITS.each do |name, make|
    define_method("test_a_handler_runs_while_the_main_fiber_waits_in_#{name}") do
      @main = Fiber.current
      answer, wait = make.call(self)
      assert while_waiting(answer, &wait)
    end

    define_method("test_a_handler_runs_while_a_spun_fiber_waits_in_#{name}") do
      fiber = spin do
        @main = Fiber.current
        answer, wait = make.call(self)
        while_waiting(answer, &wait)
      end
      assert fiber.await
    end
  end

  # --- how many ---------------------------------------------------------------------------------

  def test_no_signal_is_lost_and_calls_follow_one_another
    inside = most = count = 0
    handle('USR1') do
      most = [most, inside += 1].max
      2.times { snooze }
      sleep 0
      count += 1
      inside -= 1
    end
    40.times { |n| signal_myself; snooze if (n % 3).zero? }
    snooze until count == 40
    assert_equal 1, most
  end

  def test_handlers_of_two_signals_run_beside_each_other
    steps = Polyphony::Queue.new
    gate = Polyphony::Event.new
    handle('USR1') { steps << 1; gate.await; steps << 3 }
    handle('USR2') { steps << 2; gate.signal }
    signal_myself
    signal_myself('USR2')
    assert_equal [1, 2, 3], Array.new(3) { steps.shift }
  end

  def test_a_handler_that_fails_does_not_stop_those_behind_it
    count = 0
    handle('USR1') { sleep 0; raise IOError, (count += 1).to_s }
    errors = []
    3.times do |n|
      n.zero? ? shield { 3.times { signal_myself }; snooze until count == 3 } : snooze
    rescue IOError => e
      errors << e.message
    end
    assert_equal %w[1 2 3], errors
  end

  def test_signals_to_a_program_from_outside
    out = run_with(<<~'RUBY')
      got = Hash.new(0)
      lock = Mutex.new
      trap('USR1') { lock.synchronize { sleep 0; got[:usr1] += 1 } }
      trap('USR2') { lock.synchronize { got[:usr2] += 1 } }
      pid = $$
      child = fork do
        trap('USR1', 'DEFAULT')
        30.times { Process.kill('USR1', pid); Process.kill('USR2', pid); sleep 0.001 }
      end
      turns = 0
      heart = spin { loop { turns += 1; snooze } }
      Process.wait(child)
      heart.stop
      sleep 0.001 while got.size < 2
      p got.values.all? { |n| n.between?(1, 30) }, turns > 30
    RUBY
    assert_equal %w[true true], out
  end

  def test_nothing_is_lost_in_a_rain_of_signals
    out = run_with(<<~'RUBY')
      require 'socket'
      handled = 0
      log = Tempfile.create
      lock = Mutex.new
      %w[USR1 USR2 WINCH].each { |name| trap(name) { lock.synchronize { log.puts name; log.flush; handled += 1 } } }
      pid = $$
      rain = fork { %w[USR1 USR2 WINCH].each { |n| trap(n, 'DEFAULT') }; loop { Process.kill(%w[USR1 USR2 WINCH].sample, pid); sleep 0.0005 } }
      pairs = Array.new(4) do
        a, b = UNIXSocket.pair
        spin { while (line = b.gets); b.puts line.upcase; end }
        spin { 300.times.map { |n| a.puts "line #{n}"; sleep 0 if (n % 50).zero?; a.gets } == 300.times.map { |n| "LINE #{n}\n" } }
      end
      numbers = Enumerator.new { |y| 200.times { |n| sleep 0; y << n } }
      sum = 200.times.sum { numbers.next }
      p pairs.map(&:await), sum, 5.times.map { |n| `echo #{n}`.to_i }
      sleep 0.001 until handled > 20
      Process.kill('KILL', rain)
      Process.wait(rain)
      sleep 0.01
      p File.readlines(log.path).size == handled
      File.unlink(log.path)
    RUBY
    assert_equal ['[true, true, true, true]', '19900', '[0, 1, 2, 3, 4]', 'true'], out
  end

  # --- a fiber that computes --------------------------------------------------------------------

  # The signal is sent when the program computes.
  def compute(handler, setup = '', body = 'loop { }', status: 0)
    run_with(<<~RUBY, status: status)
      #{setup}
      trap('INT') { #{handler} }
      pid = $$
      Thread.new { Process.kill('INT', pid) }
      #{body}
    RUBY
  end

  def test_a_busy_program_ends_by_a_handler_that_exits
    assert_equal [], compute('exit 3', status: 3)
    assert_equal [], compute('exit 3', '', 'while true; end', status: 3)
  end

  def test_the_handler_of_a_busy_program_may_wait
    assert_equal ['bye', 'true'], compute('puts "bye"; sleep 0.01; lock.synchronize { p $n > 0 }; exit 3',
                                          'lock = Mutex.new; $n = 0', 'loop { $n += 1 }', status: 3)
  end

  def test_a_busy_fiber_goes_on_after_the_handler
    assert_equal %w[handled true], compute('puts "handled"; $done = true', '', <<~RUBY)
      other = false
      spin { other = true }
      spin { nil until $done }.await
      p other
    RUBY
  end

  def test_a_busy_fiber_that_holds_what_the_handler_wants
    assert_equal %w[given handled], compute('$wants = true; lock.synchronize { puts "handled" }; $done = true',
                                            'lock = Mutex.new', <<~RUBY)
      lock.synchronize { nil until $wants; puts 'given' }
      nil until $done
    RUBY
  end

  { 'a generator' => 'Enumerator.new { |y| loop { } }.next', 'a limit' => "require 'timeout'\nTimeout.timeout(1000) { loop { } }",
    'the block of a stock method' => 'IO.foreach(File::NULL) { }; IO.foreach($0 = RbConfig.ruby) { loop { } }',
    'a spun fiber with a generator' => 'spin { Fiber.new { loop { } }.resume }; sleep',
    'the end of the program' => 'at_exit { loop { } }' }.each do |place, body|
    define_method("test_a_computation_in_#{place.tr(' ', '_')}_is_ended_by_a_handler_that_exits") do
      assert_equal ['bye'], compute('puts "bye"; sleep 0.001; exit 3', '', body, status: 3)
    end
  end

  def test_another_fiber_does_not_run_in_the_middle_of_one_that_soon_waits
    steps = []
    spin { steps << :other }
    handle('USR1') { steps << :handler }
    Thread.new { signal_myself }.tap { |thread| Thread.__polyphony_stock_pass while thread.alive? }
    steps << :still_here
    snooze
    assert_equal %i[still_here handler other], steps
  end

  # --- exceptions -------------------------------------------------------------------------------

  def test_what_a_handler_raises_comes_to_the_main_fiber
    assert_stock(<<~'RUBY')
      trap('USR1') { raise IOError, 'from the handler' }
      pid = $$
      begin
        Thread.new { Process.kill('USR1', pid) }
        sleep
      rescue IOError => e
        puts e.message
      end
      trap('USR1') { raise Interrupt, 'mine' }
      begin
        Thread.new { Process.kill('USR1', pid) }
        Thread.new { sleep }.join
      rescue Interrupt => e
        p e
      end
      trap('USR1') { throw :out, :thrown }
      p catch(:out) { Thread.new { Process.kill('USR1', pid) }; IO.pipe[0].gets }
      p catch(:out) { Process.kill('USR1', pid); :never }
      begin
        Thread.new { Process.kill('USR1', pid) }
        sleep
      rescue UncaughtThrowError => e
        puts e.message
      end
    RUBY
  end

  def test_it_does_not_come_to_the_fiber_that_happens_to_run
    out = run_with(<<~'RUBY')
      trap('USR1') { raise IOError, 'from the handler' }
      fiber = spin { 20.times { snooze }; Process.kill('USR1', $$); :unharmed }
      begin
        sleep
      rescue IOError => e
        puts e.message, fiber.await
      end
    RUBY
    assert_equal ['from the handler', 'unharmed'], out
  end

  def test_exit_status_and_uncaught_errors_are_stocks
    assert_stock("trap('USR1') { exit 7 }\nat_exit { puts 'at exit' }\nProcess.kill('USR1', $$)\nsleep", status: 7)
    assert_stock("trap('USR1') { abort 'x' }\nbegin; Process.kill('USR1', $$); sleep; ensure; puts 'main'; end", status: 1)
    assert_stock("trap('USR1') { raise 'x' }\nProcess.kill('USR1', $$)\nsleep", status: 1)
    assert_stock("trap('TERM') { trap('TERM', 'DEFAULT'); Process.kill('TERM', $$) }\nProcess.kill('TERM', $$); sleep", status: -15)
    assert_stock("trap('TERM') { exit! 4 }\nProcess.kill('TERM', $$); sleep", status: 4)
  end

  def test_a_handler_is_not_cut_off_by_the_end_of_the_program
    out = run_with(<<~'RUBY')
      trap('USR1') { sleep 0.01; puts 'handled'; spin { sleep 0.01; puts 'never' } }
      spin { sleep } .tap { snooze }
      Process.kill('USR1', $$)
      puts 'main'
    RUBY
    assert_equal %w[main handled], out
  end

  def test_trap_exit
    assert_stock(<<~'RUBY', status: 5)
      at_exit { puts 'at exit' }
      trap('EXIT') { |n| puts "exit #{n}"; exit 5 }
      puts 'main'
    RUBY
    assert_equal %w[true waited], run_with("trap(0) { Mutex.new.synchronize { p true }; sleep 0.01; puts 'waited' }")
  end

  # --- processes and threads --------------------------------------------------------------------

  def test_a_handler_of_chld_that_waits
    assert_stock(<<~'RUBY')
      pids = []
      trap('CHLD') do
        while (pid = Process.wait(-1, Process::WNOHANG))
          pids << [pid, $?.exitstatus]
        end
      rescue Errno::ECHILD
        nil
      end
      spawned = Array.new(5) { |n| spawn("exit #{n}") }
      sleep 0.001 until pids.size == 5
      p pids.sort == spawned.zip(0..4)
      trap('CHLD', 'DEFAULT')
    RUBY
    assert_equal ['3'], run_with("trap('CLD') { Process.wait; p $?.exitstatus; exit }\nspawn('exit 3')\nsleep")
  end

  def test_handlers_stay_in_a_forked_child
    assert_stock(<<~'RUBY')
      trap('USR1') { |n| puts "#{$name} #{n}" }
      $name = 'parent'
      Process.kill('USR1', $$)
      Process.wait(fork { $name = 'child'; Process.kill('USR1', $$); Process.kill('USR1', $$) })
      Process.kill('USR1', $$)
    RUBY
  end

  def test_fork_in_a_handler
    out = run_with(<<~'RUBY')
      q = Queue.new
      trap('USR2') { puts 'usr2 in the child' }
      trap('USR1') { q << fork { Process.kill('USR2', $$); puts 'child'; exit! 2 } }
      Process.kill('USR1', $$)
      Process.wait(q.pop)
      p $?.exitstatus
    RUBY
    assert_equal ['usr2 in the child', 'child', '2'], out
  end

  def test_set_in_another_thread_while_threads_have_fibers
    out = run_with(<<~'RUBY')
      q = Queue.new
      ready = Queue.new
      snooze
      others = Array.new(2) { Thread.new { 3.times { spin { loop { snooze } } }; ready << 1; q.pop } }
      2.times { ready.pop }
      Thread.new { trap('USR1') { Mutex.new.synchronize { sleep 0; p Thread.current == Thread.main } ; 2.times { q << 1 } } }.join
      snooze
      Process.kill('USR1', $$)
      others.each(&:join)
    RUBY
    assert_equal %w[true], out
  end

  # The whole thread waits then, as in stock Ruby.
  def test_a_stock_handler_may_print_and_read_where_it_has_to_wait
    ['', 'spin { loop { sleep 0.001 } }', '$stdin.each_line.next; spin { sleep }'].each do |others|
      out, err, = run_ruby(<<~RUBY, input: __FILE__)
        require 'polyphony'
        full, target = IO.pipe
        late, source = IO.pipe
        count = 0
        handled = false
        Thread.new { count += full.readpartial(5000).size while count < 200_000; source.puts 'late' }
        #{others}
        Signal.trap('USR1') do
          target.write('x' * 200_000)
          puts late.gets, late.read_nonblock(1, exception: false).inspect
          handled = true
        end
        spin { Process.kill('USR1', Process.pid) }
        sleep 0.001 until handled
        puts 'on'
      RUBY
      assert_equal "late\n:wait_readable\non\n", out, err
    end
  end

  def test_signal_trap_is_stock
    assert_equal %w[false ThreadError], run_with(<<~'RUBY')
      Signal.trap('USR1') { p Fiber.current.oob; begin; Mutex.new.lock; rescue ThreadError => e; puts e.class; end }
      Process.kill('USR1', $$)
    RUBY
  end

  def test_a_string_is_evaluated_as_stock
    assert_stock("trap('USR1', 'puts :evaluated')\nProcess.kill('USR1', $$)\nsleep 0.01")
    assert_stock("trap('USR1', 'EXIT')\nProcess.kill('USR1', $$)\nsleep", status: 0)
  end

  def test_without_a_trap_again_they_are_raised_in_the_main_fiber
    out = run_with(<<~'RUBY')
      trap('INT') { puts 'never' }
      trap('INT', 'DEFAULT')
      fiber = spin { snooze; Process.kill('INT', $$); 5.times { snooze }; :unharmed }
      begin
        sleep
      rescue Interrupt
        puts fiber.await
      end
    RUBY
    assert_equal %w[unharmed], out
  end
end
