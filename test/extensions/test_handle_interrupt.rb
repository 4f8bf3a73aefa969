# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/thread_helpers'
require 'timeout'

# Thread.handle_interrupt and pending_interrupt?, for fibers and for plain threads.
class TestHandleInterrupt < Polyphony::TestCase
  include Polyphony::ThreadHelpers

  on_every_driver

  class Boom < StandardError; end
  class Other < StandardError; end

  # --- the same program with and without the gem -------------------------------------------------------------------

  # Each line is run by itself, and prints what it comes to.
  FORMS = <<~'RUBY'
    Thread.handle_interrupt(Boom => :never)
    Thread.handle_interrupt(Boom => :sometimes) { }
    Thread.handle_interrupt(Boom => 'never') { }
    Thread.handle_interrupt(Boom => nil) { }
    Thread.handle_interrupt(:never) { }
    Thread.handle_interrupt(nil) { }
    Thread.handle_interrupt { }
    Thread.handle_interrupt({}) { 1 }
    Thread.handle_interrupt(Boom => :never) { |x| [x] }
    Thread.handle_interrupt(1 => :never) { 5 }
    [1, 2].each { |n| Thread.handle_interrupt(Boom => :never) { break n } }
    catch(:out) { Thread.handle_interrupt(Boom => :never) { throw :out, 3 } }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom, 'x'); say 'after'; 1 }
    Thread.handle_interrupt(Boom => :immediate) { Thread.current.raise(Boom, 'x'); say 'after'; 1 }
    Thread.handle_interrupt(Boom => :on_blocking) { Thread.current.raise(Boom, 'x'); say 'after'; 1 }
    Thread.handle_interrupt(Other => :never) { Thread.current.raise(Boom, 'x'); say 'after'; 1 }
    Thread.handle_interrupt(StandardError => :never) { Thread.current.raise(Boom, 'x'); say 'after'; 1 }
    Thread.handle_interrupt(StandardError => :never, Boom => :immediate) { Thread.current.raise(Boom, 'x'); say 'after' }
    Thread.handle_interrupt(Exception => :never) { Thread.handle_interrupt(Other => :immediate) { Thread.current.raise(Boom); say 'in' }; say 'after' }
    Thread.handle_interrupt(Boom => :never) { Thread.handle_interrupt(StandardError => :immediate) { Thread.current.raise(Boom); say 'in' }; say 'after' }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom, 'x'); raise ArgumentError, 'own' }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom); begin; Thread.handle_interrupt(Boom => :immediate) { Thread.pass; say 'in' }; rescue Boom; say 'caught'; end; :end }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom); begin; Thread.handle_interrupt(Boom => :on_blocking) { say 'in'; sleep 0.001; say 'slept' }; rescue Boom; say 'caught'; end; :end }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom); Thread.handle_interrupt(Boom => :on_blocking) { say 'in' }; say 'after' }
    Thread.handle_interrupt(Boom => :never) { Thread.current.raise(Boom); say Thread.pending_interrupt?, Thread.current.pending_interrupt? }
    [Thread.pending_interrupt?, Thread.pending_interrupt?(Boom), Thread.current.pending_interrupt?]
    Thread.handle_interrupt(Timeout::Error => :never) { Timeout.timeout(0.01) { late; :done } }
    Thread.handle_interrupt(Timeout::Error => :never) { Timeout.timeout(0.01) { late; :done }; say 'more' }
    Thread.handle_interrupt(StandardError => :never) { Timeout.timeout(0.01) { late; :done } }
    Thread.handle_interrupt(Boom => :never) { Timeout.timeout(0.01, Boom) { late; :done } }
    Thread.handle_interrupt(Other => :never) { Timeout.timeout(0.01, Boom) { sleep; :done } }
    Thread.handle_interrupt(Timeout::Error => :never) { Timeout.timeout(0.01) { late; begin; Thread.handle_interrupt(Timeout::Error => :on_blocking) { sleep }; ensure say 'ensured'; end } }
    Timeout.timeout(0.01) { Thread.handle_interrupt(Timeout::Error => :never) { late; say 'in' }; say 'after' }
    Thread.new { Thread.handle_interrupt(Object => :never) { Thread.current.kill; say 'after' } }.value
    Thread.new { Thread.handle_interrupt(Boom => :on_blocking) { Thread.current.raise(Boom, 'x'); say 'in'; sleep } }.value
    Thread.new { Thread.handle_interrupt(Boom => :on_blocking) { Thread.current.raise(Boom, 'x'); say 'in'; ::Thread::Queue.new.pop } }.value
    Thread.handle_interrupt(Boom => :never) { t = Thread.new { late; say 'in'; 1 }; t.raise(Boom); t.value }
    Thread.handle_interrupt(Boom => :never) { t = Thread.start { late; begin; Thread.handle_interrupt(Boom => :immediate) { }; rescue Boom; say 'caught'; end }; t.raise(Boom); t.value }
    Thread.handle_interrupt(Boom => :never) { Thread.handle_interrupt(StandardError => :immediate) { t = Thread.new { sleep; say 'in' }; t.raise(Boom); t.value } }
    Thread.handle_interrupt(Object => :never) { Thread.new { Thread.new { Thread.current.raise(Boom, 'x'); say 'in'; 1 }.value }.value }
    t = held(Boom => :never) { say 'end' }; t.raise(Boom, 'x'); say t.pending_interrupt?; go; t.value
    t = held(Exception => :never) { say 'end' }; t.raise('x'); go; t.value
    t = held(Other => :never) { say 'end' }; t.raise(Boom); t.value
    t = held(Boom => :on_blocking) { say 'end' }; t.raise(Boom); t.value
    t = held(Object => :never) { say 'end' }; t.kill; go; t.value
    t = held(Boom => :never) { say 'end' }; t.kill; t.value
    t = held(Boom => :never) { begin; Thread.handle_interrupt(Boom => :immediate) { Thread.pass; say 'no' }; rescue Boom; say 'caught'; end; 7 }; t.raise(Boom); go; t.value
  RUBY

  PRELUDE = <<~'RUBY'
    require 'timeout'
    Thread.report_on_exception = false
    class Boom < StandardError; end
    class Other < StandardError; end
    LOG = []
    def say(*args) = LOG.push(*args) # writing would be a blocking operation
    def late = (sleep 0.001 until Thread.pending_interrupt?)
    # A thread that waits under the mask until it may go on, and then runs the block under it.
    def held(mask, &block)
      began, $gate = ::Thread::Queue.new, ::Thread::Queue.new
      gate = $gate
      thread = Thread.new { PREPARE.call; Thread.handle_interrupt(mask) { began << 1; gate.pop; block.call } }
      began.pop
      Thread.pass until thread.stop?
      thread
    end
    def go = $gate << 1
    def show(line)
      LOG.clear
      say 'is', eval(line)
    rescue Exception => e
      say e.class, e.message[/.*/]
    ensure
      puts LOG.inspect
    end
  RUBY

  # From the main fiber, from a spun one with others beside it, and with threads that have fibers of their own.
  WAYS = {
    stock: ['PREPARE = -> {}', 'LINES.each { |line| show(line) }'],
    main: ["require 'polyphony'; PREPARE = -> {}", 'LINES.each { |line| show(line) }'],
    with_a_loop: ["require 'polyphony'; PREPARE = -> { spin { loop { sleep 0.001 } }; sleep 0 }",
                  'sleep 0; LINES.each { |line| show(line) }'],
    spun: ["require 'polyphony'; PREPARE = -> { spin { loop { sleep 0.001 } }; sleep 0 }",
           'spin { loop { sleep 0.001 } }; spin { LINES.each { |line| show(line) } }.await']
  }.freeze

  def forms(way)
    before, run = WAYS.fetch(way)
    out, err, status = run_ruby("#{before}\n#{PRELUDE}\nLINES = DATA_LINES\n#{run}\n"
      .sub('DATA_LINES', FORMS.lines(chomp: true).inspect))
    assert_equal '', err
    assert_predicate status, :success?
    out.lines(chomp: true)
  end

  %i[main with_a_loop spun].each do |way|
    define_method("test_what_it_comes_to_is_as_in_stock_ruby_#{way}") do
      heavy
      stock = forms(:stock)
      assert_equal FORMS.lines.size, stock.size
      FORMS.lines(chomp: true).zip(stock, forms(way)) do |line, expected, actual|
        assert_equal expected, actual, line
      end
    end
  end

  # --- what comes from outside -------------------------------------------------------------------------------------

  # Name => how it reaches a fiber. Each says when it has come.
  SOURCES = {
    stop: [Polyphony::MoveOn, ->(fiber) { fiber.stop }],
    terminate: [Polyphony::Terminate, ->(fiber) { fiber.terminate }],
    raise: [Boom, ->(fiber) { fiber.raise(Boom) }],
    cancel: [Polyphony::Cancel, ->(fiber) { fiber.cancel }],
    interrupt: [Polyphony::MoveOn, ->(fiber) { fiber.interrupt }],
    schedule: [Boom, ->(fiber) { fiber.schedule(Boom.new) }]
  }.freeze

  # The block runs in a fiber of its own while another counts.
  def beside_a_heart
    beats = 0
    heart = spin { loop { snooze; beats += 1 } }
    yield -> { beats }
  ensure
    heart&.stop
    heart&.await
  end

  # A fiber that notes what it does and what ends it.
  def noting(log, &block)
    spin do
      block.call
      log << :through
    rescue Exception => e # rubocop:disable Lint/RescueException -- that is what is looked at
      log << e.class
    end
  end

  SOURCES.each do |name, (error, send)|
    define_method("test_#{name}_waits_for_the_end_of_the_block") do
      log = []
      beside_a_heart do |beats|
        gate = Polyphony::Event.new
        fiber = noting(log) do
          Thread.handle_interrupt(Object => :never) { gate.await; log << Thread.pending_interrupt?(error) }
          log << :behind
        end
        snooze until fiber.state == :waiting
        send.call(fiber)
        before = beats.call
        snooze until beats.call > before + 3
        assert_equal [:waiting, []], [fiber.state, log]
        gate.signal
        fiber.await
      end
      assert_equal [true, error], log
    end

    define_method("test_#{name}_comes_in_a_block_that_allows_it") do
      %i[immediate on_blocking].each do |timing|
        log = []
        fiber = noting(log) do
          Thread.handle_interrupt(Exception => :never) do
            suspend_until_pending(log)
            begin
              Thread.handle_interrupt(error => timing) { log << :in; sleep; log << :never }
            rescue Exception => e # rubocop:disable Lint/RescueException -- that is what is looked at
              log << e.class
            end
            sleep 0
          end
        end
        snooze until log == [:began]
        send.call(fiber)
        fiber.await
        log.delete(:in) if timing == :immediate # at its beginning or in its sleep
        assert_equal [:began, *(:in if timing == :on_blocking), error, :through], log
      end
    end

    define_method("test_#{name}_of_another_class_is_not_held_back") do
      log = []
      fiber = noting(log) { Thread.handle_interrupt(Other => :never, IOError => :never) { sleep } }
      snooze until fiber.state == :waiting
      send.call(fiber)
      fiber.await
      assert_equal [error], log
    end
  end

  def suspend_until_pending(log)
    log << :began
    snooze until Thread.pending_interrupt?
  end

  def test_a_main_fiber_is_masked_as_well
    beside_a_heart do |beats|
      main = Fiber.current
      spin { main.raise(Boom, 'held') }
      passed = false
      error = assert_raises(Boom) do
        Thread.handle_interrupt(Boom => :never) do
          snooze until Thread.pending_interrupt?
          before = beats.call
          sleep 0.001 until beats.call > before
          passed = true
        end
      end
      assert_equal ['held', true], [error.message, passed]
    end
  end

  def test_all_that_was_held_back_comes_in_order
    log = []
    fiber = spin do
      begin
        Thread.handle_interrupt(Boom => :never) { sleep 0 until Thread.pending_interrupt?; sleep 0.001 }
      rescue Boom => e
        log << e.message
      end
      2.times do
        sleep
      rescue Boom => e
        log << e.message
      end
    end
    snooze
    3.times { |i| fiber.raise(Boom, i.to_s) }
    fiber.await
    assert_equal %w[0 1 2], log
  end

  def test_what_a_plain_wake_brings_is_not_held_back
    fiber = spin { Thread.handle_interrupt(Object => :never) { suspend } }
    snooze
    fiber.schedule(:value)
    assert_equal :value, fiber.await
  end

  def test_what_came_before_the_block_and_was_not_delivered_waits_too
    log = []
    fiber = spin do
      sleep
    rescue Boom
      Thread.handle_interrupt(Other => :never) { sleep 0; log << :done }
      log << :never
    end
    snooze
    fiber.raise(Boom)
    fiber.raise(Other)
    assert_raises(Other) { fiber.await }
    assert_equal [:done], log
  end

  def test_masks_of_fibers_that_take_turns_do_not_mix
    gates = Array.new(2) { Polyphony::Event.new }
    first = noting(one = []) { Thread.handle_interrupt(Boom => :never) { gates[0].await }; sleep }
    second = noting(two = []) { Thread.handle_interrupt(Other => :never) { gates[1].await }; sleep }
    snooze until [first, second].all? { |fiber| fiber.state == :waiting }
    gates[0].signal # the first to come is the first to go
    snooze until first.state == :waiting
    second.raise(Other)
    first.raise(Boom)
    first.await
    assert_equal [[Boom], []], [one, two]
    gates[1].signal
    second.await
    assert_equal [Other], two
    refute Thread.pending_interrupt?
  end

  # --- time limits -------------------------------------------------------------------------------------------------

  LIMITS = {
    move_on_after: [->(block) { move_on_after(0.001, with_value: :late, &block) }, :late],
    cancel_after: [->(block) { cancel_after(0.001, &block) }, Polyphony::Cancel],
    timeout: [->(block) { Timeout.timeout(0.001, &block) }, Timeout::Error],
    timeout_with_class: [->(block) { Timeout.timeout(0.001, Boom, &block) }, Boom],
    deadline: [->(block) { deadline(0.001, &block) }, Polyphony::Cancel]
  }.freeze

  WHERE = { main: ->(job) { job.call }, spun: ->(job) { spin(&job).await } }.freeze

  LIMITS.to_a.product(WHERE.to_a) do |(name, (limit, expected)), (where, run)|
    define_method("test_#{name}_around_the_block_waits_for_its_end_#{where}") do
      log = []
      job = lambda do
        instance_exec(lambda do |*|
          Thread.handle_interrupt(Object => :never) { sleep 0.001 until Thread.pending_interrupt?; log << :done }
          log << :behind
        end, &limit)
      rescue Polyphony::Cancel, Timeout::Error, Boom => e
        e.class
      end
      result = beside_a_heart { instance_exec(job, &run) }
      assert_operator expected, :===, result.is_a?(Class) ? result.allocate : result
      assert_equal [:done], log
    end
  end

  def test_our_limits_within_the_block_are_not_held_back
    Thread.handle_interrupt(Object => :never) do
      assert_equal :late, move_on_after(0.001, with_value: :late) { sleep }
      assert_raises(Polyphony::Cancel) { cancel_after(0.001) { sleep } }
    end
  end

  def test_a_limit_within_works_while_one_around_is_held_back
    log = []
    result = move_on_after(0.001, with_value: :outer) do
      Thread.handle_interrupt(Object => :never) do
        sleep 0.001 until Thread.pending_interrupt?
        log << move_on_after(0.001, with_value: :inner) { sleep }
      end
      log << :behind
    end
    assert_equal [:outer, [:inner]], [result, log]
  end

  # What goes through the block, since Ruby 3.3 another class than what comes out.
  TIMEOUT = [Timeout::Error, (Timeout::ExitException if defined?(Timeout::ExitException))].compact.freeze

  # It computes: nothing but the watching thread of Timeout could end it.
  def test_timeout_does_not_come_in_the_middle_of_a_computation_unless_that_is_allowed
    WHERE.each_value do |run|
      log = []
      job = lambda do
        Timeout.timeout(0.001) do
          Thread.handle_interrupt(TIMEOUT.to_h { |error| [error, :on_blocking] }) do
            nil until Thread.pending_interrupt?
            100_000.times { nil }
            log << :computed
            sleep
          end
        end
      rescue Timeout::Error => e
        e.class
      end
      assert_equal Timeout::Error, instance_exec(job, &run)
      assert_equal [:computed], log
    end
  end

  def test_a_mask_of_the_main_fiber_is_not_that_of_others
    other = nil
    Thread.handle_interrupt(Exception => :never) do
      other = spin { Thread.current.raise(Boom, 'mine') }
      assert_equal 'mine', assert_raises(Boom) { other.await }.message
      assert_raises(Timeout::Error) { spin { Timeout.timeout(0.001) { sleep } }.await }
      refute Thread.pending_interrupt?
    end
  end

  # --- shields -----------------------------------------------------------------------------------------------------

  def test_a_shield_within_and_a_mask_within
    [[->(b) { shield(&b) }, ->(b) { Thread.handle_interrupt(Boom => :never, &b) }],
     [->(b) { Thread.handle_interrupt(Boom => :never, &b) }, ->(b) { shield(&b) }],
     [->(b) { shield(&b) }, ->(b) { Thread.handle_interrupt(Boom => :immediate, &b) }]].each do |outer, inner|
      log = []
      fiber = noting(log) do
        outer.call(lambda do |*|
          inner.call(->(*) { sleep 0 until Thread.pending_interrupt?; log << :inner })
          sleep 0
          log << :outer
        end)
        log << :behind
      end
      snooze
      fiber.raise(Boom)
      fiber.await
      assert_equal [:inner, :outer, Boom], log
    end
  end

  # --- threads with fibers -----------------------------------------------------------------------------------------

  # Where the exception finds the thread: all wait, or a child computes.
  def masked_thread(log, mask, busy: false)
    began = ::Thread::Queue.new
    gate = Polyphony::Event.new
    thread = quiet do
      spin { busy ? loop { snooze } : sleep }
      Thread.handle_interrupt(mask) { began << true; gate.await; log << :done }
      log << :behind
      sleep
    end
    began.pop
    [thread, gate]
  end

  def test_thread_raise_waits_for_the_block_of_the_main_fiber
    [true, false].product([Boom, Exception, Object]) do |busy, named|
      thread, gate = masked_thread(log = [], { named => :never }, busy: busy)
      thread.raise(Boom, 'held')
      assert thread.pending_interrupt?(Boom)
      refute thread.pending_interrupt?(Other)
      gate.signal
      assert_equal 'held', assert_raises(Boom) { thread.join }.message
      assert_equal [:done], log
    end
  end

  def test_thread_raise_is_for_the_main_fiber_whatever_a_child_masks
    began = ::Thread::Queue.new
    log = []
    thread = quiet do
      spin { Thread.handle_interrupt(Boom => :never) { began << true; sleep } }
      sleep
    rescue Boom
      log << :main
    end
    began.pop
    thread.raise(Boom)
    thread.join
    assert_equal [:main], log
  end

  # From its first moment, and for good: what is held back at its end is dropped, as in stock Ruby.
  def test_a_new_thread_has_the_mask_of_the_fiber_that_makes_it
    WHERE.each_value do |run|
      log = []
      instance_exec(lambda do
        Thread.handle_interrupt(Boom => :never, Polyphony::MoveOn => :never) do
          thread = quiet { spin { loop { snooze } }; sleep 0.001 until Thread.pending_interrupt?(Polyphony::MoveOn); log << Thread.pending_interrupt?(Boom); 5 }
          wait_until('it has begun') { thread.main_fiber }
          thread.raise(Boom)
          thread.main_fiber.stop
          log << thread.value
        end
      end, &run)
      assert_equal [true, 5], log
    end
  end

  def test_a_spun_fiber_does_not_have_the_mask_of_the_one_that_spins_it
    Thread.handle_interrupt(Boom => :never) do
      child = spin { sleep }
      snooze
      child.raise(Boom)
      assert_raises(Boom) { child.await }
    end
  end

  def test_kill_waits_for_the_main_fiber_that_masks_it
    thread, gate = masked_thread(log = [], { Object => :never })
    thread.kill
    gate.signal
    assert_nil thread.value
    assert_equal [:done], log
  end

  # Kill ends all fibers, so it waits for the one that is not to be ended.
  def test_kill_waits_for_a_spun_fiber_that_masks_it
    %i[kill terminate exit].each do |word|
      began = ::Thread::Queue.new
      gate = Polyphony::Event.new
      log = []
      thread = Thread.new do
        spin do
          Thread.handle_interrupt(Object => :never) { began << true; gate.await; log << :done }
          log << :behind
        end
        sleep
      ensure
        log << :main
      end
      began.pop
      assert_same thread, thread.public_send(word)
      assert thread.pending_interrupt?
      gate.signal
      assert_nil thread.value
      assert_equal %i[done main], log
    end
  end

  def test_thread_kill_by_name_and_a_block_that_allows_it
    began = ::Thread::Queue.new
    log = []
    thread = Thread.new do
      spin do
        Thread.handle_interrupt(Object => :never) do
          began << true
          sleep 0.001 until Thread.pending_interrupt?
          log << :held
          Thread.handle_interrupt(Object => :immediate) { log << :never }
        end
      end
      sleep
    end
    began.pop
    assert_same thread, Thread.kill(thread)
    assert_nil thread.value
    assert_equal [:held], log
  end

  def test_a_thread_that_ends_waits_for_the_block_of_its_fibers
    log = []
    Thread.new do
      spin { Thread.handle_interrupt(Object => :never) { sleep 0.001 until Thread.pending_interrupt?; log << :done } }
      snooze
    end.join
    assert_equal [:done], log
  end

  # --- generators --------------------------------------------------------------------------------------------------

  def test_a_generator_under_a_mask_and_a_mask_in_a_generator
    around = ->(gate) { Thread.handle_interrupt(Boom => :never) { Enumerator.new { |y| gate.await; y << 1 }.next } }
    inside = ->(gate) { Enumerator.new { |y| Thread.handle_interrupt(Boom => :never) { gate.await }; y << 1 }.next }
    [around, inside].each do |job|
      log = []
      gate = Polyphony::Event.new
      fiber = noting(log) { log << job.call(gate); sleep }
      snooze until fiber.state == :waiting
      fiber.raise(Boom)
      3.times { snooze }
      assert_equal [], log
      gate.signal
      fiber.await
      assert_equal Boom, log.last
    end
  end

  # --- signals -----------------------------------------------------------------------------------------------------

  def test_ctrl_c_does_not_wait_as_in_stock_ruby
    ['loop { nil }', 'sleep', 'Enumerator.new { |y| sleep }.next'].each do |wait|
      out, = run_ruby(<<~RUBY)
        require 'polyphony'
        $stdout.sync = true
        spin { loop { sleep 0.001 } }
        sleep 0
        begin
          Thread.handle_interrupt(Exception => :never) do
            spin { Process.kill(:INT, Process.pid) }
            sleep 0
            #{wait}
            puts 'done'
          end
          puts 'behind'
        rescue Interrupt
          puts 'interrupted'
        end
      RUBY
      assert_equal "interrupted\n", out
    end
  end

  # A handler runs on top of a fiber that waits: what is meant for that one is not raised in the handler.
  def test_a_mask_in_a_signal_handler
    log = []
    done = false
    fiber = noting(log) { sleep }
    snooze
    old = trap(:HUP) do
      fiber.raise(Boom)
      Thread.handle_interrupt(Other => :never) { log << :handled }
      log << :through_it
      done = true
    end
    spin { Process.kill(:HUP, Process.pid) }
    sleep 0.001 until done
    fiber.await
    assert_equal [:handled, :through_it, Boom], log
  ensure
    trap(:HUP, old) if old
  end

  # --- nothing is lost ---------------------------------------------------------------------------------------------

  # Fibers that mask now this and now that; each exception sent arrives once, in nobody else, and never
  # where it is not allowed.
  def test_at_random_nothing_is_lost_and_nothing_comes_at_the_wrong_time
    heavy
    random = Random.new(47)
    wrong = []
    got = Hash.new { |hash, key| hash[key] = [] }
    fibers = Array.new(4) { |i| spin { masked_worker(i, Random.new(i), got[i], wrong) } }
    snooze # they begin
    sent = Hash.new { |hash, key| hash[key] = [] }
    400.times do |n|
      i = random.rand(4)
      snooze if random.rand(3).zero?
      fibers[i].raise([Boom, Other].sample(random: random), n.to_s)
      sent[i] << n.to_s
    end
    snooze until 4.times.all? { |i| got[i].size >= sent[i].size }
    fibers.each(&:stop)
    fibers.each(&:await)
    assert_equal [], wrong
    4.times { |i| assert_equal sent[i].sort, got[i].sort }
  end

  def masked_worker(_number, random, got, wrong)
    loop { masked_turn(random, [], got, wrong) }
  end

  # Each level rescues what comes through it, so that no two meet.
  def masked_turn(random, masks, got, wrong)
    klass, timing = [Boom, Other].sample(random: random), %i[never immediate on_blocking].sample(random: random)
    Thread.handle_interrupt(klass => timing) do
      inner = masks + [[klass, timing]]
      random.rand(3).times do
        random.rand(2).zero? || inner.size > 3 ? snooze : masked_turn(random, inner, got, wrong)
      rescue Boom, Other => e
        said = inner.reverse.find { |named, _| e.is_a?(named) }
        wrong << [e, inner] if said && said[1] == :never
        got << e.message
      end
    end
  rescue Boom, Other => e
    got << e.message
  end
end
