# frozen_string_literal: true

require_relative '../test_helper'
require 'json'

# Polyphony.tree: every fiber, and what it waits for.
class TestTree < Polyphony::TestCase
  on_every_driver

  # @return [Polyphony::Tree::Node] of the fiber with that tag
  def node(tag, tree = Polyphony.tree)
    tree.find { |one| one.tag == tag } || flunk("#{tag} is not in\n#{tree}")
  end

  def test_parents_and_children
    spin(:parent) { spin(:child) { suspend }; suspend }
    2.times { snooze }
    parent = node(:parent)
    assert_equal [:child], parent.children.map(&:tag)
    assert_equal :waiting, parent.state
    assert_match(/test_tree\.rb:\d+\z/, parent.spun_at)
    assert_includes node(:parent).fiber, 'parent'
  end

  # Each spins the next, as who walks along a list may do.
  def test_generations_without_number
    heavy
    left = 1000
    step = lambda do
      left -= 1
      spin(:"step #{left}", &step) if left.positive?
      suspend
    end
    spin(:first, &step)
    1001.times { snooze }
    tree = Polyphony.tree
    data = JSON.parse(JSON.generate(tree)) # in both directions, a hundred levels are the most
    steps = tree.select { |one| one.tag.to_s.match?(/first|step/) }
    assert_equal 1000, steps.size
    by_id = tree.map { |one| [one.id, one] }.to_h
    assert_equal :"step 2", by_id.fetch(node(:"step 1", tree).parent).tag
    assert_equal [], node(:"step 1", tree).children
    assert_nil tree.first.parent
    assert_equal 1000, tree.to_s.scan(/first|step \d+/).size
    assert_match(/step 1"/, tree.to_html)
    assert_equal tree.threads.size, data['threads'].size
  ensure
    Fiber.current.shutdown_all_children
  end

  # Ruby's own inspect goes through all that is inside: while it is in a Hash, another thread that puts something into that gets a RuntimeError,
  # and what is inside may be nobody's business.
  def test_what_is_inside_of_others_is_not_looked_at
    shop = Class.new do
      attr_reader :seats

      def initialize
        @secret = 'password'
        @seats = Polyphony::WaitList.new(self, 'a seat')
      end
    end.new
    spin(:guest) { shop.seats.park }
    Polyphony.blocking { nil }
    snooze
    assert_match(/\Aa seat \(#<#<Class:0x\h+>:0x\h+>\)\z/, node(:guest).waits_for)
    idle = nil
    sleep 0.001 until (idle = Polyphony.tree.find { |one| one.waits_for.to_s.start_with?('a job for a thread pool') })
    assert_match(/\Aa job for a thread pool \(#<Polyphony::Crew:0x\h+>\)\z/, idle.waits_for)
  end

  # Of whatever kind their errors are.
  def test_names_that_raise
    [NotImplementedError, SystemStackError, IOError].each do |error|
      odd = Object.new
      odd.define_singleton_method(:to_s) { raise error, 'no name' }
      odd.define_singleton_method(:inspect) { raise error, 'no name' }
      spin(odd) { Polyphony::WaitList.new(odd, 'anything').park }
    end
    spin(BasicObject.new) { suspend }
    snooze
    text = Polyphony.tree.to_s
    %w[NotImplementedError SystemStackError IOError NoMethodError].each { |name| assert_includes text, "cannot be shown (#{name})" }
    JSON.parse(Polyphony.tree.to_json)
  end

  def test_the_running_one
    main = Polyphony.tree.find(&:main?)
    assert_equal :running, main.state
    assert_nil main.waits_for
  end

  def test_what_is_waited_for
    queue = Polyphony::Queue.new
    2.times { |n| queue << n }
    full = SizedQueue.new(1).tap { |one| one << 1 }
    reader, = pipe_pair
    spin(:sleeper) { sleep 60 }
    spin(:pusher) { full << 2 }
    spin(:reader) { reader.read }
    sleeper = Fiber.current.children.first
    spin(:awaiter) { sleeper.await }
    2.times { snooze }
    assert_match(/\Atime to pass, (5\d|60)\.\d s left\z/, node(:sleeper).waits_for)
    assert_match(/room in a queue \(#<.*SizedQueue.*, 1 item\)/, node(:pusher).waits_for)
    assert_match(/\Aread \(#<IO:fd \d+>\)\z/, node(:reader).waits_for)
    assert_match(/\Aa fiber to end \(#<Fiber sleeper:/, node(:awaiter).waits_for)
  end

  def test_a_sleep_without_an_end_has_no_time_left
    spin(:long) { sleep Float::INFINITY }
    ready = Thread::Queue.new
    thread = Thread.new { spin { ready << true }; sleep }
    ready.shift
    main = nil
    sleep 0.001 until (main = Polyphony.tree.find { |one| one.main? && one.waits_for }) # the thread may not sleep yet
    [node(:long), main].each do |one|
      refute_match(/left/, one.waits_for)
      refute_includes one.wait, :seconds_left
    end
  ensure
    thread&.kill
    thread&.join
  end

  def test_an_empty_queue_and_a_socket_with_its_peer
    queue = Polyphony::Queue.new
    client, server = tcp_pair
    spin(:shifter) { queue.shift }
    spin(:talker) { client.readpartial(1) }
    2.times { snooze }
    assert_match(/an item in a queue \(.*, 0 items\)/, node(:shifter).waits_for)
    assert_match(/\Aread \(#<TCPSocket:fd \d+, .*> to 127\.0\.0\.1:#{server.local_address.ip_port}\)\z/, node(:talker).waits_for)
  end

  def test_the_limit_that_strikes_first
    spin(:limited) { move_on_after(600) { cancel_after(200) { move_on_after(400) { suspend } } } }
    spin(:endless) { cancel_after(Float::INFINITY) { sleep 700 } }
    snooze
    assert_match(/\Abeing scheduled, limit in (1\d\d|200)\.\d s\z/, node(:limited).waits_for)
    assert_operator node(:limited).wait[:limit_left], :<=, 200
    assert_equal %i[reason seconds_left], node(:endless).wait.keys
  end

  def test_a_child_process_and_a_block_in_a_thread
    pid = Process.spawn('sleep', '60')
    release = Thread::Queue.new
    spin(:child) { Process.wait(pid) }
    spin(:blocking) { Polyphony.blocking { release.pop } }
    sleep 0.001 until [node(:child), node(:blocking)].all? { |one| one.waits_for.to_s.match?(/process|block/) }
    assert_equal "a process to end (#{pid})", node(:child).waits_for
    assert_match(/\Aa block in a thread \(#<block .*test_tree\.rb:\d+>\)\z/, node(:blocking).waits_for)
    release << :go
    Process.kill(:KILL, pid)
    Fiber.current.await_all_children
  end

  def test_what_is_no_queue_to_its_users_shows_no_items
    pool = Polyphony::ResourcePool.new(limit: 1) { :it }
    spin(:has) { pool.acquire { suspend } }
    spin(:wants) { pool.acquire { nil } }
    spin(:first) { Fiber.select(spin { suspend }, spin { suspend }) }
    spin(:asks) { Fiber.current.parent.ask(:anybody?) }
    3.times { snooze }
    refute_match(/items?\)/, %i[wants first].map { |tag| node(tag).waits_for }.join)
    assert_match(/\Aan answer \(#<Polyphony::Request :anybody\?/, node(:asks).waits_for)
  end

  def test_a_lock_and_who_has_it
    lock = Polyphony::Mutex.new
    spin(:owner) { lock.synchronize { suspend } }
    snooze
    spin(:other) { lock.lock }
    2.times { snooze }
    assert_match(/\Aa lock/, node(:other).waits_for)
    assert_match(/owner/, node(:other).held_by.first)
  end

  def test_since_when
    spin(:old) { suspend }
    snooze
    sleep 0.02
    assert_operator node(:old).seconds, :>=, 0.01
  end

  def test_how_often_it_has_run
    fiber = spin(:busy) { 5.times { snooze }; suspend }
    snooze until fiber.state == :waiting
    assert_equal fiber.switches, node(:busy).switches
    assert_operator fiber.switches, :>=, 6
  end

  # While the others wait, the same fiber looks for events, and goes on itself.
  def test_turns_of_a_fiber_that_nobody_else_switches_to_are_counted
    ticking = spin(:ticking) { 10.times { sleep 0.001 }; Fiber.current.switches }
    assert_equal 11, ticking.await
  end

  def test_other_threads
    go = Polyphony::Event.new
    ready = Polyphony::Event.new
    thread = Thread.new { spin(:elsewhere) { ready.signal; go.await }.await }
    ready.await
    tree = Polyphony.tree
    assert_operator tree.threads.size, :>=, 2
    assert_equal :elsewhere, node(:elsewhere, tree).tag
    assert_match(/#<Thread/, tree.threads.find { |one| one.any? { |fiber| fiber.tag == :elsewhere } }.thread)
    go.signal
    thread.join
  end

  # Enumerators are fibers as well. Who has resumed one waits in it.
  def test_generators
    numbers = Enumerator.new { |yielder| sleep 60; yielder << 1 }
    spin(:consumer) { numbers.next }
    2.times { snooze }
    assert_match(/time to pass/, node(:consumer).waits_for)
  end

  def test_text
    spin(:parent) { spin(:"first child") { suspend }; spin(:second) { sleep 60 }; suspend }
    2.times { snooze }
    text = Polyphony.tree.to_s
    assert_match(/^  ├─|^  └─/, text)
    assert_match(/└─ #<Fiber parent:\d+ .*test_tree\.rb:\d+> waits for being scheduled/, text)
    assert_match(/   ├─ #<Fiber first child:/, text)
    assert_match(/   └─ #<Fiber second:.*waits for time to pass, (5\d|60)\.\d s left · 0\.0 s · 1 switch/, text)
  end

  def test_json
    spin(:sleeper) { sleep 60 }
    snooze
    data = JSON.parse(JSON.generate(Polyphony.tree.to_h))
    fibers = data['threads'].flat_map { |thread| thread['fibers'] }
    child = fibers.flat_map { |fiber| fiber['children'] }.find { |fiber| fiber['tag'] == 'sleeper' }
    assert_equal 'waiting', child['state']
    assert_match(/time to pass/, child['waits_for'])
    assert_equal JSON.parse(Polyphony.tree.to_json).keys, data.keys
  end

  def test_the_parts_of_a_wait
    queue = Polyphony::Queue.new
    client, server = tcp_pair
    sleeper = spin(:sleeper) { sleep 60 }
    spin(:awaiter) { sleeper.await }
    spin(:shifter) { queue.shift }
    spin(:talker) { client.readpartial(1) }
    3.times { snooze }
    assert_equal({ reason: 'a fiber to end', fiber: node(:sleeper).id }, node(:awaiter).wait.slice(:reason, :fiber))
    assert_equal({ reason: 'an item in a queue', length: 0 }, node(:shifter).wait.slice(:reason, :length))
    assert_equal({ reason: 'read', descriptor: client.fileno, peer: "127.0.0.1:#{server.local_address.ip_port}" },
                 node(:talker).wait.slice(:reason, :descriptor, :peer))
    assert_in_delta 60, node(:sleeper).wait[:seconds_left], 30
    assert_nil Polyphony.tree.find(&:main?).wait
  end

  # Whether fibers have waited there or not.
  def test_threads_without_fibers
    go = Thread::Queue.new
    begun = false
    line = __LINE__ + 1
    thread = Thread.new { begun = true; nil while go.empty? }
    thread.name = 'computes'
    Thread.pass until begun
    seen = Polyphony.tree.threads.find { |one| one.name == 'computes' }
    assert_empty seen.fibers
    assert_match(/test_tree\.rb:#{line}:/, seen.at)
    go << 1
    thread.join
  end

  def test_a_page
    spin(:"</script>") { sleep 60 }
    snooze
    html = Polyphony.tree.to_html
    assert_equal 2, html.scan('</script>').size
    refute_match(%r{(src|href)\s*=|https?://}, html)
    assert_equal Process.pid, JSON.parse(html[%r{id="data">(.*?)</script>}m, 1])['pid']
  end

  # A picture, not the thing: it keeps no fiber alive, and stays as it is.
  def test_it_stays_as_it_is
    fiber = spin(:short) { suspend }
    snooze
    tree = Polyphony.tree
    fiber.stop
    fiber.await
    assert_equal :waiting, node(:short, tree).state
    refute(Polyphony.tree.any? { |one| one.tag == :short })
  end

  def test_whatever_a_tag_is_the_picture_can_be_had
    odd = Class.new { %i[to_s inspect].each { |name| define_method(name) { raise IOError, 'no' } } }
    tags = ["\xff\xfe b".b, "latin \xe9".dup.force_encoding('ISO-8859-1'), 'wide'.encode('UTF-16LE'), "br\xffken", 'grüße', odd.new, BasicObject.new, "two\nlines"]
    tags.each { |tag| spin(tag) { Polyphony::Queue.new.shift } }
    2.times { snooze }
    tree = Polyphony.tree
    assert_predicate tree.to_s, :valid_encoding?
    shown = JSON.parse(tree.to_json)['threads'].flat_map { |thread| thread['fibers'] }.flat_map { |root| root['children'] }.map { |one| one['tag'] }
    assert_equal ['?? b', 'latin é', 'wide', 'br?ken', 'grüße', nil, nil, "two\nlines"], shown
    assert_includes tree.to_html, 'grüße'
  end

  def test_a_subject_that_cannot_be_shown
    odd = Class.new(Polyphony::Queue) { def inspect = raise('no') }.new
    spin(:odd) { odd.shift }
    2.times { snooze }
    assert_match(/cannot be shown/, node(:odd).waits_for)
  end
end
