# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'stringio'

# Connections without a fiber, and fibers that serve them: nobody is forgotten, and nobody meets what another has left.
class TestHTTPCrew < Polyphony::TestCase
  time_limit 180 # a collection at every allocation takes its time on a busy machine

  on_every_driver

  Lobby = Polyphony::HTTP.const_defined?(:Lobby) && Polyphony::HTTP.const_get(:Lobby)
  ASK = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

  def serve(**options, &handler)
    @log = StringIO.new
    handler ||= ->(request) { request.respond('good') }
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, **options, &handler).start
  end

  def setup
    super
    skip 'there is no epoll here' unless Lobby
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def connect
    track(TCPSocket.new('127.0.0.1', @server.port))
  end

  # The body of the next answer on the connection.
  def answer(client)
    length = nil
    while (line = client.gets) != "\r\n"
      length = Integer(line[/\d+/]) if line.start_with?('content-length')
    end
    client.read(length)
  end

  def ask(client, request = ASK)
    client << request
    answer(client)
  end

  def crew
    server_fiber.children.select { |fiber| fiber.tag == :connection }
  end

  def server_fiber
    Fiber.current.children.find { |fiber| fiber.tag == :http_server }
  end

  def resting
    @server.connections.size - crew.size
  end

  def test_many_connections_are_served_by_one_fiber
    fibers = []
    serve { |request| request.respond((fibers << Fiber.current).size.to_s) }
    clients = Array.new(30) { connect }
    3.times { clients.each { |client| ask(client) } }
    assert_equal 90, fibers.size
    assert_operator fibers.uniq.size, :<=, 2
    assert_equal 30, @server.connections.size
  end

  def test_a_handler_that_waits_holds_up_nobody
    gate = Polyphony::Event.new
    serve do |request|
      gate.await if request.path == '/wait'
      request.respond(request.path)
    end
    slow = connect
    quick = connect
    slow << "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
    assert_equal '/', ask(quick)
    gate.signal
    assert_equal '/wait', answer(slow)
  end

  # All of them come with one look at the kernel.
  def test_all_that_come_together_may_wait_at_the_same_time
    arrived = 0
    serve do |request|
      arrived += 1
      snooze until arrived == 100
      request.respond('all')
    end
    clients = Array.new(100) { connect }
    snooze until @server.connections.size == 100
    clients.each { |client| client << ASK }
    assert_equal ['all'], clients.map { |client| answer(client) }.uniq
  end

  def test_fibers_that_nobody_needs_end
    arrived = 0
    serve do |request|
      arrived += 1
      snooze until arrived >= 20
      request.respond('good')
    end
    clients = Array.new(20) { connect }
    clients.each { |client| client << ASK }
    clients.each { |client| answer(client) }
    assert_operator crew.size, :>=, 20
    sleep 0.01 until crew.empty?
    assert_equal 20, @server.connections.size
    assert_equal 'good', ask(clients.first)
  end

  def test_what_a_handler_leaves_behind_stays_with_its_connection
    marks = {
      'children' => -> { spin { suspend } }, 'locals' => -> { Thread.current[:mine] = 1 },
      'storage' => -> { Fiber[:mine] = 1 }, 'mail' => -> { Fiber.current << 1 }
    }
    seen = nil
    serve do |request|
      seen = [Fiber.current, Fiber.current.children.size, Thread.current[:mine], Fiber[:mine]]
      marks[request.path.delete('/')]&.call
      request.respond('good')
    end
    marks.each_key do |what|
      owner = connect
      ask(owner, "GET /#{what} HTTP/1.1\r\nHost: a\r\n\r\n")
      fiber = seen.first
      others = Array.new(5) { connect.tap { |client| ask(client) }.then { seen } }
      assert_equal [[0, nil, nil]], others.map { |other| other.drop(1) }.uniq, what
      refute_includes others.map(&:first), fiber, what
      ask(owner)
      assert_same fiber, seen.first, what
      owner.close
      fiber.await
    end
  end

  def test_a_fiber_storage_that_the_server_was_started_with_is_there_each_time
    Fiber[:started] = :with
    seen = []
    serve do |request|
      seen << [Fiber[:started], Fiber.current]
      request.respond('good')
    end
    client = connect
    3.times { ask(client) }
    assert_equal [[:with]] * 3, seen.map { |pair| pair.first(1) }
    assert_equal 1, seen.map(&:last).uniq.size
  ensure
    Fiber[:started] = nil
  end

  # What is equal is still another's, who may change it later.
  def test_a_value_in_the_storage_that_is_only_equal_stays_with_its_connection
    Fiber[:list] = list = []
    seen = nil
    serve do |request|
      seen = [Fiber.current, Fiber[:list]]
      Fiber[:list] = [] if request.path == '/own'
      request.respond('good')
    end
    ask(connect, "GET /own HTTP/1.1\r\nHost: a\r\n\r\n")
    fiber = seen.first
    ask(connect)
    refute_same fiber, seen.first
    assert_same list, seen.last
  ensure
    Fiber[:list] = nil
  end

  def test_who_takes_out_of_the_storage_what_he_put_there_leaves_nothing
    [nil, :with].each do |value|
      Fiber[:started] = value
      fibers = []
      serve do |request|
        fibers << Fiber.current
        Fiber[:mine] = 1
        Fiber[:mine] = nil
        request.respond('good')
      end
      5.times { ask(connect) }
      assert_equal 1, fibers.uniq.size, value.inspect
      @server.stop(within: 0)
    end
  ensure
    Fiber[:started] = nil
  end

  def test_requests_that_come_together_are_all_answered
    serve { |request| request.respond(request.path) }
    client = connect
    ask(client)
    client << (1..40).map { |i| "GET /#{i} HTTP/1.1\r\nHost: a\r\n\r\n" }.join
    assert_equal((1..40).map { |i| "/#{i}" }, Array.new(40) { answer(client) })
    assert_equal '/', ask(client)
  end

  # More than is received at once, and exactly as much.
  def test_requests_of_every_length_are_answered
    serve { |request| request.respond(request['x'].bytesize.to_s) }
    client = connect
    ask(client, "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n")
    empty = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".bytesize
    (4090..4100).each do |size|
      length = size - empty
      2.times { assert_equal length.to_s, ask(client, "GET / HTTP/1.1\r\nHost: a\r\nX: #{'y' * length}\r\n\r\n") }
    end
  end

  def test_a_request_in_two_parts_is_answered
    serve { |request| request.respond(request.path) }
    client = connect
    ask(client)
    (1...ASK.bytesize).each do |cut|
      client << ASK[0, cut]
      3.times { snooze }
      client << ASK[cut..]
      assert_equal '/', answer(client), cut
    end
  end

  def test_a_body_and_what_comes_behind_it
    serve { |request| request.respond(request.read.bytesize.to_s) }
    client = connect
    ask(client)
    post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
    3.times do
      assert_equal '100000', ask(client, post + ('x' * 100_000))
      client << post
      3.times { snooze }
      client << ('x' * 100_000) << ASK
      assert_equal %w[100000 0], [answer(client), answer(client)]
    end
  end

  # The kernel may have more for a reader who has gone than anybody has taken.
  def test_a_reader_that_is_stopped_loses_nothing_of_what_follows
    gate = Polyphony::Event.new
    serve do |request|
      if request.body?
        reader = spin { nil while request.read_chunk }
        snooze until reader.state == :waiting
        reader.stop
        reader.await
        gate.signal
      end
      request.respond(request.read)
    end
    client = connect
    client << "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234"
    gate.await
    client << "56789#{ASK}"
    assert_equal ['56789', ''], [answer(client), answer(client)]
    assert_equal '', ask(client)
  end

  def test_who_is_gone_is_noticed
    serve
    clients = Array.new(5) { connect }
    clients.each { |client| ask(client) }
    silent = connect
    snooze until @server.connections.size == 6
    clients[0].close
    clients[1].setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    clients[1].close # a reset
    clients[2].close_write
    clients[3] << ASK
    clients[3].close_write
    assert_equal 'good', answer(clients[3])
    silent.close
    sleep 0.005 until @server.connections.size == 1
    assert_equal 'good', ask(clients[4])
    assert_equal '', @log.string
  end

  def test_who_waits_too_long_is_sent_home
    serve(limits: { header_time: 0.2, keep_alive: 0.1 })
    silent = connect
    asked = connect
    ask(asked)
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    assert_equal '', asked.read
    assert_equal '', silent.read
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - began, :>=, 0.09
    sleep 0.005 until @server.connections.empty?
  end

  # @return [Integer] how many there are; those of the garbage count
  def epolls
    Dir.children('/proc/self/fd').count { |fd| File.readlink("/proc/self/fd/#{fd}").include?('eventpoll') rescue false }
  end

  # A descriptor that waits for the GC may wait for long: what lies on a stack is taken for a reference.
  def test_nothing_is_left_open_when_something_else_goes_wrong_at_the_end
    before = epolls
    serve
    client = connect
    snooze until @server.stats.open == 1
    assert_equal before + 1, epolls
    listener = @server.instance_variable_get(:@listeners).first
    listener.define_singleton_method(:close) { super().tap { raise Errno::EIO } }
    fiber = @server.instance_variable_get(:@fiber)
    fiber.stop
    assert_raises(Errno::EIO) { fiber.await }
    assert_equal before, epolls
    assert_nil client.read(1)
  end

  def test_a_crew_that_cannot_begin_leaves_nothing_open
    before = epolls
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new) { nil }
    crew = Polyphony::HTTP.const_get(:Crew)
    spin do
      Fiber.current.define_singleton_method(:spin) { |*| Kernel.raise FiberError, 'no memory' }
      assert_raises(FiberError) { crew.new(server) }
    end.await
    assert_equal before, epolls
  ensure
    server&.stop
  end

  def test_a_server_that_stops_tells_those_who_wait
    serve
    clients = Array.new(3) { connect.tap { |client| ask(client) } }
    silent = connect
    snooze until @server.connections.size == 4
    @server.stop
    assert_equal [''] * 4, [*clients, silent].map(&:read)
  end

  def test_a_handler_that_ends_its_fiber_ends_its_connection
    serve do |request|
      Fiber.current.stop if request.path == '/stop'
      snooze
      request.respond('good')
    end
    client = connect
    other = connect
    ask(other)
    ask(client)
    client << "GET /stop HTTP/1.1\r\nHost: a\r\n\r\n"
    assert_equal '', client.read
    assert_equal 'good', ask(other)
    sleep 0.005 until @server.connections.size == 1
  end

  # The child has a copy of the socket, which keeps what the kernel knows of it alive.
  def test_a_connection_that_is_closed_here_and_open_in_a_child_is_forgotten
    serve
    client = connect
    ask(client)
    reader, writer = pipe_pair
    pid = fork do
      reader.read(1)
      exit!(0)
    end
    client << "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    answer(client)
    sleep 0.005 until @server.connections.empty?
    client << 'x'
    assert_equal 'good', ask(connect)
    writer.write('x')
    Process.wait(pid)
  end

  # A handler that has taken the body waits; what the kernel says of the client then, it says once.
  def test_a_client_that_resets_while_its_body_is_handled_keeps_nobody_busy
    gate = Polyphony::Event.new
    serve do |request|
      request.read
      gate.await
      request.respond('good')
    end
    client = connect
    client << "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    snooze until @server.stats.running == 1
    client.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack('ii'))
    client.close
    sleep 0.05
    before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    sleep 0.4
    assert_operator Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - before, :<, 0.15
    gate.signal
  end

  # An answer that cannot be ended resets the connection. Its number belongs to the next one before it is forgotten.
  def test_the_number_of_a_connection_that_was_reset_is_the_next_one_s
    gate = Polyphony::Event.new
    inside = Polyphony::Event.new
    wait = lambda do |request, _took|
      next unless request.path == '/bad'

      inside.signal
      gate.await
    end
    serve(access_log: wait) do |request|
      request.path == '/bad' ? request.send_chunk('x') && raise('bad') : request.respond('good')
    end
    old = connect
    fresh = track(Socket.new(:INET, :STREAM))
    old << "GET /bad HTTP/1.0\r\n\r\n"
    inside.await
    fresh.connect(Socket.sockaddr_in(@server.port, '127.0.0.1'))
    snooze until @server.connections.size == 2
    gate.signal
    snooze until @server.connections.size == 1
    assert_equal 'good', ask(fresh)
  end

  # In the lobby, too, whatever has been closed without a word.
  def test_a_guest_whose_number_is_another_s_changes_nothing_for_him
    lobby = Lobby.new
    old, = socket_pair
    guest = lobby.enter(:old, old.fileno)
    number = old.fileno
    old.close
    pair = socket_pair
    other, peer = pair.first.fileno == number ? pair : pair.reverse
    assert_equal number, other.fileno
    lobby.enter(:other, number)
    guest.mute
    guest.leave
    peer << 'x'
    assert_equal :other, lobby.take
  ensure
    lobby.close
  end

  # It has the same epoll.
  def test_what_a_child_closes_is_not_closed_here
    serve do |request|
      if request.path == '/fork'
        pid = fork or exit(0)
        Process.wait(pid)
      end
      request.respond('good')
    end
    client = connect
    other = connect
    ask(other)
    2.times { assert_equal 'good', ask(client, "GET /fork HTTP/1.1\r\nHost: a\r\n\r\n") }
    assert_equal 'good', ask(client)
    assert_equal 'good', ask(other)
  end

  def test_who_has_asked_in_time_is_served_however_late_that_is
    serve(limits: { keep_alive: 0.3, header_time: 0.3 }) do |request|
      if request.path == '/busy'
        till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.6
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
        snooze
      end
      request.respond('good')
    end
    busy = connect
    others = Array.new(100) { connect }
    snooze until @server.connections.size == 101
    others.each { |client| ask(client) }
    busy.write_nonblock("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n") # without a switch
    others.each { |client| client.write_nonblock(ASK) }
    assert_equal ['good'], [busy, *others].map { |client| answer(client) }.uniq
  end

  def test_times_may_be_infinite
    serve(limits: { keep_alive: Float::INFINITY, header_time: Float::INFINITY })
    client = connect
    silent = connect
    ask(client)
    sleep 0.05
    assert_equal %w[good good], [ask(client), ask(silent)]
  end

  # Somebody has kept the fiber of a request that is over.
  def test_a_fiber_without_work_that_is_woken_by_others_is_still_there_for_work
    gate = Polyphony::Event.new
    fiber = nil
    serve do |request|
      fiber ||= Fiber.current
      gate.await if request.path == '/wait'
      request.respond('good')
    end
    client = connect
    other = connect
    ask(client)
    2.times do
      fiber.schedule(:stray)
      3.times { snooze }
    end
    client << "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
    snooze until @server.stats.running == 1
    assert_equal 'good', ask(other)
    gate.signal
    assert_equal 'good', answer(client)
  end

  def test_an_error_for_a_request_that_is_over_is_not_the_end_of_the_server
    fiber = nil
    serve do |request|
      fiber = Fiber.current
      request.respond('good')
    end
    client = connect
    [-> { fiber.raise('too late') }, -> { fiber.stop }].each do |act|
      ask(client)
      act.call
      client.write_nonblock(ASK) # is told of together with it
      assert_equal 'good', answer(client)
    end
    assert_match(/too late/, @log.string)
  end

  # Who waits is served when there is memory again.
  def test_without_memory_for_a_fiber_it_is_tried_again
    serve
    failures = 1
    server_fiber.define_singleton_method(:spin) do |*arguments, &block|
      Kernel.raise FiberError, 'no memory' if arguments == [:connection] && (failures -= 1) >= 0

      super(*arguments, &block)
    end
    assert_equal 'good', ask(connect)
    assert_match(/no memory/, @log.string)
  end

  # Whoever ends may have to hire another, who must not inherit what a handler has left.
  def test_who_is_hired_by_a_fiber_that_ends_begins_without_its_storage
    Fiber[:started] = :with
    seen, hired = [], 0
    serve do |request|
      seen << [Fiber.current, Fiber[:started], Fiber[:mine]]
      Fiber[:started] = Fiber[:mine] = 1
      request.respond('good')
    end
    server_fiber.define_singleton_method(:spin) do |*arguments, &block|
      Kernel.raise FiberError, 'no memory' if arguments == [:connection] && (hired += 1) == 2

      super(*arguments, &block)
    end
    clients = Array.new(2) { connect }
    snooze until @server.connections.size == 2
    clients.each { |client| client.write_nonblock("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") }
    clients.each { |client| assert_equal 'good', answer(client) }
    assert_equal [3, 2], [hired, seen.map(&:first).uniq.size]
    assert_equal [[:with, nil]] * 2, seen.map { |one| one.drop(1) }
  ensure
    Fiber[:started] = nil
  end

  def test_a_lobby_without_anybody_may_be_moved
    skip 'objects do not move here' unless GC.respond_to?(:verify_compaction_references)

    serve
    snooze
    2.times { GC.verify_compaction_references(toward: :empty) }
    clients = Array.new(5) { connect }
    2.times do
      clients.each { |client| assert_equal 'good', ask(client) }
      GC.start(full_mark: false)
    end
  end

  # In a program of its own: a collection takes as long as there is much in memory, and here that is what the other tests
  # have left.
  GC_PROGRAM = <<~'RUBY'
    require 'polyphony/http'
    require 'socket'
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil, limits: { header_time: 60 }) { |it| it.respond('good') }.start
    clients = Array.new(2) { TCPSocket.new('127.0.0.1', server.port) }
    ask = lambda do |client|
      client << "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
      nil until client.gets == "\r\n"
      client.read(4)
    end
    answers = []
    GC.stress = true
    2.times { clients.each { |client| answers << ask[client] } }
    GC.stress = false
    GC.verify_compaction_references(toward: :empty) if GC.respond_to?(:verify_compaction_references)
    clients.each { |client| answers << ask[client] }
    server.stop(within: 0)
    print answers.tally.to_a.flatten.join(" ")
  RUBY

  def test_the_gc_may_come_at_any_time
    out, err, status = run_ruby(GC_PROGRAM, timeout: 150)
    assert_equal ['good 6', '', true], [out, err, status.success?]
  end

  def test_a_lobby_that_is_closed_says_so
    lobby = Lobby.new
    lobby.close
    lobby.close
    assert_raises(IOError) { lobby.take }
    assert_raises(IOError) { lobby.descriptor }
  end

  # Whoever is new is looked at without the kernel's being told of him: it refuses him when he is to wait.
  def test_who_cannot_wait_is_told_so
    lobby = Lobby.new
    guest = lobby.enter(:nobody, 1 << 20)
    assert_equal :nobody, lobby.take
    assert_raises(SystemCallError) { guest.rest(false, false) }
  ensure
    lobby.close
  end

  # One poll for those who have come together, and not a word to epoll about those who have been answered and have gone.
  def test_a_connection_for_one_request_is_none_of_the_lobbys_business
    lobby = Lobby.new
    here, there = socket_pair
    other, silent = socket_pair
    there << 'x'
    guest = lobby.enter(:speaks, here.fileno)
    lobby.enter(:waits, other.fileno)
    assert_equal :speaks, lobby.take
    guest.leave
    assert_nil lobby.take
    silent << 'y'
    assert_equal :waits, lobby.take
    refute lobby.ready?
  ensure
    lobby.close
  end

  # However many have come: those behind a crowd that says nothing, too.
  def test_all_who_are_new_are_looked_at
    lobby = Lobby.new
    pairs = Array.new(150) { socket_pair }
    pairs.last.last << 'x'
    guests = pairs.each_with_index.map { |(here, _), i| lobby.enter(i, here.fileno) }
    assert_equal 149, lobby.take
    assert_nil lobby.take
    refute lobby.ready?
    guests.each(&:leave)
  ensure
    lobby.close
  end

  # What comes while somebody is served for the first time, or before he rests, is seen: epoll hears of him only then.
  def test_what_comes_before_the_first_rest_is_not_lost
    lobby = Lobby.new
    here, there = socket_pair
    there << 'x'
    guest = lobby.enter(:one, here.fileno)
    assert_equal :one, lobby.take
    here.readpartial(10)
    there << 'y'
    guest.rest(false, false)
    assert_equal :one, lobby.take
    here.readpartial(10)
    guest.rest(false, false)
    assert_nil lobby.take
    there.close
    assert_equal :one, lobby.take
  ensure
    lobby.close
  end

  # Without memory for a fiber nobody comes to look: then the kernel tells.
  def test_who_is_not_looked_at_is_watched
    lobby = Lobby.new
    here, there = socket_pair
    lobby.enter(:one, here.fileno)
    assert lobby.ready?
    lobby.watch
    refute lobby.ready?
    there << 'x'
    assert IO.for_fd(lobby.descriptor, autoclose: false).wait_readable(patient(1))
    assert_equal :one, lobby.take
  ensure
    lobby.close
  end
end
