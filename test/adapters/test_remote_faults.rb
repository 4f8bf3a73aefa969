# frozen_string_literal: true

require_relative '../support/certificates'
require_relative '../support/remote_case'

# Processes that are killed, connections that break, servers that are away.
class TestRemoteFaults < Polyphony::RemoteCase
  on_every_driver
  gems 'polyphony/remote'

  Remote = Polyphony::Remote if defined?(Polyphony::Remote)

  # A Redis that still knows everything after a crash.
  class DurableServer < Polyphony::RedisServer
    private

    def command
      [*super, '--appendonly', 'yes', '--appendfsync', 'always']
    end
  end

  # A Redis that wants to know who is there, and lets nobody listen.
  class GuardedServer < Polyphony::RedisServer
    attr_reader :tls_port, :authority

    private

    def prepare
      super
      @tls_port = free_port
      signer = Polyphony::Certificates.certificate('authority', authority: true)
      @authority, = Polyphony::Certificates.write_pair(folder, 'authority', signer)
      @pair = Polyphony::Certificates.write_pair(folder, 'server', Polyphony::Certificates.certificate('localhost', '127.0.0.1', from: signer))
    end

    def command
      [*super, '--requirepass', 'open sesame', '--tls-port', @tls_port.to_s, '--tls-cert-file', @pair.first, '--tls-key-file', @pair.last,
       '--tls-ca-cert-file', @authority, '--tls-auth-clients', 'no']
    end
  end

  def with_server(kind)
    server = kind.start
    shared, @server = @server, server
    @remotes.clear
    yield server
  ensure
    @remotes.each(&:close)
    @remotes.clear
    @server = shared if shared
    server&.remove
  end

  # Waits long: other processes have to be started, or to be missed.
  def at_last(message, limit = patient(40))
    ends = clock + limit
    until yield
      flunk "waited #{limit} s #{message}\n#{complaints}" if clock > ends
      sleep 0.02
    end
  end

  # --- processes that are killed ---

  CONSUMER = <<~RUBY
    remote.register('jobs', prefetch: 16, max_deliveries: 1000)
    redis.call('RPUSH', 'ready', Process.pid)
    receive_loop do |job|
      redis.call('RPUSH', 'log', "\#{job} \#{remote.delivery.redelivered? ? 1 : 0}")
    end
  RUBY

  def logged
    @admin.call('LRANGE', 'log', 0, -1).map { |line| line.split.map { |number| Integer(number) } }
  end

  def assert_all_once_or_marked(expected)
    by_job = logged.group_by(&:first)
    assert_equal expected, by_job.keys.sort
    unmarked = by_job.select { |_, lines| lines.count { |_, again| again.zero? } > 1 }
    assert_empty unmarked, 'received twice, and not marked'
    by_job.count { |_, lines| lines.size > 1 }
  end

  def test_none_of_ten_thousand_messages_is_lost_when_receivers_are_killed
    heavy
    count = 10_000
    consumers = Array.new(2) { process(CONSUMER) }
    2.times { await_word('ready') }
    one = remote(lost_after: 1)
    senders = spin { Fiber.map(0...20) { |i| (i...count).step(20) { |job| one['jobs'] << job } } }
    at_last('for a fifth of them') { @admin.call('LLEN', 'log') > count / 5 }
    kill(consumers.shift)
    consumers << process(CONSUMER)
    at_last('for half of them') { @admin.call('LLEN', 'log') > count / 2 }
    kill(consumers.shift)
    senders.await
    at_last('for all of them') { one['jobs'].stats[:length].zero? }
    duplicates = assert_all_once_or_marked((0...count).to_a)
    assert_operator duplicates, :<=, 2 * 17 # at most what two receivers had in hand, or had fetched
  end

  def test_a_sender_that_is_killed_has_sent_each_once
    @here = remote
    got = []
    receiver(@here, 'jobs') { |job| got << job }
    sender = process('(0..).each { |i| remote["jobs"] << i }')
    at_last('for messages') { got.size > 500 }
    kill(sender)
    eventually_length('jobs', 0)
    eventually { got.size == @here.stats[:received] }
    assert_equal (0...got.size).to_a, got.uniq
  end

  def test_a_monitor_hears_of_a_killed_process
    one = remote(lost_after: 1)
    program = process('remote.register("victim"); redis.call("RPUSH", "ready", 1); receive_loop { }')
    quiet = process('remote.register("quiet"); redis.call("RPUSH", "ready", 1); receive')
    2.times { await_word('ready') }
    %w[victim quiet].each { |name| one[name].monitor }
    kill(program)
    one['quiet'] << 'go home'
    assert_equal [[:down, 'quiet', :closed], [:down, 'victim', :lost]], Array.new(2) { cancel_after(patient(20)) { receive } }.sort_by(&:to_s)
    finish(quiet)
    assert_equal 0, one['victim'].stats[:receivers]
  end

  def test_a_program_that_ends_gives_back_what_it_has
    program = process('remote.register("jobs"); receive; redis.call("RPUSH", "ready", 1); sleep')
    one = remote
    3.times { |i| one['jobs'] << i }
    await_word('ready')
    ::Process.kill(:TERM, program.pid)
    seen = []
    receiver(one, 'jobs') { |job, delivery| seen << [job, delivery.redelivered?] }
    at_last('for three') { seen.size == 3 }
    assert_equal [[0, true], [1, false], [2, false]], seen.sort
    program.finish(self, patient(10))
    @started.clear
  end

  # A message that kills its receiver takes its neighbours along, but not to the dead.
  def test_a_message_that_kills_becomes_a_dead_letter_and_its_neighbours_do_not
    one = remote(lost_after: 0.5)
    5.times { |i| one['jobs'] << i }
    rounds = 0
    until one['jobs'].stats[:dead] == 1
      assert_operator rounds += 1, :<=, 6
      pid = Polyphony.fork { receive_until_killed }
      at_last('for its end') { ::Process.wait(pid, ::Process::WNOHANG) || one['jobs'].stats[:dead] == 1 }
    end
    at_last('for the others') { @admin.call('LRANGE', 'done', 0, -1).uniq.size == 4 }
    assert_equal [[1, 4]], (one['jobs'].dead.map { |letter| [letter.message, letter.deliveries] })
  ensure
    ::Process.kill(:KILL, pid)
    ::Process.wait(pid)
  end

  def receive_until_killed
    own = Remote.new(path: @server.socket, namespace: NAMESPACE, lost_after: 0.5)
    redis = RedisClient.new(path: @server.socket)
    own.register('jobs', max_deliveries: 4)
    receive_loop { |job| job == 1 ? ::Process.kill(:KILL, ::Process.pid) : redis.call('RPUSH', 'done', job) }
  end

  # --- processes that are silent for too long ---

  def test_one_that_was_given_up_comes_back
    slow = remote(lost_after: 60)
    _, got = receiver(slow, 'jobs') { suspend }
    sender = remote
    3.times { |i| sender['jobs'] << i }
    eventually { got.size == 1 && slow.stats[:names]['jobs'] == { receivers: 1, waiting: 2, in_hand: 1 } }
    @admin.call('DEL', key("process:#{slow.__link.process}"))
    quick = remote(lost_after: 0.3)
    seen = []
    receiver(quick, 'jobs') { |job, delivery| seen << [job, delivery.redelivered?] }
    eventually { seen.size == 3 }
    assert_equal [[0, true], [1, true], [2, true]], seen.sort
    slow.__rejoin(reading: true)
    assert_equal({ receivers: 1, waiting: 0, in_hand: 1 }, slow.stats[:names]['jobs'])
    assert_equal 2, sender['jobs'].stats[:receivers]
  end

  # --- connections that break ---

  def break_connections
    @admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  end

  def test_nothing_is_lost_or_doubled_when_connections_break
    heavy
    here, there = remote, remote
    seen = []
    receiver(here, 'jobs') { |job, delivery| seen << [job, delivery.redelivered?] }
    breaking = spin { 10.times { |i| sleep 0.001 until seen.size > i * 50; break_connections } }
    Fiber.map(0...10) { |i| (i...1000).step(10) { |job| there['jobs'] << job } }
    breaking.await
    eventually_length('jobs', 0)
    assert_equal (0...1000).to_a, seen.map(&:first).uniq.sort
    assert_empty(seen.group_by(&:first).select { |_, all| all.count { |_, again| !again } > 1 })
    assert_operator here.stats[:reconnects], :>, 0
  end

  def test_an_answer_is_found_after_the_connection_broke
    here, there = remote, remote
    receiver(here, 'clerk') { |question| break_connections; question.reply(1) }
    20.times { assert_equal 1, there['clerk'].ask(0) }
  end

  def test_a_message_that_was_handed_out_in_vain_is_found
    here = remote(lost_after: 0.3)
    _, got = receiver(here, 'jobs')
    link = here.__link
    @admin.call('XADD', key('mailbox:jobs'), '*', 'k', 'tell', 'f', 'j', 'b', '1', 's', 'x')
    eventually { got.size == 1 }
    eventually_length('jobs', 0)
    @admin.multi do |all|
      all.call('XADD', key('mailbox:jobs'), '*', 'k', 'tell', 'f', 'j', 'b', '2', 's', 'x')
      all.call('XREADGROUP', 'GROUP', 'polyphony', link.process, 'STREAMS', key('mailbox:jobs'), '>')
    end
    eventually { got == [1, 2] }
  end

  def test_redis_that_has_forgotten_everything
    here, there = remote(lost_after: 1), remote(lost_after: 1)
    _, got = receiver(here, 'jobs')
    there['jobs'] << 1
    there['jobs'].monitor
    eventually { got == [1] }
    @admin.call('FLUSHALL')
    @admin.call('SCRIPT', 'FLUSH')
    there['jobs'] << 2
    eventually { got == [1, 2] }
    eventually { there['jobs'].stats[:receivers] == 1 }
    eventually { @admin.call('SCARD', key('mailbox:jobs:monitors')) == 1 }
    here.close
    assert_equal [:down, 'jobs', :closed], receive
  end

  # --- servers that are away ---

  def test_a_server_that_stands_still
    one = remote(timeout: 0.3)
    one['a'] << 1
    @server.frozen do
      { -> { one['a'] << 2 } => 0.3, -> { one['a'].send(3, timeout: 0.05) } => 0.05, -> { one.register('b') } => 0.3 }.each do |call, limit|
        error = assert_raises(Remote::Unreachable, &call)
        assert_includes error.message, "#{@server.socket} could not be used within #{limit} s"
      end
      assert_raises(Polyphony::Request::Timeout) { one['a'].ask(1, timeout: 0.05) }
    end
    one['a'] << 4
    _, got = receiver(one, 'a')
    eventually { got.include?(4) }
    assert_equal got.uniq, got
  end

  def test_no_server_at_all
    path = File.join(@server.folder, 'nothing')
    error = assert_raises(Remote::Unreachable) { Remote.new(path: path, timeout: 0.1) }
    assert_match(/#{path} could not be used within 0.1 s: RedisClient::CannotConnectError/, error.message)
    assert_kind_of RedisClient::CannotConnectError, error.cause
  end

  def test_redis_is_killed_and_started_again
    with_server(DurableServer) do |server|
      here, there = remote(lost_after: 1), remote(lost_after: 1)
      seen = []
      receiver(here, 'jobs') { |job, delivery| seen << [job, delivery.redelivered?] }
      there['jobs'].monitor
      sending = spin { 400.times { |i| there['jobs'] << i } }
      at_last('for some') { seen.size > 100 }
      Thread.new { server.kill }.value
      held = seen.size
      sleep 1.2 # longer than it takes to be given up
      Thread.new { server.start }.value
      sending.await
      @admin = client
      at_last('for all') { seen.map(&:first).uniq.size == 400 }
      eventually_length('jobs', 0)
      assert_operator held, :<, 400
      assert_empty(seen.group_by(&:first).select { |_, all| all.count { |_, again| !again } > 1 })
      assert_empty receive_all_pending, 'nobody was lost'
      assert_operator here.stats[:reconnects], :>, 0
    end
  end

  def test_passwords_and_certificates
    with_server(GuardedServer) do |server|
      guarded = { url: "rediss://:open%20sesame@127.0.0.1:#{server.tls_port}", ssl_params: { ca_file: server.authority } }
      Remote.open(namespace: 'tls', **guarded) do |one|
        one.register('a')
        one['a'] << 'secret'
        assert_equal 'secret', receive
        refute_includes one.inspect, 'sesame'
      end
      assert_raises(RedisClient::AuthenticationError) { Remote.new(host: '127.0.0.1', port: server.port, password: 'guess', timeout: 2) }
      error = assert_raises(Remote::Unreachable) { Remote.new(url: guarded[:url], timeout: 0.3) }
      assert_match(/certificate verify failed/, error.message)
    end
  end

  def test_closing_while_redis_is_away_does_not_take_long
    one = remote
    receiver(one, 'a')
    @server.frozen do
      began = clock
      one.close
      assert_operator clock - began, :<, patient(4)
    end
    assert_predicate one, :closed?
  end
end
