# frozen_string_literal: true

require_relative '../support/remote_case'
require_relative '../support/number_hooks'

# Messages to names: sending, receiving, acknowledging.
class TestRemote < Polyphony::RemoteCase
  on_every_driver
  gems 'polyphony/remote'

  Remote = Polyphony::Remote if defined?(Polyphony::Remote)

  def setup
    super
    @here = remote
    @there = remote
  end

  # --- messages ---

  test_in_both :what_is_sent_is_received_in_order do
    @here.register('printer')
    @there['printer'] << 1 << 'two'
    @there['printer'].send([3, nil, true, 1.5])
    @there['printer'].send({ 'four' => 4 }, timeout: 5)
    @there['printer'].send(five: [:six])
    assert_equal [1, 'two', [3, nil, true, 1.5], { 'four' => 4 }, { 'five' => ['six'] }], Array.new(5) { receive }
    @here.unregister('printer')
  end

  test_in_both :calls_yield do
    assert_writing_yields { @here.register('printer') }
    assert_writing_yields { @there['printer'] << 1 }
    assert_equal 1, receive
    assert_writing_yields { @here.acknowledge }
    assert_equal({ length: 0, receivers: 1 }, while_server_stands { @there['printer'].stats }.slice(:length, :receivers))
    assert_writing_yields { @there['printer'].monitor }
    assert_writing_yields { @there['printer'].unmonitor }
    assert_writing_yields { @here.unregister('printer') }
    spin { sleep 0.01; @there['printer'] << 1 }
    assert_writing_yields { remote.close }
  end

  def test_send_with_more_than_a_message_is_rubys_own
    assert_equal 'printer', @there['printer'].__send__(:name)
    assert_equal true, @there['printer'].send(:==, @there[:printer])
    refute_equal @here['printer'], @there['printer']
    assert_equal 1, [@there['a'], @there['a']].uniq.size
    assert_raises(ArgumentError) { @there['printer'].send }
  end

  def test_what_was_sent_before_anybody_was_there_waits
    5.times { |i| @there['later'] << i }
    assert_equal 5, @there['later'].stats[:length]
    _, got = receiver(@here, 'later')
    eventually { got.size == 5 }
    assert_equal [0, 1, 2, 3, 4], got
  end

  def test_a_message_is_acknowledged_when_the_next_one_is_received
    @here.register('a')
    3.times { |i| @there['a'] << i }
    assert_equal 0, receive
    eventually { @there['a'].stats[:pending] == 3 }
    assert_equal 3, @there['a'].stats[:length]
    assert_equal 1, receive
    eventually_length('a', 2)
    assert_equal 1, @here.acknowledge
    assert_equal 1, @there['a'].stats[:length]
    assert_equal 0, @here.acknowledge
    assert_nil @here.delivery
    assert_equal [2], receive_all_pending
    assert_equal 1, @here.acknowledge
    assert_equal 0, @there['a'].stats[:length]
    assert_nil move_on_after(0.01) { receive }
  end

  def test_every_way_to_take_a_message_acknowledges_those_before
    @here.register('a')
    mailbox = Fiber.current.mailbox
    ways = { receive: -> { receive }, fiber: -> { Fiber.current.receive }, shift: -> { mailbox.shift }, pop: -> { mailbox.pop(timeout: 5) },
             each: -> { mailbox.each { |item| break item } }, now: -> { snooze while mailbox.empty?; mailbox.shift(true) },
             all: -> { snooze while mailbox.empty?; mailbox.shift_all.first }, loop: -> { receive_loop { |item| break item } } }
    ways.each do |name, way|
      @there['a'] << name
      assert_equal name.to_s, way.call
      eventually_length('a', 1)
    end
    assert_raises(ThreadError) { mailbox.shift(true) }
    eventually_length('a', 0)
  end

  def test_messages_of_this_process_are_in_between
    @here.register('a')
    @there['a'] << 1
    eventually { Fiber.current.mailbox.size == 1 }
    Fiber.current << :plain
    assert_equal [1, :plain], [receive, receive]
    assert_nil @here.delivery
    eventually_length('a', 0)
  end

  def test_a_delivery_tells_where_a_message_comes_from
    @here.register('a')
    before = Time.now - 1
    @there['a'] << 1
    receive
    delivery = @here.delivery
    assert_equal ['a', 1, false, 1], [delivery.name, delivery.deliveries, delivery.redelivered?, delivery.message]
    assert_includes before..(Time.now + 1), delivery.sent_at
    assert_match(/\A\d+-\d+\z/, delivery.id)
    assert_match(/\A\h{16}\z/, delivery.sender)
    assert_match(/to a, delivery 1/, delivery.inspect)
  end

  def test_a_fiber_may_have_several_names
    @here.register('a')
    @here.register(:b)
    @there['a'] << 1
    assert_equal 1, receive
    @there['b'] << 2
    assert_equal 2, receive
    assert_equal 'b', @here.delivery.name
    error = assert_raises(ArgumentError) { @here.register('b') }
    assert_match(/registered as b already/, error.message)
    assert_equal [true, false], [@here.unregister('b'), @here.unregister('b')]
  end

  def test_several_fibers_and_processes_share_a_name
    third = remote
    seen = [@here, @here, third].map { |one| receiver(one, 'a', prefetch: 1) { sleep 0.002 }.last }
    Fiber.map(1..60) { |i| @there['a'] << i }
    eventually { seen.sum(&:size) == 60 }
    assert_equal (1..60).to_a, seen.flatten.sort
    assert(seen.all? { |some| some.size > 5 }, seen.map(&:size).inspect)
    assert_equal 2, @there['a'].stats[:receivers]
  end

  def test_several_fibers_share_a_mailbox
    owner = spin { @here.register('a'); suspend }
    seen = []
    workers = Array.new(3) { spin { loop { seen << owner.receive; sleep 0.001 } } }
    30.times { |i| @there['a'] << i }
    eventually { seen.size == 30 }
    assert_equal (0...30).to_a, seen.sort
    eventually { @there['a'].stats[:length].zero? }
    @there['a'] << :last
    eventually { seen.size == 31 }
    workers.each(&:stop)
    assert_equal 'last', Fiber.current.spin { owner.receive }.await
  ensure
    owner&.stop
  end

  def test_many_fibers_send_at_once
    heavy
    _, got = receiver(@here, 'a', prefetch: 50)
    Fiber.map(1..500) { |i| @there['a'] << i }
    eventually { got.size == 500 }
    assert_equal (1..500).to_a, got.sort
    eventually_length('a', 0)
    eventually { @here.stats[:acknowledged] >= 500 } # counted when Redis has answered, after it has done so
    assert_equal [500, 500, 0], @here.stats.values_at(:received, :acknowledged, :redelivered)
    assert_equal 500, @there.stats[:sent]
  end

  # --- what is not acknowledged ---

  def test_a_fiber_that_fails_gives_its_message_to_another
    fiber, = receiver(@here, 'a') { raise 'no paper' }
    fiber.monitor(Fiber.current)
    3.times { |i| @there['a'] << i }
    assert_equal 'no paper', Fiber.current.monitor_mailbox.shift.last.message
    seen = []
    receiver(@there, 'a') { |message, delivery| seen << [message, delivery.redelivered?, delivery.deliveries] }
    eventually { seen.size == 3 }
    assert_equal [[0, true, 2], [1, false, 1], [2, false, 1]], seen.sort
  end

  def test_a_fiber_that_is_stopped_gives_its_message_to_another_at_once
    idle = []
    receiver(@there, 'a', prefetch: 1) { |message, delivery| idle << [message, delivery.redelivered?] }
    first, got = receiver(@here, 'a', prefetch: 1) { suspend }
    i = 0
    eventually { @there['a'] << (i += 1); !got.empty? }
    first.stop
    eventually { idle.size == i }
    assert_includes idle, [got.first, true]
    assert_equal 1, idle.count(&:last)
  end

  def test_closing_gives_everything_back_at_once
    receiver(@here, 'a') { suspend }
    5.times { |i| @there['a'] << i }
    eventually { @there['a'].stats[:pending] == 5 }
    @here.close
    assert_predicate @here, :closed?
    seen = []
    receiver(@there, 'a') { |message, delivery| seen << [message, delivery.redelivered?] }
    eventually { seen.size == 5 }
    assert_equal [[0, true], [1, false], [2, false], [3, false], [4, false]], seen.sort
    assert_raises(Remote::Closed) { @here['a'] << 1 }
    assert_raises(Remote::Closed) { @here.register('b') }
  end

  def test_leaving_the_block_acknowledges_and_an_error_does_not
    @there['a'] << 1 << 2
    options = { path: @server.socket, namespace: NAMESPACE }
    assert_equal 1, (Remote.open(**options) { |one| one.register('a'); receive })
    assert_equal 1, @there['a'].stats[:length]
    assert_raises(IOError) { Remote.open(**options) { |one| one.register('a'); receive; raise IOError } }
    Remote.open(**options) do |one|
      one.register('a')
      assert_equal [2, true], [receive, one.delivery.redelivered?]
    end
    assert_equal 0, @there['a'].stats[:length]
    assert_raises(ArgumentError) { Remote.open(**options) }
  end

  def test_unregistering_gives_back
    @here.register('a')
    3.times { |i| @there['a'] << i }
    receive
    eventually { Fiber.current.mailbox.size == 2 }
    @here.unregister('a')
    assert_empty Fiber.current.mailbox
    assert_equal [3, 3, 0], @there['a'].stats.values_at(:length, :pending, :receivers)
    @here.register('a')
    seen = Array.new(3) { [receive, @here.delivery.redelivered?] }
    assert_equal [[0, true], [1, false], [2, false]], seen.sort
  end

  def test_a_cleared_mailbox_gives_back
    @here.register('a')
    @there['a'] << 1
    eventually { Fiber.current.mailbox.size == 1 }
    Fiber.current.mailbox.clear
    assert_equal 1, receive
  end

  def test_a_message_that_is_never_acknowledged_becomes_a_dead_letter
    @there['a'] << 'poison' << 'honey'
    tries, done = [], []
    3.times do
      fiber = spin do
        @here.register('a', max_deliveries: 3)
        receive_loop { |message| message == 'poison' ? (tries << @here.delivery.deliveries; raise 'ill') : done << message }
      end
      outcome = begin
        fiber.await
      rescue RuntimeError => e
        e.message
      end
      assert_equal 'ill', outcome
    end
    assert_equal [1, 2, 3], tries
    receiver(@here, 'a', max_deliveries: 3) { |message| done << message }
    eventually { @there['a'].stats[:dead] == 1 }
    eventually { done.size == 1 }
    assert_equal ['honey'], done
    dead = @there['a'].dead
    assert_equal [['poison', 3]], dead.map { |letter| [letter.message, letter.deliveries] }
    assert_match(/delivered 3 times, and never acknowledged/, dead.first.reason)
    assert_equal [0, 1], [@there['a'].revive('1-1'), @there['a'].revive(dead.first.id)]
    eventually { done.last == 'poison' }
    assert_empty @there['a'].dead
  end

  def test_what_cannot_be_read_becomes_a_dead_letter
    _, got = receiver(@here, 'a')
    [['j', '{"half'], ['z', 'x'], ['m', "\xC1"], ['j', '[' * 200]].each do |mark, body|
      @admin.call('XADD', key('mailbox:a'), '*', 'k', 'tell', 'f', mark, 'b', body, 's', 'x')
    end
    @admin.call('XADD', key('mailbox:a'), '*', 'strange', 'fields')
    @there['a'] << 'good'
    eventually { @there['a'].stats[:dead] == 5 && got.size == 1 }
    assert_equal ['good'], got
    assert_equal 5, @here.stats[:unreadable]
    assert_equal '{"half', @there['a'].dead.first.message
    eventually_length('a', 0)
  end

  # --- bad input ---

  def test_names_are_checked
    ['', 'a b', "a\n", 'ä', 'a:b', '{a}', 'x' * 201, nil, 1, Object.new].each do |name|
      error = assert_raises(ArgumentError) { @here[name] }
      assert_includes error.message, name.inspect
      assert_raises(ArgumentError) { @here.register(name) }
    end
    assert_raises(ArgumentError) { remote(namespace: 'a:b') }
    assert_equal 'orders/eu-1@x_y.z+', @here['orders/eu-1@x_y.z+'].to_s
    assert_match(/Name printer at .*#{@server.socket}/, @here['printer'].inspect)
    assert @here['printer'].eql?(@here['printer'])
    assert_equal 1, { @here['printer'] => 1 }[@here['printer']]
    refute @here['printer'].eql?(@here['other'])
  end

  def test_settings_are_checked
    [{ timeout: 0 }, { timeout: nil }, { lost_after: -1 }, { format: :marshal }, { max_bytes: 1.5 }, { capacity: -1 }, { policy: :maybe },
     { timeout: Float::NAN }].each { |option| assert_match(/got /, assert_raises(ArgumentError) { remote(**option) }.message) }
    [{ capacity: nil }, { policy: 1 }, { prefetch: 0 }, { max_deliveries: 0 }].each do |option|
      assert_raises(ArgumentError) { @here.register('a', **option) }
    end
    assert_raises(ArgumentError) { @here['a'].ask(1, timeout: 0) }
    assert_raises(ArgumentError) { @here['a'].send(1, timeout: -1) }
  end

  Point = Struct.new(:x)

  def test_what_is_no_plain_data_is_refused_by_name
    endless = []
    endless << endless
    { Object => Object.new, 'Point' => [1, { 'p' => Point.new(1) }], 'NaN' => Float::NAN, '(?i)infinity' => [-Float::INFINITY],
      '\\\\xFF' => "\xFF", 'UTF-8.*format: :msgpack' => "\xFF".b, 'keys must be' => { 1 => 2 }, 'contains itself' => endless,
      'Time' => Time.now, 'Proc' => proc {} }.each do |text, value|
      error = assert_raises(Remote::Unserialisable, text.to_s) { @there['a'] << value }
      assert_match(/#{text}/, error.message)
      assert_operator error.message.size, :<, 400
    end
    error = assert_raises(Remote::Unserialisable) { @there['a'] << [1, { 'p' => Point.new(1) }] }
    assert_match(/at \[1\]\["p"\] of the message/, error.message)
    assert_equal 0, @there['a'].stats[:length]
  end

  def test_a_large_message_is_refused
    small = remote(max_bytes: 1000)
    assert_match(/has 1002 bytes, 1000 are allowed/, assert_raises(Remote::TooLarge) { small['a'] << ('x' * 1000) }.message)
    small['a'] << ('x' * 998)
    large = 'ä' * 400_000
    _, got = receiver(@here, 'a')
    @there['a'] << large
    eventually { got.size == 2 }
    assert_equal large, got.last
  end

  def test_messagepack
    require 'msgpack'
    packed = remote(format: :msgpack)
    _, got = receiver(@here, 'a')
    message = ["\xFF\x00".b, 'ä', 2**64 - 1, { 'a' => [nil, 1.5] }]
    packed['a'] << message << :sym
    eventually { got.size == 2 }
    assert_equal [message, 'sym'], got
    assert_equal [Encoding::BINARY, Encoding::UTF_8], got.first.first(2).map(&:encoding)
    assert_raises(Remote::Unserialisable) { packed['a'] << 2**64 }
    receiver(packed, 'b') { |question| question.reply("\xFF".b) }
    assert_equal "\xFF".b, @there['b'].ask(1)
  rescue LoadError => e
    skip e.message
  end

  # --- surroundings ---

  def test_nothing_is_left_in_redis
    fiber, = receiver(@here, 'a') { |message| message.reply(1) if message.is_a?(Polyphony::Request) }
    @there['a'] << 1
    @there['a'].ask(2)
    @there['a'].monitor
    eventually { @here.stats[:acknowledged] == 2 } # or the second goes back, to whoever receives next
    fiber.stop
    assert_equal [:down, 'a', :normal], receive
    [@here, @there].each(&:close)
    assert_equal ['mailbox:a', 'mailbox:a:about'], keys
    keys.each { |name| assert_operator @admin.call('PTTL', key(name)), :>, 0, name }
    @remotes << remote
    @remotes.last['a'] << 1
    assert_equal(-1, @admin.call('PTTL', key('mailbox:a')))
  end

  def test_the_background_ends_with_the_fiber_that_opened_it
    mine = nil
    spin { mine = remote; mine.register('a') }.await
    assert_predicate mine, :closed?
    assert_equal 0, @there['a'].stats[:receivers]
    assert_equal({ sent: 0, names: {} }, mine.stats.slice(:sent, :names))
    assert_match(/test at .*closed/, mine.inspect)
  end

  def test_threads
    receiver(@here, 'a') { |message| message.reply(message.message + 1) if message.is_a?(Polyphony::Request) }
    answers = Array.new(3) { |i| Thread.new { @there['a'] << i; @there['a'].ask(i) } }.map(&:value)
    assert_equal [1, 2, 3], answers.sort
    thread = Thread.new { @here.register('b'); [receive, receive, @here.acknowledge] }
    @there['b'] << 1 << 2
    assert_equal [1, 2, 1], thread.value
    eventually { @there['b'].stats[:receivers].zero? }
  end

  def test_a_forked_child_opens_its_own
    @here.register('a')
    out, inn = pipe_pair
    pid = Polyphony.fork do
      error = begin
        @here['a'] << 1
      rescue Remote::Closed => e
        e.message
      end
      own = Remote.new(path: @server.socket, namespace: NAMESPACE)
      own['a'] << error
      own.close
      inn << @here.closed?.to_s
      inn.close
      exit!(0)
    end
    inn.close
    assert_match(/belongs to process #{::Process.pid}: open another one/, receive)
    assert_equal 'true', out.read
    ::Process.wait(pid)
    @there['a'] << 2
    assert_equal 2, receive
  end

  # --- cancelling ---

  def test_a_send_that_is_cancelled_anywhere_sends_once_or_not
    heavy
    cancel_everywhere(turns: 500_000) do |run|
      run.scenario { @there['a'] << 1 }
      run.check do |finished|
        @there['a'] << 2
        got = @admin.call('XRANGE', key('mailbox:a'), '-', '+').map { |_, fields| fields[5] }
        assert_equal '2', got.last
        assert_includes finished ? [%w[1 2]] : [%w[1 2], %w[2]], got
        @admin.call('DEL', key('mailbox:a'))
      end
    end
  end

  def test_receiving_that_is_cancelled_anywhere_loses_nothing
    heavy
    i = 0
    cancel_everywhere(turns: 500_000) do |run|
      name = "n#{i += 1}"
      done = []
      @there[name] << 1 << 2
      run.scenario do
        @here.register(name)
        2.times { done << receive; @here.acknowledge }
      end
      run.check do
        seen = []
        fiber, = receiver(@here, name) { |message, delivery| seen << [message, delivery.redelivered?] }
        eventually { @there[name].stats[:length].zero? }
        assert_equal [1, 2], (done + seen.map(&:first)).uniq.sort
        assert_empty(seen.select { |message, again| done.include?(message) && !again })
        fiber.stop
        fiber.await
      end
    end
  end

  # --- contexts (Polyphony::Telemetry) ---

  def with_numbers
    Polyphony::Telemetry.hooks = Polyphony::NumberHooks.new
    yield Polyphony::Telemetry.hooks
  ensure
    Polyphony::Telemetry.hooks = nil
  end

  test_in_both :the_context_of_the_sender_goes_along do
    with_numbers do |hooks|
      got = []
      fiber = spin do
        @here.register('printer')
        receive_loop do |message|
          got << [message.is_a?(Polyphony::Request) ? message.message : message, Thread.current[:number]]
          message.reply(Thread.current[:number]) if message.is_a?(Polyphony::Request)
        end
      end
      hooks.carry(1) { @there['printer'] << 'a' }
      @there['printer'] << 'b'
      hooks.carry(2) { assert_equal 2, @there['printer'].ask('c', timeout: 10) }
      assert_equal [['a', 1], ['b', nil], ['c', 2]], got
      fiber.stop
      fiber.await
    end
  end

  def test_a_context_that_somebody_has_made_up_is_left_out
    with_numbers do
      @here.register('printer')
      ['{', '[1]', '{"number":1}', %({"number":"#{'1' * 9000}"})].each do |made_up|
        @there.instance_variable_get(:@outbox).then { |outbox| outbox.define_singleton_method(:fields) { |*words| [*super(*words), 'h', made_up] } }
        @there['printer'] << 'x'
        assert_equal ['x', nil], [receive, Polyphony::Telemetry.continue { Thread.current[:number] }]
      end
    end
  end
end
