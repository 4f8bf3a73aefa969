# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'

# IO.select: stock Ruby's answers, while other fibers run.
class TestIOSelect < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere

  on_every_driver

  # --- the same answers as stock Ruby ---------------------------------------------------------------

  CASES = {
    'nothing ready' => -> { IO.select([reader], nil, nil, 0.001) },
    'nothing asked' => -> { IO.select(nil, nil, nil, 0.001) },
    'nothing asked and no time' => -> { IO.select([], [], [], 0) },
    'readable' => -> { IO.select([full], nil, nil, 1) },
    'readable and no limit' => -> { IO.select([reader, full]) },
    'writable' => -> { IO.select(nil, [writer], nil, 1) },
    'readable and writable' => -> { IO.select([reader, full], [writer], [reader, writer], 1) },
    'given twice' => -> { IO.select([full, full], [writer, full, writer], [full], 0) },
    'a socket in two sets' => -> { a, = pair; IO.select([a], [a], [a], 0) },
    'a socket in two sets that can be read' => -> { a, b = pair; b << 'x'; IO.select([a], [a], [a], 0) },
    'a number of two objects' => -> { other = own(IO.for_fd(full.fileno, autoclose: false)); IO.select([full, other], nil, nil, 0) },
    'a duplicate' => -> { IO.select([own(full.dup), full], nil, nil, 0) },
    'the end of a file' => -> { writer.close; IO.select([reader], nil, nil, 1) },
    'the end of a file for writing' => -> { writer.close; IO.select(nil, [reader], nil, 0.001) },
    'the end of a file as exception' => -> { writer.close; IO.select(nil, nil, [reader], 0.001) },
    'a pipe that nobody reads' => -> { reader.close; IO.select([writer], [writer], [writer], 1) },
    'a full pipe' => -> { fill(writer); IO.select(nil, [writer], nil, 0.001) },
    'the wrong ends' => -> { IO.select([writer], [reader], nil, 0.001) },
    'a file' => -> { IO.select([file], [file], [file], 1) },
    'a file as exception' => -> { IO.select(nil, nil, [file], 0.001) },
    'a file as exception beside others' => -> { IO.select([reader], nil, [file], 0.001) },
    'a file beside others' => -> { IO.select([reader, file], nil, nil, 1) },
    '/dev/null' => -> { null = own(File.open(File::NULL, 'r+')); IO.select([null], [null], [null], 1) },
    'buffered bytes' => -> { full.getc; IO.select([reader, full], [writer], nil, 1) },
    'a character put back' => -> { reader.ungetc('a'); IO.select([reader], nil, nil, 1) },
    'a byte put back' => -> { reader.ungetbyte(1); IO.select([reader], nil, nil, 1) },
    'decoded characters' => -> { full.set_encoding('UTF-8:UTF-16LE'); full.getc; IO.select([full], nil, nil, 1) },
    'unwritten bytes' => -> { writer.sync = false; writer.write('x'); IO.select([reader], nil, nil, 0.001) },
    'urgent data' => -> { a, b = tcp; b.send('!', Socket::MSG_OOB); IO.select([a], nil, [a], 10) },
    'a listener' => -> { IO.select([listener], nil, nil, 0.001) },
    'a connection' => -> { own(TCPSocket.new('127.0.0.1', listener.local_address.ip_port)); IO.select([listener], nil, nil, 10) },
    'to_io' => -> { IO.select([wrapped(full)], [wrapped(writer)], nil, 0) },
    'to_io of another kind' => -> { IO.select([wrapped(1)], nil, nil, 0) },
    'to_io that raises' => -> { IO.select([wrapped(nil)], nil, nil, 0) },
    'a Tempfile' => -> { IO.select([own(Tempfile.new)], nil, nil, 0) },
    'two ends in one' => -> { cat = own(IO.popen('cat', 'r+')); IO.select([cat], [cat], [cat], 1) },
    'two ends in one that can be read' => -> { cat = own(IO.popen('cat', 'r+')); cat << 'x'; cat.flush; IO.select([cat], nil, nil, 10) },
    'two ends in one, one closed' => -> { cat = own(IO.popen('cat', 'r+')); cat.close_write; IO.select([cat], nil, nil, 10) },
    'no Array' => -> { IO.select(reader) },
    'no Array for writing' => -> { IO.select(nil, writer) },
    'no Array as exception' => -> { IO.select([full], nil, :nonsense) },
    'a number' => -> { IO.select([1]) },
    'nil inside' => -> { IO.select([nil]) },
    'a String inside' => -> { IO.select(nil, ['x']) },
    'closed' => -> { reader.close; IO.select([reader]) },
    'closed for writing' => -> { writer.close; IO.select(nil, [writer]) },
    'closed as exception' => -> { writer.close; IO.select([full], nil, [writer]) },
    'never opened' => -> { IO.select([IO.allocate]) },
    'closed behind the back' => -> { other = IO.for_fd(reader.fileno, autoclose: false); reader.close; IO.select([other], nil, nil, 0) },
    'a negative time' => -> { IO.select([reader], nil, nil, -1) },
    'a negative Float' => -> { IO.select([reader], nil, nil, -0.1) },
    'a time of another kind' => -> { IO.select([reader], nil, nil, '1') },
    'true for a time' => -> { IO.select([reader], nil, nil, true) },
    'endless time' => -> { IO.select([reader], nil, nil, Float::INFINITY) },
    'no number' => -> { IO.select([reader], nil, nil, Float::NAN) },
    'too much time' => -> { IO.select([full], nil, nil, 2**70) },
    'centuries' => -> { IO.select([full], nil, nil, 10**12) },
    'a Rational' => -> { IO.select([reader], nil, nil, 1/1000r) },
    'what divides like a number' => -> { IO.select([full], nil, nil, Struct.new(:x) { def divmod(_) = [1, 0] }.new) },
    'no arguments' => -> { IO.select },
    'too many arguments' => -> { IO.select([], [], [], 0, 0) },
    'select without a receiver' => -> { Object.new.instance_exec(full) { |io| select([io], nil, nil, 0) } },
    'select of Kernel itself' => -> { Kernel.select([full], nil, nil, 0) }
  }.freeze

  # IOs with names, which are told by them.
  class Bench
    attr_reader :names

    def initialize
      @owned = []
      @names = {}
    end

    def own(io)
      @owned << io
      io
    end

    def reader
      @reader, @writer = open_pipe unless @reader
      @reader
    end

    def writer = reader && @writer
    def pair = UNIXSocket.pair.each { |socket| own(socket) }
    def listener = @listener ||= own(TCPServer.new('127.0.0.1', 0))
    def file = @file ||= own(File.open(__FILE__, 'r'))

    def full
      @full ||= open_pipe.then { |reader, writer| writer << "many bytes\n"; reader }
    end

    def open_pipe
      IO.pipe.each { |io| own(io) }
    end

    def tcp
      client = own(TCPSocket.new('127.0.0.1', listener.local_address.ip_port))
      [client, own(Socket.for_fd(listener.sysaccept))]
    end

    def wrapped(io)
      Object.new.tap { |object| object.define_singleton_method(:to_io) { io || raise(ArgumentError, 'no io') } }
    end

    def fill(io)
      io.write_nonblock('x' * 65_536) while true # until it raises
    rescue IO::WaitWritable
      nil
    end

    def close
      @owned.reverse_each { |io| io.close unless io.closed? } # writers before readers
    end
  end

  # As places in the order in which they were opened: the objects are others each time.
  def shown(bench, value)
    case value
    when Array then value.map { |each| shown(bench, each) }
    when nil then nil
    else bench.instance_variable_get(:@owned).index(value.respond_to?(:to_io) ? value.to_io : value) || value.class
    end
  end

  def result(code)
    bench = Bench.new
    shown(bench, bench.instance_exec(&code))
  rescue StandardError => e
    [e.class, e.message]
  ensure
    bench.close
  end

  # A thread that has never waited has no backend, and so stock Ruby's methods.
  def stock(code)
    Thread.new { Thread.__polyphony_may_wait? ? flunk('has a backend') : result(code) }.value
  end

  CASES.each do |name, code|
    define_method("test_as_stock_#{name.gsub(/\W+/, '_')}") do
      ours = [result(code), spin { result(code) }.await, Enumerator.new { |y| y << result(code) }.next]
      assert_equal [stock(code)] * 3, ours, 'main fiber, spun fiber, generator'
    end
  end

  # --- waiting --------------------------------------------------------------------------------------

  # Runs the block, on the main fiber and on a spun one, while another fiber has had many turns with a wait
  # in each before it calls +event+. If the block stopped the thread, it would never come to that.
  def assert_others_go_on(event)
    [->(block) { block.call }, ->(block) { spin(&block).await }].each do |run|
      turns = 0
      other = spin do
        30.times { sleep(0.0001).then { turns += 1 } }
        event.call
      end
      yield_result = run.call(-> { [yield, turns] })
      assert_equal 30, yield_result[1]
      other.await
    end
  end

  def test_others_go_on_while_one_is_waited_for
    reader, writer = pipe_pair
    assert_others_go_on(-> { writer << 'x' }) do
      assert_equal [[reader], [], []], IO.select([reader])
      reader.getbyte
    end
  end

  def test_others_go_on_while_several_are_waited_for
    pipes = Array.new(5) { pipe_pair }
    readers = pipes.map(&:first)
    assert_others_go_on(-> { pipes[3][1] << 'x' }) do
      assert_equal [[readers[3]], [], []], IO.select(readers, nil, readers, patient(10))
      readers[3].getbyte
    end
  end

  def test_others_go_on_while_room_is_waited_for
    a, b = socket_pair
    other, = pipe_pair
    assert_others_go_on(-> { b.read_nonblock(1_000_000) }) do
      a.write_nonblock('x' * 65_536) until IO.select(nil, [a], nil, 0).nil?
      assert_equal [[], [a], []], IO.select([other], [a])
    end
  end

  def test_others_go_on_while_urgent_data_is_waited_for
    client, server = tcp_pair
    assert_others_go_on(-> { server.send('!', Socket::MSG_OOB) }) do
      assert_equal [[], [], [client]], IO.select(nil, nil, [client])
      client.recv(1, Socket::MSG_OOB)
    end
  end

  def test_others_go_on_while_time_passes
    reader, = pipe_pair
    other, = pipe_pair
    [[[reader]], [[reader, other]], [nil], [[], [], []]].each do |sets|
      turns = 0
      ticker = spin { loop { turns += 1; snooze } }
      started = clock
      assert_nil IO.select(*sets.values_at(0, 1, 2), patient(0.02))
      assert_operator clock - started, :>=, patient(0.02)
      assert_operator turns, :>, 1
      ticker.stop
      ticker.await
    end
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_one_that_need_not_wait_takes_its_turn
    reader, writer = pipe_pair
    writer << 'x'
    [[[reader], nil, nil, 0], [[reader]], [nil, nil, nil, 0]].each do |arguments|
      turns = 0
      spin { turns += 1 }
      IO.select(*arguments)
      assert_equal 1, turns, arguments.inspect
    end
  end

  # What another fiber takes away before is not reported.
  def test_what_is_reported_is_there
    reader, writer = pipe_pair
    other, = pipe_pair
    [[reader], [reader, other]].each do |set|
      waiting = waiting { IO.select(set) }
      writer << 'x'
      reader.getbyte
      beside = spin { sleep 0.001; writer << 'y' }
      assert_equal [[reader], [], []], waiting.await
      assert_equal 'y'.ord, reader.getbyte
      beside.await
    end
  end

  # A hang-up is there always, and not asked for.
  def test_a_hang_up_that_is_not_asked_for_costs_nothing
    reader, writer = pipe_pair
    other, = pipe_pair
    writer.close
    [[nil, nil, [reader]], [nil, [reader]], [[other], nil, [reader]]].each do |sets|
      Thread.current.backend.stats
      assert_nil IO.select(*sets.values_at(0, 1, 2), 0.02)
      assert_operator Thread.current.backend.stats[:op_count], :<, 6
    end
  end

  def test_many_descriptors
    heavy
    pipes = Array.new(200) { pipe_pair }
    readers = pipes.map(&:first)
    selecting = waiting { IO.select(readers, nil, readers) }
    [7, 77, 177].each { |i| pipes[i][1] << 'x' }
    assert_equal [readers.values_at(7, 77, 177), [], []], selecting.await
  end

  def test_many_fibers_wait_for_the_same
    reader, writer = pipe_pair
    other, = pipe_pair
    fibers = Array.new(10) { |i| waiting { IO.select(i.even? ? [reader] : [reader, other]) } }
    writer << 'x'
    assert_equal [[[reader], [], []]], fibers.map(&:await).uniq
  end

  def test_sockets_loops_of_stock_ruby
    servers = Array.new(2) { track(Socket.new(:INET, :STREAM)).tap { |s| s.bind(Addrinfo.tcp('127.0.0.1', 0)) && s.listen(5) } }
    accepting = spin { Socket.accept_loop(servers) { |peer| track(peer).write('hello') } }
    servers.each do |server|
      client = track(TCPSocket.new('127.0.0.1', server.local_address.ip_port))
      assert_equal 'hello', Polyphony.backend_read(client, nil, 5, true, 0)
    end
    accepting.stop
    accepting.await
  end

  # --- what operations have kept --------------------------------------------------------------------

  def test_bytes_of_a_cancelled_read_count
    reader, = pipe_pair
    other, = pipe_pair
    Polyphony.__put_back__(reader, 'ahead')
    assert_equal [[reader], [], []], IO.select([reader])
    assert_equal [[reader], [], []], IO.select([other, reader], [reader], [reader], 0)
    assert_equal 'ahead', Polyphony.backend_read(reader, nil, 9, false, 0)
  end

  # Another fiber has them; when that one is ended, they are given back.
  def test_bytes_given_back_wake_it
    other, = pipe_pair
    [false, true].each do |several|
      cancel_everywhere do |run|
        reader, writer = IO.pipe
        run.scenario do
          Polyphony.backend_read(reader, nil, 10, false, 0)
          Polyphony.backend_write(writer, 'more')
        end
        run.beside { assert_equal [[reader], [], []], IO.select(several ? [other, reader] : [reader]) }
        run.beside { Polyphony.backend_write(writer, 'bytes') }
        run.check { [reader, writer].each(&:close) }
      end
    end
  end

  def test_a_socket_kept_for_the_next_counts
    listener = track(TCPServer.new('127.0.0.1', 0))
    other, = pipe_pair
    [[listener], [other, listener]].each do |set|
      cancel_everywhere do |run|
        peers = []
        run.scenario do
          peers << Polyphony.backend_accept(listener, TCPSocket)
          peers << TCPSocket.new('127.0.0.1', listener.local_address.ip_port)
        end
        run.beside do
          assert_equal [[listener], [], []], IO.select(set)
          peers << Polyphony.backend_accept(listener, TCPSocket)
        end
        run.beside { peers << TCPSocket.new('127.0.0.1', listener.local_address.ip_port) }
        run.check { peers.each(&:close) }
      end
    end
  end

  # --- being ended ----------------------------------------------------------------------------------

  def test_it_can_be_ended_at_every_wait
    other, = pipe_pair
    [->(reader) { [reader] }, ->(reader) { [other, reader] }].each do |set|
      cancel_everywhere do |run|
        reader, writer = IO.pipe
        found = nil
        run.scenario { found = [IO.select(set[reader], nil, nil, patient(10)), IO.select(set[reader])] }
        run.beside { sleep(0.0005).then { writer << 'x' } }
        run.check do |finished|
          assert_equal [[[reader], [], []]] * 2, found if finished
          assert_equal 'x', reader.read_nonblock(9)
          [reader, writer].each(&:close)
        end
      end
    end
    assert_equal 0, Thread.current.backend.stats[:pending_timers]
  end

  def test_a_time_limit_around_it
    reader, = pipe_pair
    other, = pipe_pair
    [[reader], [reader, other], []].each do |set|
      assert_equal :late, move_on_after(0.002, with_value: :late) { IO.select(set) }
      assert_raises(Timeout::Error) { Timeout.timeout(0.002) { IO.select(set, nil, nil, patient(10)) } }
    end
  end

  def test_an_interjection_runs_meanwhile_and_the_time_goes_on
    reader, writer = pipe_pair
    other, = pipe_pair
    [[reader], [reader, other]].each do |set|
      seen = []
      fiber = waiting { IO.select(set, nil, nil, 0.01) }
      fiber.interject { seen << sleep(0.001) }
      assert_nil fiber.await
      assert_equal [0], seen
      fiber = waiting { IO.select(set) }
      fiber.interject { seen << sleep(0.001) }
      sleep 0.003
      writer << 'x'
      assert_equal [[reader], [], []], fiber.await
      assert_equal 2, seen.size
      reader.getbyte
    end
  end

  def test_a_plain_wake_does_not_end_it
    reader, writer = pipe_pair
    other, = pipe_pair
    [[reader], [reader, other]].each do |set|
      fiber = waiting { IO.select(set, nil, nil, patient(10)) }
      3.times { fiber.schedule(:wake); snooze; snooze }
      assert_equal :waiting, fiber.state
      writer << 'x'
      assert_equal [[reader], [], []], fiber.await
      reader.getbyte
    end
  end

  def test_closing_ends_it
    other, = pipe_pair
    [->(reader) { [reader] }, ->(reader) { [other, reader] }].each do |set|
      [->(&close) { close.call }, ->(&close) { Thread.new(&close).join }].each do |where|
        reader, = pipe_pair
        fiber = waiting { IO.select(set[reader]) }
        where.call { reader.close }
        error = fiber.await
        assert_kind_of IOError, error
        assert_equal 'stream closed in another thread', error.message
      end
    end
  end

  def test_closing_ends_it_in_another_thread
    reader, = pipe_pair
    other, = pipe_pair
    began = Polyphony::Event.new
    thread = Thread.new do
      sleep 0
      fiber = waiting { IO.select([reader, other]) }
      began.signal
      fiber.await
    end
    began.await
    reader.close
    assert_kind_of IOError, thread.value
  end

  def test_closing_something_else_does_not
    reader, writer = pipe_pair
    other, = pipe_pair
    fiber = waiting { IO.select([reader, other]) }
    pipe_pair.each(&:close)
    assert_equal :waiting, fiber.state
    writer << 'x'
    assert_equal [[reader], [], []], fiber.await
  end

  def test_a_thread_that_ends_takes_it_along
    reader, = pipe_pair
    other, = pipe_pair
    ended = []
    Thread.new do
      spin do
        IO.select([reader, other])
      ensure
        ended << :ended
      end
      snooze
    end.join
    assert_equal [:ended], ended
  end

  # --- where it is ----------------------------------------------------------------------------------

  def test_a_child_waits_for_itself
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      $stdout.sync = true
      descriptors = -> { Dir.children('/proc/self/fd').map { |fd| File.readlink("/proc/self/fd/#{fd}") rescue nil } }
      reader, writer = IO.pipe
      other, = IO.pipe
      fiber = spin { IO.select([reader, other]) }
      snooze until fiber.state == :waiting
      before = descriptors.call.grep(/eventpoll/).size
      pid = fork do
        puts "child #{before - descriptors.call.grep(/eventpoll/).size}"
        mine, from = IO.pipe
        spin { from << 'x' }
        puts "child #{IO.select([mine, other]) == [[mine], [], []]}"
      end
      Polyphony.backend_waitpid(pid)
      writer << 'x'
      puts "parent #{fiber.await == [[reader], [], []]}"
    RUBY
    assert status.success?, err
    assert_equal ['child 1', 'child true', 'parent true'], out.lines(chomp: true)
  end

  def test_a_signal_handler_gets_stock_select
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      reader, writer = IO.pipe
      writer << 'x'
      trap(:USR1) { $found = IO.select([reader], nil, nil, 0) }
      Process.kill(:USR1, $$)
      sleep 0.001 until $found
      puts $found == [[reader], [], []]
    RUBY
    assert status.success?, err
    assert_equal "true\n", out
  end

  # Rubies since 3.2 call it.
  def test_a_scheduler_selects
    reader, writer = pipe_pair
    scheduler = Polyphony::Scheduler.new
    assert_equal [[], [writer], []], scheduler.io_select([reader], [writer], nil, nil)
    assert_nil scheduler.io_select([reader], nil, nil, 0.001)
    assert_raises(ArgumentError) { scheduler.io_select([reader], nil, nil, -1) }
  end

  def test_the_core_alone_leaves_stock_ruby_alone
    out, err, status = run_ruby("require 'polyphony/core'; p IO.method(:select).owner, method(:select).owner, defined?(Addrinfo)")
    assert status.success?, err
    assert_equal "#<Class:IO>\nKernel\nnil\n", out
  end

  def test_a_report_says_what_it_waits_for
    reader, = pipe_pair
    other, = pipe_pair
    [[[reader]], [[reader, other]], [nil, nil, [reader]]].each do |sets|
      fiber = waiting { IO.select(*sets) }
      assert_includes fiber.__wait[1].inspect, reader.inspect
      fiber.stop
      fiber.await
    end
  end

  def test_objects_are_kept_and_may_move
    reader, writer = pipe_pair
    other, = pipe_pair
    fiber = waiting { IO.select([Struct.new(:to_io).new(reader), other], nil, [reader]).first.first.to_io }
    GC.start
    GC.compact if GC.respond_to?(:compact)
    writer << 'x'
    assert_same reader, fiber.await
  end
end
