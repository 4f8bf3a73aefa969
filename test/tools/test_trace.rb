# frozen_string_literal: true

require_relative '../test_helper'
require 'json'
require 'tmpdir'

# Polyphony.trace: who ran when, who waited for what, who woke whom.
class TestTrace < Polyphony::TestCase
  on_every_driver

  def row(trace, tag)
    trace.fibers.find { |fiber| fiber.tag == tag } || flunk("#{tag} is not in #{trace.fibers.map(&:tag)}")
  end

  def slices(trace, tag)
    id = row(trace, tag).id
    trace.slices.select { |slice| slice.fiber == id }
  end

  def states(trace, tag)
    slices(trace, tag).map { |slice| [slice.state, slice.reason] }
  end

  def test_a_fiber_that_waits_in_two_ways
    queue = Polyphony::Queue.new
    trace = Polyphony.trace do
      spin(:waiter) { queue.shift; sleep 0.001 }
      spin(:giver) { snooze; queue << 1 }
      Fiber.current.children.dup.each(&:await)
    end
    waits = states(trace, 'waiter').select { |state, _| state == :waiting }
    assert_equal [[:waiting, 'an item in a queue'], [:waiting, 'time to pass']], waits
    assert_equal :returned, row(trace, 'waiter').ended
    assert_match(/test_trace\.rb:\d+\z/, row(trace, 'waiter').place)
    assert_match(/\Awaiter \(test_trace\.rb:\d+\)\z/, row(trace, 'waiter').name)
  end

  # Each has one state at a time, and no time is without.
  def test_slices_of_a_fiber_follow_each_other
    trace = Polyphony.trace do
      spin(:busy) { 20.times { |n| n.even? ? snooze : sleep(0.0001) } }.await
    end
    own = slices(trace, 'busy').sort_by(&:from)
    own.each_cons(2) { |one, two| assert_equal one.to, two.from }
    assert_equal :runnable, own.first.state
    assert_equal :running, own.last.state
  end

  # By the short way, on which nothing is looked at but the queue.
  def test_every_turn_is_seen
    trace = Polyphony.trace do
      %i[one two].each { |tag| spin(tag) { 50.times { snooze } } }
      Fiber.current.await_all_children
    end
    %w[one two].each do |tag|
      own = slices(trace, tag).sort_by(&:from)
      assert_equal %i[runnable running] * 51, own.map(&:state)
      own.each_cons(2) { |one, two| assert_equal one.to, two.from }
    end
  end

  def test_at_most_one_fiber_of_a_thread_runs
    trace = Polyphony.trace { 5.times.map { |n| spin { 10.times { sleep 0.0001 * n } } }.each(&:await) }
    running = trace.slices.select { |slice| slice.state == :running }.sort_by(&:from)
    refute_empty running
    running.group_by(&:thread).each_value { |own| own.each_cons(2) { |one, two| assert_operator one.to, :<=, two.from } }
  end

  def test_an_arrow_leads_from_who_wakes_to_who_is_woken
    event = Polyphony::Event.new
    trace = Polyphony.trace do
      spin(:sleeper) { event.await }
      spin(:waker) { snooze; event.signal }
      Fiber.current.children.dup.each(&:await)
    end
    arrow = trace.arrows.find { |one| one.waker == row(trace, 'waker').id && one.woken == row(trace, 'sleeper').id }
    assert arrow, 'no arrow'
    assert_operator arrow.arrived, :>=, arrow.at
    assert(slices(trace, 'waker').any? { |slice| slice.state == :running && slice.from <= arrow.at && arrow.at <= slice.to })
    assert(slices(trace, 'sleeper').any? { |slice| slice.state == :running && slice.from == arrow.arrived })
  end

  # Nobody has done it: a timer, or the kernel.
  def test_events_wake_without_an_arrow
    reader, writer = pipe_pair
    trace = Polyphony.trace do
      spin(:reader) { reader.readpartial(1) }
      sleep 0.001
      writer.syswrite('x')
      Fiber.current.children.dup.each(&:await)
    end
    id = row(trace, 'reader').id
    assert_equal [Fiber.current.__timeline.first], trace.arrows.select { |arrow| arrow.woken == id }.map(&:waker) # it was spun
    wait = slices(trace, 'reader').find { |slice| slice.state == :waiting }
    assert_match(/\Aread \(descriptor #{reader.fileno}\)\z/, wait.name)
    assert(trace.slices.any? { |slice| slice.state == :polling })
  end

  def test_all_threads
    trace = Polyphony.trace { Thread.new { spin(:elsewhere) { sleep 0.001 }.await }.join }
    thread = row(trace, 'elsewhere').thread
    main = trace.fibers.find { |fiber| fiber.main && fiber.thread != thread }
    assert_equal 'main thread', trace.threads[main.thread]
    assert_match(/\Athread \(test_trace\.rb:\d+\)\z/, trace.threads[thread])
  end

  def test_a_wake_from_another_thread
    event = Polyphony::Event.new
    trace = Polyphony.trace do
      spin(:sleeper) { event.await }
      snooze
      Thread.new { spin(:far) { event.signal }.await }.join
      Fiber.current.children.dup.each(&:await)
    end
    assert_includes trace.arrows.map { |one| [one.waker, one.woken] }, [row(trace, 'far').id, row(trace, 'sleeper').id]
    refute_equal row(trace, 'far').thread, row(trace, 'sleeper').thread
  end

  def test_who_was_there_before
    fiber = spin(:old) { sleep 0.002 }
    snooze
    trace = Polyphony.trace { fiber.await }
    assert_equal [:waiting, 'something, since before the trace'], states(trace, 'old').first
  end

  def test_a_fiber_that_fails
    trace = Polyphony.trace { spin(:bad) { raise IOError, 'no' }.await rescue nil } # rubocop:disable Style/RescueModifier
    assert_equal :failed, row(trace, 'bad').ended
  end

  def test_enumerators_that_wait
    trace = Polyphony.trace do
      numbers = Enumerator.new { |yielder| 3.times { |n| sleep 0.001; yielder << n } }
      spin(:consumer) { 3.times { numbers.next } }.await
    end
    assert_equal :returned, row(trace, 'consumer').ended
    assert(trace.slices.any? { |slice| slice.reason == 'time to pass' })
  end

  def test_the_last_events_are_kept
    trace = Polyphony.trace(events: 1000) do
      other = spin(:other) { loop { snooze } }
      3000.times { snooze }
      other.stop
      other.await
    end
    assert_equal 1024, trace.capacity
    assert_operator trace.dropped, :>, 4000
    assert_operator trace.slices.size, :<, 5000
    assert_operator trace.known_from, :>, 0
    assert_equal :returned, row(trace, 'other').ended
    data = JSON.parse(trace.to_json)
    assert_equal trace.dropped, data['otherData']['events_dropped']
    assert_equal 1024, data['otherData']['events_kept_at_most']
    assert(data['traceEvents'].any? { |event| event['ph'] == 'i' && event['name'].include?("#{trace.dropped} earlier events were dropped") })
  end

  # However many fibers have come and gone.
  def test_names_take_no_more_room_than_events
    heavy
    trace = Polyphony.trace(events: 1000) { 2000.times { |n| spin(:"one #{n}") { nil }.await } }
    assert_operator trace.fibers.size, :<, 700
    assert_equal 'one 1999', trace.fibers.last.tag
    assert(trace.fibers.last(100).all?(&:tag))
  end

  # Live ones and those that have ended: what a client sent may be a tag.
  def test_tags_may_have_any_character
    odd = "two\nlines\0\e[1m"
    trace = Polyphony.trace do
      spin(odd) { nil }.await
      spin("#{odd} too") { suspend }
      snooze
    end
    [odd, "#{odd} too"].each { |tag| assert_match(/test_trace\.rb:\d+\z/, row(trace, tag).place) }
    assert(trace.fibers.one?(&:main))
    JSON.parse(trace.to_json)
  end

  # Waits for something that only a list of its own knows, which nobody has afterwards.
  def wait_in_a_list(reason)
    list = Polyphony::WaitList.new(nil, reason)
    fiber = spin { list.park }
    snooze
    list.wake
    fiber.await
  end

  # They were strings of who was waited for, and gone with it.
  def test_reasons_outlive_whoever_gave_them
    heavy
    trace = Polyphony.trace do
      200.times { |i| wait_in_a_list("the reason number #{i}, which is rather long") }
      GC.start
      Array.new(5000) { |i| 'x' * (30 + i % 50) }
    end
    assert_equal 200, trace.slices.map(&:reason).uniq.grep(/\Athe reason number \d+, which is rather long\z/).size
  end

  def test_reasons_take_no_more_room_than_is_bearable
    heavy
    reasons = Polyphony.trace { 17_000.times { |i| wait_in_a_list("reason #{i}"); GC.start if i == 16_500 } }.slices.map(&:reason)
    assert_equal [true, true], ['reason 0', 'something'].map { |reason| reasons.include?(reason) }
    assert_equal [true], Polyphony.trace { wait_in_a_list('reason 1') }.slices.map(&:reason).grep('reason 1').map { true }
  end

  def test_the_format_of_perfetto
    trace = Polyphony.trace { spin(:"a \"quoted\" </script>") { sleep 0.001 }.await }
    events = JSON.parse(trace.to_json)['traceEvents']
    named = events.find { |event| event['ph'] == 'M' && event['args']['name'].to_s.start_with?('a "quoted" </script>') }
    own = events.select { |event| event['ph'] == 'X' && event['tid'] == named['tid'] }
    assert_equal ['runnable', 'running', 'time to pass', 'runnable', 'running'], own.map { |event| event['name'] }
    own.each { |event| assert_kind_of Float, event['ts']; assert_operator event['dur'], :>, 0 }
    starts, ends = %w[s f].map { |phase| events.select { |event| event['ph'] == phase } }
    assert_equal starts.map { |event| event['id'] }, ends.map { |event| event['id'] }
    refute_empty starts
  end

  def test_the_page_is_whole_and_lets_nothing_out_of_its_data
    html = Polyphony.trace { spin(:"</script><b>") { nil }.await }.to_html
    assert_equal 2, html.scan('</script>').size
    refute_match(%r{(src|href)\s*=|https?://}, html)
    data = JSON.parse(html[%r{id="data">(.*?)</script>}m, 1])
    assert(data['fibers'].any? { |fiber| fiber['name'].start_with?('</script><b>') })
    assert_equal data['slices']['from'].unpack1('m0').bytesize, 8 * data['slices']['state'].unpack1('m0').bytesize
  end

  def test_one_at_a_time_and_arguments
    Polyphony::Trace.start
    error = assert_raises(ThreadError) { Polyphony::Trace.start }
    assert_match(/made already/, error.message)
    assert_predicate Polyphony::Trace, :on?
    Polyphony::Trace.stop
    refute_predicate Polyphony::Trace, :on?
    assert_match(/no trace/, assert_raises(ThreadError) { Polyphony::Trace.stop }.message)
    assert_match(/got 0/, assert_raises(ArgumentError) { Polyphony::Trace.start(events: 0) }.message)
    assert_match(/needs a block/, assert_raises(ArgumentError) { Polyphony.trace }.message)
  end

  def test_an_error_in_the_block_leaves_a_trace
    Dir.mktmpdir do |folder|
      assert_raises(IOError) { Polyphony.trace("#{folder}/x.json") { raise IOError } }
      assert_equal 1, Dir["#{folder}/x.json"].size
    end
    refute_predicate Polyphony::Trace, :on?
  end

  # --- programs ---------------------------------------------------------------------------------------

  PROGRAM = <<~RUBY
    require 'polyphony'
    spin(:child) { suspend }
    spin(:worker) { sleep 0.001 }.await
    pid = fork { spin(:'of the child') { sleep 0.001 }.await } if ARGV[0] == 'fork'
    Process.wait(pid) if pid
    puts ENV['POLYPHONY_TRACE'].inspect
  RUBY

  def names(path)
    JSON.parse(File.read(path))['traceEvents'].select { |event| event['name'] == 'thread_name' }.map { |event| event['args']['name'] }
  end

  def test_a_whole_program_and_its_end
    Dir.mktmpdir do |folder|
      out, err, status = run_ruby(PROGRAM, env: { 'POLYPHONY_TRACE' => "#{folder}/out.json" })
      assert_predicate status, :success?, err
      assert_equal ['', "nil\n"], [err, out]
      assert_equal 1, names("#{folder}/out.json").grep(/\Aworker/).size
      events = JSON.parse(File.read("#{folder}/out.json"))['traceEvents']
      child = events.find { |event| event['name'] == 'thread_name' && event['args']['name'].start_with?('child') }['tid']
      last = events.reverse.find { |event| event['tid'] == child && event['ph'] == 'X' }
      assert_equal ['running', 'an exception'], [last['name'], last['args']['resumed_with']] # it was stopped at the end
    end
  end

  def test_a_forked_child_writes_a_file_of_its_own
    Dir.mktmpdir do |folder|
      _, err, status = run_ruby(PROGRAM, 'fork', env: { 'POLYPHONY_TRACE' => "#{folder}/out.json" })
      assert_predicate status, :success?, err
      files = Dir["#{folder}/*"].map { |path| File.basename(path) }.sort_by(&:size)
      assert_match(/\Aout\.json out\.\d+\.json\z/, files.join(' '))
      assert_equal 1, names("#{folder}/#{files[1]}").grep(/\Aof the child/).size
      assert_empty names("#{folder}/#{files[1]}").grep(/\Aworker/)
    end
  end

  def test_a_file_that_cannot_be_written_is_told_at_once_and_the_program_runs
    out, err, status = run_ruby(PROGRAM, env: { 'POLYPHONY_TRACE' => '/nowhere/out.json' })
    assert_predicate status, :success?
    assert_match(%r{\Apolyphony: nothing is traced: .*/nowhere/out.json}, err)
    assert_equal "nil\n", out
  end

  # Names of files, programs, threads and reasons may have bytes that are no letters in any encoding.
  def test_names_that_are_no_text_leave_a_trace
    code = <<~'RUBY'
      require 'polyphony'
      $PROGRAM_NAME = "program \xff"
      [true, false].each { |ends| Thread.new { Thread.current.name = "thread \xff"; spin { sleep 0.001 }.await; sleep unless ends }.join(ends ? nil : 0.05) }
      spin("tag \xff".b) { Polyphony::WaitList.new(nil, "reason \xff".b).park }
      eval('spin { suspend }', binding, "file \xff.rb")
      snooze
      Polyphony.tree.to_json
      Polyphony.tree.to_html
    RUBY
    Dir.mktmpdir do |folder|
      %w[json html].each do |kind|
        _, err, status = run_ruby(code, env: { 'POLYPHONY_TRACE' => "#{folder}/out.#{kind}" })
        assert_predicate status, :success?, err
        assert_empty err
        text = File.read("#{folder}/out.#{kind}")
        %w[program thread tag reason file].each { |word| assert_match(/#{word} [?\ufffd]/, text) }
      end
      JSON.parse(File.read("#{folder}/out.json"))
    end
  end

  def test_the_number_of_events_may_be_empty_and_what_makes_no_sense_is_told_by_its_name
    Dir.mktmpdir do |folder|
      run = ->(events) { run_ruby(PROGRAM, env: { 'POLYPHONY_TRACE' => "#{folder}/out.json", 'POLYPHONY_TRACE_EVENTS' => events }) }
      _, err, = run.call('')
      assert_empty err
      assert_equal 1 << 18, JSON.parse(File.read("#{folder}/out.json"))['otherData']['events_kept_at_most']
      %w[many 0 99999999999].each do |events|
        out, err, status = run.call(events)
        assert_predicate status, :success?
        assert_equal "polyphony: nothing is traced: POLYPHONY_TRACE_EVENTS must be a number from 1 to 1073741824, got #{events.inspect}\n", err
        assert_equal "nil\n", out
      end
    end
  end

  def test_the_command
    Dir.mktmpdir do |folder|
      File.write("#{folder}/script.rb", "spin(:worker) { sleep 0.001 }.await\np ARGV\n")
      exe = File.join(POLYPHONY_ROOT, 'exe/polyphony')
      run = ->(*words) { run_ruby('load ARGV.shift', exe, *words, gems: true) }
      out, err, status = run.call('trace', "#{folder}/script.rb", 'one', '-o', "#{folder}/a.html")
      assert_predicate status, :success?, err
      assert_equal %(["one"]\n), out
      assert_match(/worker/, File.read("#{folder}/a.html"))
      out, err, status = run.call('trace', '--events', '2000', '-o', "#{folder}/b.json", "#{folder}/script.rb", '-o', 'mine.html')
      assert_equal ['main #1'], names("#{folder}/b.json").grep_v(/worker|events|at_exit/)
      assert_predicate status, :success?, err
      assert_equal %(["-o", "mine.html"]\n), out
      assert_equal 2048, JSON.parse(File.read("#{folder}/b.json"))['otherData']['events_kept_at_most']
      _, err, status = run.call('trace', '-o', 'x.txt', 'y.rb')
      assert_equal 64, status.exitstatus
      assert_match(/x\.txt: must end in \.html or \.json/, err)
    end
  end
end
