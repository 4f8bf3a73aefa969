# frozen_string_literal: true

require_relative 'seed_case'

# "Overview". Left out, because they need stock methods to be fiber-aware, gems, or a web server: gets
# beside a counter (a pipe stands in for the keyboard), HTTParty.get in Fiber.select, connection.gets in
# the chat (examples/chat_rooms.rb has a user who reads from an array), the HTTP/1 server, the http_parser
# adapter. restart, Fiber.select, supervise and the pools are in a file of their own.
class TestSeed001 < Polyphony::SeedCase
  on_every_driver

  def test_a_counter_counts_while_main_waits_for_input_and_ends_with_it
    assert_prints "Press return to stop this program\ncount: 1\ncount: 2\nstopped\n", <<~'RUBY'
      input = Polyphony.pipe
      counter = spin do
        count = 1
        loop do
          sleep 0.05
          puts "count: #{count}"
          input << "\n" if count == 2 # the user's finger
          count += 1
        end
      ensure
        puts 'stopped'
      end

      puts 'Press return to stop this program'
      input.gets
    RUBY
  end

  def test_main_suspends_until_all_work_is_done
    assert_prints "Going to sleep...\nWoke up\nWe're done\n", <<~'RUBY'
      spin do
        puts 'Going to sleep...'
        sleep 0.05
        puts 'Woke up'
      end

      suspend
      puts "We're done"
    RUBY
  end

  def test_a_call_may_switch_when_it_waits_or_asks_for_a_switch
    switchpoints = {
      sleep: -> { sleep 0.001 }, snooze: -> { snooze }, await: -> { spin {}.await },
      switch_fiber: -> { Thread.current.switch_fiber }
    }
    switchpoints.each do |name, switchpoint|
      log = []
      main = Fiber.current
      spin { log << :other; main.schedule if name == :switch_fiber }
      switchpoint.call
      assert_equal [:other], log, name
    end
  end

  def test_a_child_lives_no_longer_than_its_parent
    child = nil
    spin { child = spin { sleep }; snooze }.await
    assert_equal :dead, child.state
  end

  def test_an_error_goes_up_to_who_handles_it
    handled = nil
    spin do
      spin do
        spin { raise IOError, 'deep down' }
        sleep
      end
      sleep
    rescue IOError => e
      handled = e.message
    end.await
    assert_equal 'deep down', handled
  end

  def test_an_error_that_nobody_handles_ends_the_program_like_any_other
    out, err, status = run_ruby(<<~'RUBY')
      require 'polyphony'
      spin { spin { raise IOError, 'deep down' }; sleep }
      sleep 10
      puts 'never'
    RUBY
    assert_equal [1, ''], [status.exitstatus, out]
    assert_match(/deep down \(IOError\)/, err)
  end

  def test_await_returns_the_value_of_a_fiber
    a = spin { sleep 0.01; :foo }
    b = spin { a.await }
    assert_equal :foo, b.await
  end

  def test_await_of_several_returns_their_values_in_order
    fibers = Array.new(3) { |i| spin { i * 10 } }
    assert_equal [0, 10, 20], Fiber.await(*fibers)
  end

  CHAT_ROOM = <<~'RUBY'
    def chat_room
      subscribers = []

      loop do
        case receive
        in [:subscribe, subscriber]
          subscribers << subscriber
        in [:unsubscribe, subscriber]
          subscribers.delete subscriber
        in [:add_message, name, message]
          subscribers.each { |s| s.call(name, message) }
        end
      end
    end

    CHAT_ROOMS = Hash.new { |h, n| h[n] = spin { chat_room } }
  RUBY

  # A room is the child of whoever comes first, and ends with that user. The connection is a socket; its disconnect would never match, with the line end on.
  CHAT_USER = <<~'RUBY'
    def chat_user_handler(user_name, connection)
      room = nil
      message_subscriber = proc do |name, message|
        connection.puts "#{name}: #{message}"
      end
      while command = connection.gets
        case command.chomp
        when /^connect (.+)/
          room = CHAT_ROOMS[$1]
          room&.send [:subscribe, message_subscriber]
        when 'disconnect'
          room&.send [:unsubscribe, message_subscriber]
          room = nil
        when /^send (.+)/
          room&.send [:add_message, user_name, $1]
        end
      end
    end
  RUBY

  def test_a_chat_room_is_a_fiber_that_receives_messages
    assert_prints <<~OUT, <<~RUBY
      to ann: ann: hello
      to bob: ann: hello
      to bob: bob: anyone?
      to ann: ann: back
    OUT
      #{CHAT_ROOM}
      #{CHAT_USER}
      # A keyboard with pauses, and a screen.
      Connection = Struct.new(:name, :lines) do
        def gets = (sleep 0.01; lines.shift&.+("\n"))
        def puts(text) = $stdout.puts("to \#{name}: \#{text}")
      end

      ann = Connection.new('ann', ['send nobody hears', 'connect ruby', 'send hello', 'disconnect', 'send unheard',
                                   '', '', 'connect ruby', '', 'send back'])
      bob = Connection.new('bob', ['', 'connect ruby', '', '', 'send anyone?', 'disconnect'])
      users = [ann, bob].map { |user| spin { chat_user_handler(user.name, user) } }
      Fiber.await(*users)
      abort 'one room was asked for' unless CHAT_ROOMS.size == 1
    RUBY
  end

  def test_after_runs_the_block_in_a_fiber_of_its_own
    assert_prints "at once\nnotified\n", <<~'RUBY'
      fiber = after(0.02) { puts 'notified' }
      puts 'at once'
      fiber.await
    RUBY
  end

  # That there is no drift is tested with the timers.
  def test_every_ticks
    ticks = []
    started = clock
    every(0.005) do
      ticks << clock - started
      break if ticks.size == 4

      sleep 0.003
    end
    ticks.each_with_index { |at, i| assert_operator at, :>=, 0.005 * (i + 1), 'too early' }
  end

  def test_move_on_after_ends_an_operation_without_an_exception
    assert_nil(move_on_after(0.005) { sleep 10; :result })
    assert_equal(:result, move_on_after(10) { sleep 0.001; :result })
  end

  def test_cancel_after_ends_an_operation_with_an_exception
    assert_raises(Polyphony::Cancel) { cancel_after(0.005) { sleep 10 } }
    assert_equal(:result, cancel_after(10) { sleep 0.001; :result })
  end

  def test_threads_exchange_messages
    assert_prints "from the other thread: hello\n", <<~'RUBY'
      main = Fiber.current
      thread = Thread.new { main.send [:greeting, receive] }
      sleep 0.001 until thread.main_fiber
      thread.main_fiber.send 'hello'
      case receive
      in [:greeting, text]
        puts "from the other thread: #{text}"
      end
    RUBY
  end

  # The document leaves out how long a chunk may be, and what a connection becomes: later, both are said.
  def test_the_backend_reads_and_accepts_in_loops
    assert_prints "[\"hello\"]\n", <<~'RUBY'
      require 'socket'
      server = TCPServer.new('127.0.0.1', 0)
      chunks = []
      acceptor = spin do
        Thread.current.backend.accept_loop(server, TCPSocket) do |client|
          spin { Thread.current.backend.read_loop(client, 8192) { |data| chunks << data } }
        end
      end
      client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
      Polyphony.backend_write(client, 'hello')
      sleep 0.001 while chunks.empty?
      acceptor.stop
      p chunks
    RUBY
  end
end
