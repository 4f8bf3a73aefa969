# frozen_string_literal: true

require_relative '../test_helper'

# Forking: from main and from a spun fiber, with and without a block, while the parent waits.
class TestFork < Polyphony::TestCase
  on_every_driver

  # Runs a program that forks; all it prints, parent and child, line by line.
  def lines_of(code)
    out, err, status = run_ruby("require 'polyphony'; $stdout.sync = true\n#{code}")
    assert status.success?, "#{err}\n#{out}"
    assert_empty err
    out.lines(chomp: true)
  end

  # --- the child works ---------------------------------------------------------------------------------

  CHILD_WORK = <<~'RUBY'
    def work
      reader, writer = IO.pipe
      fiber = spin { Polyphony.backend_read(reader, +'', 100, false, 0) }
      spin { sleep 0.001; Polyphony.backend_write(writer, 'bytes') }
      [fiber.await, sleep(0.001), Polyphony.backend_stat('/')[:mode].positive?, Fiber.current.main?]
    end
  RUBY

  def test_a_child_forked_from_main_with_a_block_can_do_everything
    assert_equal ['["bytes", 0, true, true]', '0'], lines_of(<<~RUBY)
      #{CHILD_WORK}
      pid = fork { p work }
      Process.wait(pid)
      p $?.exitstatus
    RUBY
  end

  def test_a_child_forked_from_main_without_a_block_can_do_everything
    assert_equal ['["bytes", 0, true, true]', '0'], lines_of(<<~RUBY)
      #{CHILD_WORK}
      unless (pid = fork)
        p work
        exit
      end
      Process.wait(pid)
      p $?.exitstatus
    RUBY
  end

  def test_a_child_forked_from_a_spun_fiber_with_a_block_can_do_everything
    assert_equal ['["bytes", 0, true, true]', '0'], lines_of(<<~RUBY)
      #{CHILD_WORK}
      pid = spin { fork { p work } }.await
      Process.wait(pid)
      p $?.exitstatus
    RUBY
  end

  def test_a_child_forked_from_a_spun_fiber_without_a_block_can_do_everything
    assert_equal ['["bytes", 0, true, true]', '0'], lines_of(<<~RUBY)
      #{CHILD_WORK}
      pid = spin do
        pid = fork
        p work unless pid
        pid
      end.await
      Process.wait(pid)
      p $?.exitstatus
    RUBY
  end

  def test_the_driver_is_the_same_and_fresh
    assert_equal %w[true true], lines_of(<<~RUBY)
      kind = Polyphony.backend_kind
      sleep 0.001
      Process.wait(fork { p Polyphony.backend_kind == kind })
      p Polyphony.backend_kind == kind
    RUBY
  end

  def test_a_child_of_a_child
    assert_equal %w[grandchild child parent], lines_of(<<~RUBY)
      spin { sleep }
      Process.wait(fork do
        sleep 0.001
        Process.wait(fork { sleep 0.001; puts 'grandchild' })
        puts 'child'
      end)
      sleep 0.001
      puts 'parent'
    RUBY
  end

  # --- only the forking fiber lives on ---------------------------------------------------------------------

  def test_other_fibers_do_not_run_in_the_child
    assert_equal ['child of main: [] 0', 'child of a fiber: [] 0', 'ticked: true'], lines_of(<<~RUBY)
      here = Process.pid
      ticks = 0
      foreign = 0
      spin { loop { Process.pid == here ? ticks += 1 : foreign += 1; sleep 0.0005 } }
      spin { loop { Process.pid == here ? ticks += 1 : foreign += 1; snooze } }
      sleep 0.002
      Process.wait(fork { sleep 0.01; puts "child of main: \#{Fiber.current.children} \#{foreign}" })
      fiber = spin { fork { sleep 0.01; puts "child of a fiber: \#{Fiber.current.children} \#{foreign}" } }
      Process.wait(fiber.await)
      puts "ticked: \#{ticks > 3}"
      exit!(0)
    RUBY
  end

  def test_the_parents_main_fiber_does_not_run_in_a_child_forked_from_a_fiber
    assert_equal %w[fiber main], lines_of(<<~RUBY)
      pid = nil
      fiber = spin do
        pid = fork
        next if pid
        sleep 0.005
        puts 'fiber'
      end
      fiber.await
      Process.wait(pid)
      puts 'main'
    RUBY
  end

  def test_a_fiber_parked_in_a_queue_of_the_parent_is_not_woken_in_the_child
    assert_equal %w[[:one] parent:two], lines_of(<<~RUBY)
      queue = Polyphony::Queue.new
      taker = spin { puts "parent:\#{queue.shift}" }
      2.times { snooze }
      Process.wait(fork { queue << :one; sleep 0.005; p queue.shift_all })
      queue << :two
      taker.await
    RUBY
  end

  def test_a_fiber_that_was_woken_in_the_parent_takes_nothing_along_into_the_child
    assert_equal ['[:one]', 'parent:one'], lines_of(<<~RUBY).sort
      queue = Polyphony::Queue.new
      taker = spin { puts "parent:\#{queue.shift}" }
      2.times { snooze }
      queue << :one
      Process.wait(fork { p [queue.shift(true)] })
      taker.await
    RUBY
  end

  def test_fibers_of_the_parent_are_dead_in_the_child
    assert_equal ['[:dead, nil, nil]', ':waiting'], lines_of(<<~RUBY)
      fiber = spin { sleep }
      snooze
      Process.wait(fork { p [fiber.state, fiber.stop, fiber.await] })
      p fiber.state
    RUBY
  end

  def test_a_generator_of_the_forking_fiber_goes_on_in_the_child
    assert_equal %w[2 2], lines_of(<<~RUBY)
      numbers = Enumerator.new { |y| 3.times { |i| sleep 0.001; y << i + 1 } }
      numbers.next
      Process.wait(fork { p numbers.next })
      p numbers.next
    RUBY
  end

  def test_a_timeout_around_the_fork_goes_on_in_the_child
    assert_equal %w[late ok], lines_of(<<~RUBY)
      move_on_after(1000) do
        Process.wait(fork { puts move_on_after(0.005, with_value: :late) { sleep } })
      end
      pid = nil
      cancel_after(0.05, with_exception: 'too slow') do
        unless (pid = fork)
          begin
            sleep
          rescue RuntimeError
            puts 'ok'
            exit!(0)
          end
        end
      end
      Process.wait(pid)
    RUBY
  end

  # --- the parent is not disturbed --------------------------------------------------------------------------

  def test_what_the_parent_has_in_flight_goes_on
    assert_equal ['child', 'accepted', 'bytes', 'slept'], lines_of(<<~RUBY)
      require 'socket'
      reader, writer = IO.pipe
      server = TCPServer.new('127.0.0.1', 0)
      reading = spin { Polyphony.backend_read(reader, +'', 100, false, 0) }
      accepting = spin { Polyphony.backend_accept(server, TCPSocket) }
      sleeping = spin { sleep 0.05; :slept }
      sleep 0.001
      pid = fork do
        sleep 0.005
        puts 'child'
        exit
      end
      Process.wait(pid)
      client = Socket.tcp('127.0.0.1', server.local_address.ip_port)
      puts accepting.await.is_a?(TCPSocket) ? 'accepted' : 'no'
      Polyphony.backend_write(writer, 'bytes')
      puts reading.await
      puts sleeping.await
      client.close
    RUBY
  end

  def test_a_read_in_flight_in_the_parent_takes_nothing_for_the_child
    assert_equal %w[parent:hello], lines_of(<<~RUBY)
      reader, writer = IO.pipe
      reading = spin { Polyphony.backend_read(reader, +'', 100, false, 0) }
      sleep 0.001
      Process.wait(fork { Polyphony.backend_write(writer, 'hello') })
      puts "parent:\#{reading.await}"
    RUBY
  end

  def test_twenty_forks_in_turn_while_fibers_are_at_work
    assert_equal ['20', 'true'], lines_of(<<~RUBY)
      ticks = 0
      spin { loop { ticks += 1; sleep 0.0005 } }
      good = 20.times.count do |i|
        Process.wait(fork { sleep 0.0005; exit!(spin { i }.await == i ? 0 : 1) })
        $?.success?
      end
      sleep 0.02
      p good, ticks > 3
    RUBY
  end

  def test_the_descriptors_of_the_parents_backend_are_not_left_open_in_the_child
    skip 'no /proc/self/fd' unless File.directory?('/proc/self/fd')
    assert_equal %w[0], lines_of(<<~RUBY)
      count = -> { Dir.children('/proc/self/fd').size }
      sleep 0.001
      parent = count.call
      Process.wait(fork { sleep 0.001; p [count.call - parent, 0].max })
    RUBY
  end

  # --- threads -----------------------------------------------------------------------------------------------

  def test_forking_while_other_threads_wait
    assert_equal %w[child thread parent], lines_of(<<~RUBY)
      queue = Polyphony::Queue.new
      thread = Thread.new { puts queue.shift }
      sleep 0.005
      Process.wait(fork { sleep 0.001; puts 'child' })
      queue << 'thread'
      thread.join
      puts 'parent'
    RUBY
  end

  def test_forking_in_a_thread
    assert_equal %w[child status:0], lines_of(<<~RUBY)
      Thread.new do
        spin { sleep }
        sleep 0.001
        Process.wait(fork { sleep 0.001; puts 'child' })
        puts "status:\#{$?.exitstatus}"
      end.join
    RUBY
  end

  # --- the end -------------------------------------------------------------------------------------------------

  def test_the_exit_status_is_right_whichever_way_the_child_ends
    assert_equal %w[0 7 1 0 7 1 9], lines_of(<<~RUBY)
      status = ->(pid) { Process.wait(pid); $?.exitstatus || $?.termsig }
      $stderr.reopen(File::NULL)
      p status[fork { nil }], status[fork { exit 7 }], status[fork { raise 'x' }]
      p status[spin { fork { nil } }.await], status[spin { fork { exit 7 } }.await]
      p status[spin { fork { raise 'x' } }.await]
      p status[spin { fork { Process.kill(:KILL, $$) } }.await]
    RUBY
  end

  def test_a_spun_fiber_that_forked_without_a_block_ends_its_process
    assert_equal %w[7 1 0], lines_of(<<~RUBY)
      $stderr.reopen(File::NULL)
      { exit: -> { exit 7 }, error: -> { raise 'x' }, nothing: -> {} }.each_value do |ending|
        pid = spin { fork.tap { |pid| ending.call unless pid } }.await
        Process.wait(pid)
        p $?.exitstatus
      end
    RUBY
  end

  def test_at_exit_handlers_run_once_in_the_child_in_their_order
    assert_equal ['child 2', 'child 1', 'main 1'], lines_of(<<~RUBY)
      here = Process.pid
      at_exit { puts 'main 1' if Process.pid == here }
      pid = spin do
        fork do
          at_exit { sleep 0.001; puts 'child 1' }
          at_exit { puts 'child 2' }
        end
      end.await
      Process.wait(pid)
    RUBY
  end

  def test_children_of_the_childs_main_fiber_are_shut_down_when_it_ends
    assert_equal ['tidy', 'parent'], lines_of(<<~RUBY)
      pid = fork do
        spin do
          sleep
        ensure
          sleep 0.001
          puts 'tidy'
        end
        snooze
      end
      Process.wait(pid)
      puts 'parent'
    RUBY
  end

  def test_a_process_that_is_started_otherwise_is_not_disturbed
    assert_equal %w[spawned popen backtick], lines_of(<<~'RUBY')
      spin { loop { sleep 0.001 } }
      Process.wait(Process.spawn('echo spawned'))
      IO.popen('echo popen') { |io| puts io.read }
      puts `echo backtick`
    RUBY
  end
end
