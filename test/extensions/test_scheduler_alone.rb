# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/alone'
require_relative '../support/slow_names'

# The scheduler with polyphony/core alone: each hook, called as Ruby's documentation has it, and the stock
# methods that call it.
class TestSchedulerAlone < Polyphony::TestCase
  include Polyphony::Alone

  on_every_driver

  # Of the Rubies 3.1 to 4.0, but for io_pwrite, which none of them calls right. Those that the running one does not
  # know are not called by it.
  HOOKS = %i[address_resolve block blocking_operation_wait close fiber fiber_interrupt io_close io_pread io_read io_select
             io_wait io_write kernel_sleep process_wait run scheduler_close timeout_after unblock yield].freeze

  def test_there_is_every_hook
    assert_empty HOOKS - Polyphony::Scheduler.public_instance_methods(false)
  end

  # --- block and unblock -------------------------------------------------------------------------------------

  def test_block_waits_to_be_unblocked_by_another_thread
    assert_alone <<~'RUBY'
      thread do
        fiber = nil
        same(true) do
          beside(-> { Thread.new(hooks) { |hooks| hooks.unblock(:gate, fiber) }.join }) do
            fiber = Fiber.current
            hooks.block(:gate)
          end
        end
      end
    RUBY
  end

  def test_block_says_whether_it_was_in_time
    assert_alone <<~'RUBY'
      thread do
        same(false) { beside_nothing { hooks.block(:gate, 0.002) } }
        fiber = nil
        same(true) { beside(-> { hooks.unblock(:gate, fiber) }) { fiber = Fiber.current; hooks.block(:gate, 60) } }
      end
    RUBY
  end

  def test_an_unblock_that_comes_early_is_not_lost_and_counts_once
    assert_alone <<~'RUBY'
      thread do
        Fiber.schedule do
          2.times { hooks.unblock(:gate, Fiber.current) }
          same(true) { hooks.block(:gate) }
          same(false) { hooks.block(:gate, 0) }
        end
        ended = Fiber.schedule {}
        same(nil) { hooks.unblock(:gate, ended) }
      end
    RUBY
  end

  def test_locks_and_queues_between_fibers_and_threads
    assert_alone <<~'RUBY'
      thread do
        queue = Thread::Queue.new
        same(1) { beside(-> { queue << 1 }) { queue.pop } }
        same(2) { beside(-> { Thread.new { queue << 2 }.join }) { queue.pop } }

        full = Thread::SizedQueue.new(1).push(:first)
        same(:first) { taken = nil; beside(-> { taken = full.pop }) { full.push(:second) }; taken }

        mutex = Thread::Mutex.new
        go = Thread::Queue.new
        holder = Thread.new { mutex.synchronize { go.pop } }
        wait_until { mutex.locked? }
        same(true) { beside(-> { go << 1 }) { mutex.synchronize { mutex.owned? } } }
        holder.join

        condition = Thread::ConditionVariable.new
        same(true) { beside(-> { mutex.synchronize { condition.signal } }) { mutex.synchronize { condition.wait(mutex); mutex.owned? } } }
        same(true) do
          beside(-> { Thread.new { mutex.synchronize { condition.broadcast } }.join }) do
            mutex.synchronize { condition.wait(mutex); mutex.owned? }
          end
        end
        same(true) { beside_nothing { mutex.synchronize { condition.wait(mutex, 0.002); mutex.owned? } } }

        monitor = Monitor.new
        signal = monitor.new_cond
        same(:in) { beside(-> { monitor.synchronize { signal.signal } }) { monitor.synchronize { signal.wait; :in } } }
      end
    RUBY
  end

  def test_threads_are_waited_for
    assert_alone <<~'RUBY'
      thread do
        go = Thread::Queue.new
        other = Thread.new { go.pop }
        same(5) { beside(-> { go << 5 }) { other.value } }
        other = Thread.new { go.pop; raise IOError, 'mine' }
        other.report_on_exception = false
        same([IOError, 'mine']) { beside(-> { go << 1 }) { outcome { other.join } } }
      end
    RUBY
  end

  # --- sleep -------------------------------------------------------------------------------------------------

  def test_sleep
    assert_alone <<~'RUBY'
      thread do
        same([0, true, true]) { beside_nothing { [sleep(0.002), hooks.kernel_sleep(0.002), hooks.kernel_sleep(1/500r)] } }
        fiber = nil
        same(0) { beside(-> { hooks.unblock(nil, fiber) }) { fiber = Fiber.current; sleep } }
        same(true) { beside(-> { hooks.unblock(nil, fiber) }) { fiber = Fiber.current; hooks.kernel_sleep(nil) } }
      end
    RUBY
  end

  def test_sleep_refuses_what_stock_ruby_refuses
    assert_alone <<~'RUBY'
      refused = [-1, -0.5, Float::NAN, 'a second', Object.new]
      expected = refused.map { |duration| outcome { sleep(duration) } }
      thread { Fiber.schedule { same(expected) { refused.map { |duration| outcome { sleep(duration) } } } } }
    RUBY
  end

  # --- waiting for descriptors -------------------------------------------------------------------------------

  def test_io_wait
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        same([false, false, IO::WRITABLE, IO::WRITABLE]) do
          beside_nothing do
            [hooks.io_wait(reader, IO::READABLE, 0), hooks.io_wait(reader, IO::READABLE, 0.002),
             hooks.io_wait(writer, IO::WRITABLE), hooks.io_wait(writer, IO::READABLE | IO::WRITABLE, 60)]
          end
        end
        same(IO::READABLE) { beside(-> { writer << 'a' }) { hooks.io_wait(reader, IO::READABLE | IO::PRIORITY, 60) } }
        same('a') { reader.readpartial(9) }
        same([true, nil]) do
          beside(-> { writer << 'b' }) { [reader.wait_readable.equal?(reader), (reader.getc; reader.wait_readable(0.002))] }
        end
        same(IO::READABLE) { beside(-> { writer.close }) { hooks.io_wait(reader, IO::READABLE) } }
        same([IOError, 'closed stream']) { outcome { hooks.io_wait(writer, IO::WRITABLE, 1) } }
      end
    RUBY
  end

  def test_io_wait_for_urgent_data
    assert_alone <<~'RUBY'
      thread do
        server = TCPServer.new('127.0.0.1', 0)
        client = TCPSocket.new('127.0.0.1', server.addr[1])
        peer = server.accept
        same(IO::PRIORITY) { beside(-> { client.send('!', Socket::MSG_OOB) }) { hooks.io_wait(peer, IO::PRIORITY, 60) } }
        same('!') { peer.recv(1, Socket::MSG_OOB) }
      end
    RUBY
  end

  def test_whoever_waits_for_what_is_closed_gets_an_io_error
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        errors = []
        Fiber.schedule { errors << outcome { reader.wait_readable } }
        Fiber.schedule { errors << outcome { reader.gets } }
        Fiber.schedule { reader.close }
        hooks.run
        same([IOError, IOError]) { errors.map(&:first) }
      end
    RUBY
  end

  def test_io_select
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        same(nil) { beside_nothing { hooks.io_select([reader], nil, nil, 0.002) } }
        same([[], [writer], []]) { hooks.io_select([reader], [writer], []) }
        same([[reader], [], []]) { beside(-> { writer << 'a' }) { hooks.io_select([reader], [], [], nil) } }
      end
    RUBY
  end

  # --- reading and writing ------------------------------------------------------------------------------------

  def test_io_read_reads_the_minimum_behind_an_offset
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        buffer = IO::Buffer.new(8)
        same(4) { beside(-> { writer << 'ab'; sleep 0.001; writer << 'cd' }) { hooks.io_read(reader, buffer, 3) } }
        same("abcd\0\0\0\0") { buffer.get_string }
        same(2) { beside(-> { writer << 'ef' }) { hooks.io_read(reader, buffer, 0, 6) } }
        same("abcd\0\0ef") { buffer.get_string }
        writer << '0123456789'
        same(8) { hooks.io_read(reader, buffer, 100) }
        same(2) { beside(-> { writer.close }) { hooks.io_read(reader, buffer, 3) } }
        same(0) { hooks.io_read(reader, buffer, 1) }
        same([ArgumentError, 'offset 9 is behind the end of the buffer (8)']) { outcome { hooks.io_read(reader, buffer, 1, 9) } }
      end
    RUBY
  end

  def test_io_write_writes_the_minimum_from_an_offset
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        got = +''
        text = ('a'..'z').to_a.join * 10_000
        buffer = IO::Buffer.for(text)
        same(text.size) { beside(-> { got << reader.readpartial(4096) until got.size == text.size }) { hooks.io_write(writer, buffer, text.size) } }
        same(text) { got }
        same(5) { hooks.io_write(writer, buffer, 0, text.size - 5) }
        same('vwxyz') { reader.readpartial(100) }
        same(-Errno::EBADF::Errno) { hooks.io_write(reader, buffer, 1) }
        same(-Errno::EBADF::Errno) { hooks.io_read(writer, IO::Buffer.new(1), 1) }
        reader.close
        same(-Errno::EPIPE::Errno) { hooks.io_write(writer, buffer, 1) }
      end
    RUBY
  end

  def test_at_a_position
    assert_alone <<~'RUBY'
      require 'tempfile'
      # Ruby 3.1 has no offset, and the position last.
      def arguments(from, length, offset = 0)
        RUBY_VERSION < '3.2' && offset.zero? ? [length, from] : [from, length, offset]
      end
      file = Tempfile.create
      file << '0123456789'
      file.flush
      buffer = IO::Buffer.new(4)
      thread do
        same(4) { hooks.io_pread(file, buffer, *arguments(3, 2)) }
        same('3456') { buffer.get_string }
        same(2) { hooks.io_pread(file, buffer, *arguments(0, 2, 2)) }
        same('3401') { buffer.get_string }
        same(1) { hooks.io_pread(file, buffer, *arguments(9, 4)) }
        same(3) { IO::Buffer.for('XYZ').pwrite(file, *(RUBY_VERSION < '3.2' ? [3, 2] : [2, 3])) }
        same([10, '01XYZ56789']) { [file.pos, File.read(file.path)] }
        pipe, = IO.pipe
        same(-Errno::ESPIPE::Errno) { hooks.io_pread(pipe, buffer, *arguments(0, 1)) }
      end
      File.unlink(file.path)
    RUBY
  end

  # The kernel writes to it.
  def test_a_buffer_is_locked_while_it_is_lent
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        buffer = IO::Buffer.new(8)
        met = nil
        satisfy = -> { met = [buffer.locked?, outcome { buffer.free }.first]; writer << 'a' }
        same(1) { beside(satisfy) { buffer.read(reader, 1) } }
        same([true, IO::Buffer::LockedError]) { met }
        same(false) { buffer.locked? }
        same(1) { beside(-> { writer << 'b' }) { buffer.locked { hooks.io_read(reader, buffer, 1) } } }
        same(false) { buffer.locked? }
      end
    RUBY
  end

  def test_what_had_come_before_a_read_was_broken_off_comes_again
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        buffer = IO::Buffer.new(8)
        writer << 'abc'
        same(Timeout::Error) { beside_nothing { outcome { Timeout.timeout(0.005) { buffer.read(reader, 6) } }.first } }
        same(false) { buffer.locked? }
        writer << 'def'
        Fiber.schedule { same('abcdef') { reader.read(6) } }
      end
    RUBY
  end

  def test_stock_methods_of_io
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        lines = ["a\n", 'b', 'cde', "f\n", "g\nh"]
        satisfy = -> { lines.each { |text| writer.write(text); sleep 0.001 }; writer.close }
        same(["a\n", 'b', 'cd', "ef\n", ["g\n", 'h']]) do
          beside(satisfy) { [reader.gets, reader.getc, reader.read(2), reader.readline, reader.each_line.to_a] }
        end
        one, other = UNIXSocket.pair
        same('hello') { beside(-> { other.send('hello', 0) }) { one.recv(10) } }
        same('hello') { beside(-> { other.write('hello') }) { one.readpartial(10) } }
      end
    RUBY
  end

  def test_connections
    assert_alone <<~'RUBY'
      thread do
        server = TCPServer.new('127.0.0.1', 0)
        port = server.addr[1]
        client = nil
        same('127.0.0.1') { beside(-> { client = TCPSocket.new('localhost', port) }) { server.accept.peeraddr(false)[3] } }
        udp = UDPSocket.new.tap { |socket| socket.bind('127.0.0.1', 0) }
        same('hello') { beside(-> { UDPSocket.new.send('hello', 0, '127.0.0.1', udp.addr[1]) }) { udp.recvfrom(9).first } }
      end
    RUBY
  end

  def test_net_http
    assert_alone <<~'RUBY'
      require 'net/http'
      thread do
        server = TCPServer.new('127.0.0.1', 0)
        release = Thread::Queue.new
        Fiber.schedule do
          3.times do
            client = server.accept
            Fiber.schedule do
              nil until client.gets == "\r\n"
              release.pop
              client << "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
              client.close
            end
          end
        end
        gets = lambda do
          done = Thread::Queue.new
          3.times { Fiber.schedule { done << Net::HTTP.get(URI("http://localhost:#{server.addr[1]}/")) } }
          Array.new(3) { done.pop }
        end
        same(%w[hello] * 3) { beside(-> { 3.times { release << 1 } }, &gets) }
      end
    RUBY
  end

  # --- processes ----------------------------------------------------------------------------------------------

  def test_process_wait
    assert_alone <<~'RUBY'
      def child(status)
        reader, writer = IO.pipe
        pid = Process.spawn("read line; exit #{status}", in: reader)
        reader.close
        [pid, -> { writer.close }]
      end

      thread do
        pid, finish = child(3)
        same(nil) { hooks.process_wait(pid, Process::WNOHANG) }
        same([pid, 3]) { beside(finish) { hooks.process_wait(pid, 0).then { |status| [status.pid, status.exitstatus] } } }

        pid, finish = child(4)
        same([pid, 4]) { beside(finish) { [Process.wait(pid), $?.exitstatus] } }
        pid, finish = child(5)
        same([pid, 5]) { beside(finish) { Process.wait2(-1).then { |id, status| [id, status.exitstatus] } } }
        pid, finish = child(6)
        same(6) { beside(finish) { Process.detach(pid).value.exitstatus } }
        same(Errno::ECHILD) { result = nil; Fiber.schedule { result = outcome { Process.wait(pid) }.first }; result }
      end
    RUBY
  end

  def test_commands
    assert_alone <<~'RUBY'
      thread do
        same(["hello\n", true, 3]) { beside_nothing { [`sleep 0.005; echo hello`, system('exit 0'), (system('exit 3'); $?.exitstatus)] } }
        pipe = IO.popen('cat', 'r+')
        same("hello\n") { beside(-> { pipe.puts 'hello'; pipe.close_write }) { pipe.read } }
        same(0) { result = nil; Fiber.schedule { pipe.close; result = $?.exitstatus }; hooks.run; result }
      end
    RUBY
  end

  # --- names --------------------------------------------------------------------------------------------------

  def test_a_lookup_does_not_stop_the_others
    library = Polyphony::SlowNames.library or skip 'slow_names.c cannot be compiled here'
    assert_alone <<~'RUBY', env: { 'LD_PRELOAD' => [ENV['LD_PRELOAD'], library].compact.join(':') }
      began_reader, began = IO.pipe
      gate, gate_writer = IO.pipe
      ENV['SLOW_NAMES'] = "#{began.fileno},#{gate.fileno}"
      go_on = -> { began_reader.readpartial(1); gate_writer << '.' }
      thread do
        same(['127.0.0.1']) { beside(go_on) { hooks.address_resolve('hang') } }
        same(['127.0.0.1']) { beside(go_on) { Addrinfo.getaddrinfo('hang', 80, :INET, :STREAM).map(&:ip_address) } }
        same(['127.0.0.1']) { hooks.address_resolve('127.0.0.1') }
        same('getaddrinfo: Name or service not known') { outcome { hooks.address_resolve('nosuch') }.last[/getaddrinfo.*/] } if RUBY_VERSION < '3.4'
        next unless RUBY_VERSION < '3.4' # there TCPSocket looks for both families by itself, and asks nobody

        server = TCPServer.new('127.0.0.1', 0)
        # Ruby 3.4 asks no scheduler while it tries several addresses at once.
        one_by_one = Socket.respond_to?(:tcp_fast_fallback) ? { fast_fallback: false } : {}
        same(server.addr[1]) { beside(go_on) { TCPSocket.new('hang', server.addr[1], **one_by_one).peeraddr(false)[1] } }
      end
    RUBY
  end

  # --- limits -------------------------------------------------------------------------------------------------

  def test_timeout
    assert_alone <<~'RUBY'
      thread do
        same([Timeout::Error, 'execution expired']) { beside_nothing { outcome { Timeout.timeout(0.003) { sleep } } } }
        same([IOError, 'execution expired']) { beside_nothing { outcome { Timeout.timeout(0.003, IOError) { IO.pipe[0].read } } } }
        same([IOError, 'too late']) { beside_nothing { outcome { Timeout.timeout(0.003, IOError, 'too late') { Thread::Queue.new.pop } } } }
        same([IOError, 'too late']) { beside_nothing { outcome { hooks.timeout_after(0.003, IOError, 'too late') { sleep } } } }
        known = IOError.new('too late')
        def known.exception(*) = self # as Timeout does, which looks for it afterwards
        same(true) { beside_nothing { begin; hooks.timeout_after(0.003, known, 'x') { sleep }; rescue IOError => e; e.equal?(known); end } }
        same(60) { beside_nothing { Timeout.timeout(60) { |seconds| sleep 0.001; seconds } } }
        same(:given) { beside_nothing { catch(:out) { Timeout.timeout(60) { sleep 0.001; throw :out, :given } } } }
        same([KeyError, 'mine']) { beside_nothing { outcome { Timeout.timeout(60) { sleep 0.001; raise KeyError, 'mine' } } } }
      end
    RUBY
  end

  def test_nested_timeouts
    assert_alone <<~'RUBY'
      thread do
        same([Timeout::Error, :went_on]) do
          beside_nothing { Timeout.timeout(60, IOError) { [outcome { Timeout.timeout(0.003) { sleep } }.first, :went_on] } }
        end
        same([IOError, 'outer']) do
          beside_nothing do
            outcome { Timeout.timeout(0.003, IOError, 'outer') { begin; Timeout.timeout(60) { sleep }; rescue Timeout::Error; :inner; end } }
          end
        end
      end
    RUBY
  end

  # Limits that come in every order, in fibers that schedule others within them.
  def test_a_timeout_never_strikes_another_fiber
    assert_alone <<~'RUBY'
      thread do
        struck = Hash.new(0)
        unhurt = 0
        30.times do |i|
          Fiber.schedule do
            Timeout.timeout(0.001 * (i % 5 + 1), IOError, i.to_s) do
              Fiber.schedule { sleep 0.015; unhurt += 1 }
              sleep
            end
          rescue IOError => e
            struck[[i, e.message]] += 1
            sleep 0.01
            unhurt += 1
          end
          Fiber.schedule { Timeout.timeout(60) { sleep 0.001 * (i % 7) }; unhurt += 1 }
        end
        hooks.run
        same(30.times.to_h { |i| [[i, i.to_s], 1] }) { struck }
        same(90) { unhurt }
      end
    RUBY
  end

  def test_fiber_interrupt
    assert_alone <<~'RUBY'
      thread do
        reader, = IO.pipe
        waits = [-> { reader.read(1) }, -> { sleep }, -> { Thread::Queue.new.pop }, -> { hooks.block(:gate) }]
        waits.each do |wait|
          fiber = nil
          same([IOError, 'stop']) do
            beside(-> { hooks.fiber_interrupt(fiber, IOError.new('stop')) }) { fiber = Fiber.current; outcome(&wait) }
          end
        end
      end
    RUBY
  end

  # --- the fibers of Fiber.schedule -----------------------------------------------------------------------------

  def test_taking_turns
    assert_alone <<~'RUBY'
      thread do
        turns = []
        2.times { |i| Fiber.schedule { 3.times { turns << i; hooks.yield } } }
        hooks.run
        same([0, 1, 0, 1, 0, 1]) { turns }
      end
    RUBY
  end

  def test_work_beside_everything_else
    assert_alone <<~'RUBY'
      thread do
        go = Thread::Queue.new
        same([nil, 5]) { result = nil; [beside(-> { go << 5 }) { hooks.__send__(:__compute, -> { result = go.pop }) }, result] }
      end
    RUBY
  end

  def test_its_threads_are_there_once
    assert_alone <<~'RUBY'
      counts = Array.new(3) do
        thread { hooks.__send__(:__compute, -> {}) }
        Thread.list.size
      end
      same(1) { counts.uniq.size }
    RUBY
  end

  def test_closing_does_not_switch
    assert_alone <<~'RUBY'
      thread do
        log = []
        ios = [*IO.pipe, *UNIXSocket.pair, File.open('/dev/null', 'w') << 'a']
        Fiber.schedule { ios.each(&:close); log << :closed }
        log << :behind
        same(%i[closed behind]) { log }
      end
    RUBY
  end

  def test_a_scheduled_fiber_runs_at_once_until_it_waits
    assert_alone <<~'RUBY'
      log = []
      thread do
        fiber = Fiber.schedule { log << Fiber.current.blocking?; sleep 0.001; log << :late }
        log << fiber.class << fiber.alive?
      end
      same([false, Fiber, true, :late]) { log }
      same([RuntimeError, 'No scheduler is available!']) { outcome { Fiber.schedule {} } }
      same([RuntimeError, 'No scheduler is available!']) { spin { outcome { Fiber.schedule {} } }.await }
    RUBY
  end

  def test_they_are_waited_for
    assert_alone <<~'RUBY'
      log = []
      again = ->(left) { Fiber.schedule { sleep 0.001; log << left; again.(left - 1) if left > 1 } }
      thread { again.(3) }                                      # the end of the thread
      same([3, 2, 1]) { log.slice!(0..) }
      thread { again.(2); hooks.run; same([2, 1]) { log.dup }; again.(1) }
      same([2, 1, 1]) { log.slice!(0..) }
      thread { again.(2); Fiber.set_scheduler(nil); same([2, 1]) { log.slice!(0..) } }
      thread { spin { again.(2) }.await }                       # whoever has scheduled it may end before
      same([2, 1]) { log.slice!(0..) }
      Fiber.set_scheduler(Polyphony::Scheduler.new)
      again.(2)
      at_exit { same([2, 1]) { log } }
    RUBY
  end

  def test_in_spun_fibers
    assert_alone <<~'RUBY'
      thread do
        reader, writer = IO.pipe
        lines = []
        spun = spin do
          Fiber.schedule { lines << reader.gets }
          sleep 0.001
          writer.puts 'hello'
          :spun
        end
        same(:spun) { spun.await }
        hooks.run
        same(["hello\n"]) { lines }
      end
    RUBY
  end

  def test_an_error_before_the_first_wait_is_raised_where_it_was_scheduled
    assert_alone <<~'RUBY'
      fail_at_once = -> { outcome { Fiber.schedule { raise IOError, 'mine' } } }
      thread do
        same([IOError, 'mine'], &fail_at_once)
        same([IOError, 'mine']) { result = nil; Fiber.schedule { result = fail_at_once.call }; result }
        same([IOError, 'mine']) { spin(&fail_at_once).await }
      end
    RUBY
  end

  def test_a_later_error_is_raised_in_the_main_fiber
    assert_alone <<~'RUBY'
      thread do
        log = []
        Fiber.schedule { Fiber.schedule { sleep 0.001; raise IOError, 'mine' }; sleep 0.003; log << :unhurt }
        same([IOError, 'mine']) { outcome { hooks.run } }
        hooks.run
        same([:unhurt]) { log }
      end
      same([IOError, 'mine']) { outcome { thread { Fiber.schedule { sleep 0.001; raise IOError, 'mine' } } } }
    RUBY
  end

  # Nobody could wait for them any more.
  def test_if_the_last_wait_is_broken_off_they_are_stopped
    assert_alone <<~'RUBY'
      def begin_and_end(log)
        Fiber.schedule { begin; sleep; ensure; sleep 0.001; log << :ended; end }
      end
      log = []
      same([IOError, 'mine']) { outcome { thread { begin_and_end(log); Fiber.schedule { sleep 0.001; raise IOError, 'mine' } } } }
      same([:ended]) { log.slice!(0..) }
      same([IOError, 'mine']) do
        outcome { thread { begin_and_end(log); me = Thread.current; Thread.new { Thread.pass until me.stop?; me.raise(IOError, 'mine') } } }
      end
      same([:ended]) { log.slice!(0..) }
      killed = Thread.new { Fiber.set_scheduler(Polyphony::Scheduler.new); begin_and_end(log) }
      wait_until { killed.stop? }
      killed.kill.join
      same([:ended]) { log }
    RUBY
  end

  def test_many
    heavy
    assert_alone <<~'RUBY'
      thread do
        count = 0
        2000.times { Fiber.schedule { sleep 0.001; count += 1 } }
        hooks.run
        same(2000) { count }
      end
    RUBY
  end

  def test_a_forked_child_has_its_own
    assert_alone <<~'RUBY'
      reader, writer = IO.pipe
      Fiber.set_scheduler(Polyphony::Scheduler.new)
      Fiber.schedule { sleep }
      status = nil
      pid = fork { Fiber.schedule { sleep 0.001; writer << 'child' }; hooks.run; writer.close; exit!(0) }
      Fiber.schedule { status = Process.wait2(pid).last; writer.close }
      Fiber.schedule { same('child') { reader.read }; same(true) { status.success? }; $stdout.syswrite('ok'); exit!(0) }
      hooks.run
    RUBY
  end
end
