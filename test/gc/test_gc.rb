# frozen_string_literal: true

require_relative '../test_helper'
require 'objspace'
require 'weakref'

# The garbage collector at its worst: at every allocation, moving everything while fibers wait, and
# collecting what nobody needs any more.
class TestGC < Polyphony::TestCase
  on_every_driver
  time_limit 120

  class Boom < StandardError; end

  def under_stress
    GC.stress = true
    yield
  ensure
    GC.stress = false
  end

  def compacting?
    GC.respond_to?(:compact) && GC.method(:compact).owner && begin
      GC.compact
      true
    rescue NotImplementedError
      false
    end
  end

  def compact_all
    skip 'this Ruby does not compact' unless compacting?
    GC.compact
  end

  def move_everything
    options = RUBY_VERSION < '3.2' ? { double_heap: true } : { expand_heap: true }
    GC.verify_compaction_references(toward: :empty, **options)
  end

  # --- a collection at every allocation ------------------------------------------------------------------

  def scenarios
    {
      spin_and_await: -> { assert_equal 3, spin { spin { snooze; 1 }.await + 2 }.await },
      errors: -> { assert_raises(Boom) { spin { spin { raise Boom }; sleep }.await } },
      stopping: -> { assert_equal :v, spin { sleep }.tap { |f| snooze; f.stop(:v) }.await },
      children: lambda {
        spin { 2.times { spin { sleep } }; snooze }.await
      },
      queue: lambda {
        queue = Polyphony::Queue.new(1)
        spin { 3.times { |i| queue << "item #{i}" } }
        assert_equal ['item 0', 'item 1', 'item 2'], Array.new(3) { queue.shift }
      },
      event: lambda {
        event = Polyphony::Event.new
        spin { event.signal('signal') }
        assert_equal 'signal', event.await
      },
      waitlist: lambda {
        list = Polyphony::WaitList.new
        fiber = spin { [list.park, list.park(0.001)] }
        snooze
        list.wake('woken')
        assert_equal ['woken', false], fiber.await
      },
      mailbox: -> { assert_equal 'mail', spin { receive }.tap { |f| f << +'mail' }.await },
      queue_policies: lambda {
        queue = Polyphony::Queue.new(2, policy: :drop_oldest)
        4.times { |i| queue << "item #{i}" }
        queue.cap(2, policy: :drop_newest) << 'dropped'
        assert_equal [['item 2', 'item 3'], 3], [queue.shift_all, queue.dropped]
        assert_raises(Polyphony::Queue::Full) { queue.cap(1, policy: :error) << 1 << 2 }
      },
      ask: lambda {
        fiber = spin { request = receive; request.reply(request.message * 2); sleep }
        assert_equal 'twotwo', fiber.ask(+'two', timeout: 100)
        fiber.mailbox.cap(1, policy: :drop_newest) << :full
        assert_raises(Polyphony::Request::Unanswered) { fiber.ask(+'never') }
        fiber.stop
        fiber.await
        assert_equal 2, (fiber << 'late').mailbox.dropped
      },
      timeouts: lambda {
        assert_equal :late, move_on_after(0.0005, with_value: :late) { cancel_after(1) { sleep } }
        assert_raises(Boom) { cancel_after(0.0005, with_exception: [Boom, +'message']) { sleep } }
      },
      timers: -> { n = 0; every(0.0002) { break if (n += 1) == 3 } },
      pipe: lambda {
        reader, writer = IO.pipe
        spin { Polyphony.backend_write(writer, 'one', 'two'); writer.close }
        assert_equal 'onetwo', Polyphony.backend_read(reader, +'', nil, false, 0)
        reader.close
      },
      cancelled_read: lambda {
        reader, writer = IO.pipe
        move_on_after(0.0005) { Polyphony.backend_read(reader, +'', 100, false, 0) }
        Polyphony.backend_write(writer, 'kept')
        assert_equal 'kept', Polyphony.backend_read(reader, +'', 100, false, 0)
        [reader, writer].each(&:close)
      },
      files: -> { assert_operator Polyphony.backend_stat(__FILE__)[:size], :>, 100 },
      generator: -> { assert_equal 1, Enumerator.new { |y| sleep 0.0001; y << 1 }.next },
      thread: -> { assert_equal :t, Thread.new { spin { snooze; :t }.await }.value },
      interjection: lambda {
        fiber = spin { Polyphony.backend_wait_event(true); :waited }
        snooze
        fiber.interject { :nothing }
        assert_equal :waited, fiber.await
      }
    }
  end

  %i[spin_and_await errors stopping children queue event waitlist mailbox queue_policies ask timeouts
     timers pipe cancelled_read files generator thread interjection].each do |name|
    define_method("test_#{name}_under_gc_stress") do
      scenario = scenarios.fetch(name)
      scenario.call
      under_stress { scenario.call }
    end
  end

  # --- everything moves -------------------------------------------------------------------------------------

  def test_objects_move_while_fibers_wait_with_lent_buffers
    heavy
    pairs = Array.new(5) { pipe_pair }
    buffers = Array.new(5) { |i| String.new("prefix #{i} ", capacity: 20) }
    fibers = pairs.zip(buffers).map do |(reader, _), buffer|
      spin { Polyphony.backend_read(reader, buffer, 100, false, -1) }
    end
    snooze
    3.times { Array.new(10_000) { Object.new }; compact_all; snooze }
    pairs.each_with_index { |(_, writer), i| Polyphony.backend_write(writer, "bytes #{i}" * 3) }
    fibers.each_with_index do |fiber, i|
      assert_same buffers[i], fiber.await
      assert_equal "prefix #{i} #{"bytes #{i}" * 3}", buffers[i]
    end
  end

  # Short strings live in their object: the kernel would write to where it was.
  def test_a_short_string_that_is_lent_does_not_move
    heavy
    reader, writer = pipe_pair
    20.times do |i|
      trash = Array.new(1000) { +'x' }
      buffer = +''
      trash.clear
      fiber = spin { Polyphony.backend_read(reader, buffer, 8, false, 0) }
      snooze
      compact_all
      Polyphony.backend_write(writer, format('%08d', i))
      assert_equal format('%08d', i), fiber.await
    end
  end

  def test_messages_and_the_fibers_they_are_for_move
    boxes = Array.new(20) { |i| spin("fiber #{i}") { sleep }.mailbox }
    boxes.each_with_index { |box, i| box.cap(3, policy: :drop_oldest); 5.times { |j| box << "#{i} #{j}" } }
    2.times { Array.new(10_000) { Object.new }; compact_all }
    boxes.each_with_index do |box, i|
      assert_equal "fiber #{i}", box.owner.tag
      assert_same box, box.owner.mailbox
      assert_equal ["#{i} 2", "#{i} 3", "#{i} 4"], box.shift_all
    end
    Fiber.current.shutdown_all_children
    assert_equal([3] * 20, boxes.map { |box| box << :late; box.dropped })
  end

  def test_objects_move_while_a_write_waits
    reader, writer = pipe_pair
    fiber = spin { Polyphony.backend_write(writer, *Array.new(100) { |i| i.to_s.rjust(2000, '.') }) }
    got = +''
    while got.bytesize < 200_000
      got << Polyphony.backend_read(reader, +'', 30_000, false, 0)
      compact_all if got.bytesize < 100_000
    end
    assert_equal 200_000, fiber.await
    assert got == Array.new(100) { |i| i.to_s.rjust(2000, '.') }.join
  end

  def test_objects_move_between_all_other_kinds_of_waits
    queue = Polyphony::Queue.new
    event = Polyphony::Event.new
    list = Polyphony::WaitList.new
    fibers = [
      spin(+'tag') { queue.shift },
      spin { event.await },
      spin { list.park },
      spin { sleep 0.02; 'slept' },
      spin { receive },
      spin { move_on_after(0.01, with_value: +'moved on') { |scope| sleep; scope } },
      spin { spin { Polyphony.backend_wait_event(true) }.await },
      spin { Polyphony.backend_wait_event(true) }
    ]
    2.times { snooze }
    3.times { compact_all; snooze }
    queue << +'item'
    event.signal(+'signal')
    list.wake(+'woken')
    fibers[4] << +'message'
    fibers[6].children.first.schedule(+'from the child')
    fibers[7].schedule(+'value')
    compact_all # values are under way in the run queue
    assert_equal ['item', 'signal', 'woken', 'slept', 'message', 'moved on', 'from the child', 'value'],
                 Fiber.await(fibers)
    assert_equal 'tag', fibers[0].tag
  end

  # Short ones lie within objects: many, so that some move whatever the heap looks like.
  def test_reasons_to_wait_stay_what_they_are
    skip 'this Ruby does not compact' unless compacting?
    reasons = Array.new(400) { |n| "wait #{n}" }
    fibers = reasons.each_with_index.to_h do |reason, n|
      wait = n.even? ? Polyphony::WaitList.new(nil, reason).method(:park) : Polyphony::Queue.new.__serve(nil, reason).method(:shift)
      [spin { wait.call }, reason]
    end
    snooze until fibers.each_key.all?(&:__wait_reason)
    move_everything
    Array.new(100_000) { "\xFF" * 20 } # over what they left
    assert_equal({}, fibers.reject { |fiber, reason| fiber.__wait_reason == reason })
  end

  def test_exceptions_under_way_move_too
    fiber = spin do
      caught = []
      3.times do
        Polyphony.backend_wait_event(true)
      rescue Boom => e
        caught << e.message
      end
      caught
    end
    snooze
    3.times { |i| fiber.schedule(Boom.new("boom #{i}")) }
    compact_all
    snooze
    compact_all
    assert_equal ['boom 0', 'boom 1', 'boom 2'], fiber.await
  end

  def test_references_are_verified_while_everything_waits
    skip 'this Ruby cannot verify references' unless GC.respond_to?(:verify_compaction_references) && compacting?
    reader, writer = pipe_pair
    queue = Polyphony::Queue.new
    queue << +'item'
    waiting = Array.new(3) { spin { cancel_after(100) { sleep } } }
    reading = spin { Polyphony.backend_read(reader, +'', 10, false, 0) }
    generator = Enumerator.new { |y| sleep 0.001; y << +'first'; sleep; y << 2 }
    generator.next
    runnable = spin { |value| value }
    runnable.schedule(+'value')
    move_everything
    Polyphony.backend_write(writer, 'bytes')
    assert_equal %w[bytes value item], [reading.await, runnable.await, queue.shift]
    waiting.each(&:stop)
    Fiber.await(waiting)
  end

  def test_auto_compaction
    skip 'this Ruby does not compact' unless compacting? && GC.respond_to?(:auto_compact=)
    before = GC.auto_compact
    Polyphony::GCPressure.move_objects_from_now_on
    reader, writer = pipe_pair
    fiber = spin { Array.new(20) { Polyphony.backend_read(reader, +'', 10, false, 0) } }
    20.times do |i|
      GC.start
      Polyphony.backend_write(writer, "#{i}".ljust(10))
      snooze
    end
    assert_equal Array.new(20, &:to_s), fiber.await.map(&:strip)
  ensure
    GC.auto_compact = before unless before.nil?
  end

  # --- sizes ---------------------------------------------------------------------------------------------------

  def test_every_type_tells_its_size
    slot = ObjectSpace.memsize_of(Object.new)
    sizes = spin do # whose stack goes with the pipe
      scope = nil
      move_on_after(1) { |s| scope = s }
      [Polyphony::Queue.new, Polyphony::Event.new, Polyphony::WaitList.new, Polyphony.pipe, scope,
       Thread.current.backend].to_h { |object| [object.class, ObjectSpace.memsize_of(object)] }
    end.await
    sizes.each { |type, size| assert_operator size, :>, slot, type.to_s }
  end

  def test_a_queue_grows_with_its_items_and_a_backend_with_its_run_queue
    heavy
    queue = Polyphony::Queue.new
    empty = ObjectSpace.memsize_of(queue)
    1000.times { |i| queue << i }
    assert_operator ObjectSpace.memsize_of(queue), :>=, empty + 8000
    before = ObjectSpace.memsize_of(Thread.current.backend)
    5000.times { spin { nil } }
    assert_operator ObjectSpace.memsize_of(Thread.current.backend), :>=, before
    Fiber.current.await_all_children
  end

  # --- what nobody needs -----------------------------------------------------------------------------------------

  # Makes +count+ objects in a fiber of its own, whose stack is gone afterwards, and tells how many
  # of them are left after a collection.
  def left_of(count)
    ids = spin { Array.new(count) { yield.__id__ } }.await
    3.times { spin { Array.new(100) { +'' } }.await } # others use the stack meanwhile
    GC.start
    ids.count { |id| alive?(id) }
  end

  def alive?(id)
    ObjectSpace._id2ref(id)
    true
  rescue RangeError
    false
  end

  # Of 500, or 300. The last ones may still be remembered for quick look-up. Stacks are scanned as they
  # are, and a reused one may hold the address of a fiber that is gone: chance keeps some of them.
  FEW = 250

  def test_dead_fibers_are_collected
    heavy
    assert_operator left_of(500) { spin { 1 }.tap(&:await) }, :<, FEW
  end

  def test_failed_fibers_are_collected
    heavy
    left = left_of(500) do
      spin { raise Boom }.tap do |fiber|
        fiber.await
      rescue Boom
        nil
      end
    end
    assert_operator left, :<, FEW
  end

  def test_abandoned_raw_fibers_are_collected
    heavy
    left = left_of(500) { Fiber.new { snooze; Fiber.yield }.tap(&:resume) }
    assert_operator left, :<, FEW
  end

  def test_abandoned_generators_that_have_waited_are_collected
    heavy
    left = left_of(300) { Enumerator.new { |y| snooze; y << 1; y << 2 }.tap(&:next) }
    assert_operator left, :<, FEW
  end

  # Between being found and being swept they must not be touched.
  def test_a_deadlock_is_reported_while_abandoned_fibers_wait_to_be_swept
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      abandon = -> { 1000.times { Fiber.new { snooze; Fiber.yield }.resume }; nil }
      5.times do
        spin(&abandon).await
        GC.start(full_mark: true, immediate_mark: true, immediate_sweep: false)
        spin { Polyphony::Event.new.await }.await
      rescue Polyphony::Deadlock => e
        GC.start
        puts e.message.lines.first
      end
    RUBY
    assert status.success?, err
    assert_equal 5, out.lines.size
  end

  def test_abandoned_generators_in_a_shield_or_in_a_limit_that_is_over_are_collected
    heavy
    left = left_of(500) { Fiber.new { shield { snooze; Fiber.yield } }.tap(&:resume) }
    assert_operator left, :<, FEW
    left = left_of(500) { Fiber.new { move_on_after(0) { Fiber.yield } }.tap { |raw| raw.resume; snooze } }
    assert_operator left, :<, FEW
  end

  def test_queues_nobody_refers_to_are_collected
    heavy
    assert_operator left_of(500) { Polyphony::Queue.new.tap { |q| q << q } }, :<, FEW
  end

  def test_fibers_that_wait_are_not_collected
    heavy
    log = []
    reader, writer = pipe_pair
    spin { spin { sleep 0.01; log << :slept }.detach; nil }.await
    spin { spin { log << Polyphony.backend_read(reader, +'', 5, false, 0) }.detach; nil }.await
    snooze
    5.times { GC.start; spin { Array.new(1000) { +'' } }.await }
    Polyphony.backend_write(writer, 'bytes')
    sleep 0.02
    assert_equal ['bytes', :slept], log.sort_by(&:to_s)
  end

  def test_raw_fibers_that_wait_are_not_collected
    heavy
    log = []
    reader, writer = pipe_pair
    spin do
      spin { Fiber.new { sleep 0.005; log << :slept }.resume }
      spin { Fiber.new { log << Polyphony.backend_read(reader, +'', 5, false, 0) }.resume }
      sleep 0.02
      sleep 0.001 until log.size == 2
    end.tap do
      snooze
      snooze
      5.times { GC.start; Array.new(1000) { +'' } }
      Polyphony.backend_write(writer, 'bytes')
    end.await
    assert_equal ['bytes', :slept], log.sort_by(&:to_s)
  end

  def test_memory_does_not_grow_with_the_number_of_operations
    heavy
    skip 'no /proc/self/statm' unless File.exist?('/proc/self/statm')
    skip 'AddressSanitizer keeps freed memory' if ENV['LD_PRELOAD'].to_s.include?('asan')
    reader, writer = pipe_pair
    round = lambda do
      2_000.times do
        Polyphony.backend_write(writer, 'x')
        Polyphony.backend_read(reader, +'', 1, false, 0)
        move_on_after(0) { sleep }
      end
      GC.start
      File.read('/proc/self/statm').split[1].to_i * 4
    end
    3.times { round.call }
    before = round.call
    5.times { round.call }
    assert_operator round.call, :<, before + 8_000, 'kilobytes'
  end
end
