# frozen_string_literal: true

require_relative '../test_helper'

# Ractors run beside each other, without the lock that Polyphony's state is kept by. In all but the main one,
# stock methods are stock.
class TestRactor < Polyphony::TestCase
  on_every_driver

  BEGINNING = <<~'RUBY'
    require 'polyphony'
    $VERBOSE = nil # they are experimental
    def in_ractor(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
    sleep 0.001 # the main thread has a backend
    $stdout.sync = true
  RUBY

  WORDS = {
    'sleep 0.001; 1' => '1',
    'reader, writer = IO.pipe; writer.puts "x"; writer.close; reader.gets' => '"x\n"',
    '$stdout.puts("printed"); $stdout.flush; 1' => "printed\n1",
    'Class.new(IOError) { def more = 7 }.new.more' => '7',
    'File.read("/dev/null")' => '""',
    'File.open("/dev/null", "w") { |file| file.write("x") }' => '1',
    '`echo x`' => '"x\n"',
    '[system("exit 3"), IO.popen("echo x", &:read)]' => '[false, "x\n"]',
    'IO.select(nil, nil, nil, 0.001)' => 'nil',
    'Thread.new { sleep 0.001; 3 }.value' => '3',
    'Thread.start { 4 }.value' => '4',
    'begin; Timeout.timeout(0.001) { sleep }; rescue Timeout::Error => e; e.message; end' => '"execution expired"',
    'Thread.handle_interrupt(IOError => :never) { Process.kill(0, Process.pid) }' => '1',
    'Addrinfo.getaddrinfo("localhost", 80, :INET, :STREAM).size.positive?' => 'true',
    'Mutex.new.synchronize { 4 }' => '4',
    'queue = Queue.new; Thread.new { queue << 5 }; queue.pop' => '5',
    'begin; raise "x"; rescue => e; [e.message, e.backtrace.empty?]; end' => '["x", false]',
    'begin; File.open("/nonexistent"); rescue => e; e.class; end' => 'Errno::ENOENT',
    'Fiber.new { Fiber.yield 1 }.resume' => '1',
    '[1, 2].each.next' => '1',
    'Process.wait2(spawn("exit 6")).last.exitstatus' => '6',
    'server = TCPServer.new("127.0.0.1", 0); TCPSocket.new("127.0.0.1", server.addr[1]).close; server.accept.read' => '""'
  }.freeze

  def test_stock_methods_in_another_ractor
    # Ruby's own Timeout has a constant that only the main one may use, since 3.2.
    words = RUBY_VERSION < '3.2' ? WORDS : WORDS.reject { |word, _| word.include?('Timeout') }
    code = words.keys.map { |word| "p in_ractor(Ractor.new { #{word} })" }.join("\n")
    out, err, = run_ruby("#{BEGINNING}#{code}")
    assert_equal words.values.join("\n"), out.chomp, err
  end

  # Who waits for which lock is known in the main one; the others unlock theirs at the same time.
  def test_locks_of_other_ractors_beside_those_that_fibers_wait_for
    heavy
    out, err, status = run_ruby("#{BEGINNING}#{<<~'RUBY'}")
      ractors = Array.new(2) { Ractor.new { mutex = Mutex.new; 2_000_000.times { mutex.synchronize { nil } }; :done } }
      thread = Thread.new { ractors.map { |ractor| in_ractor(ractor) } }
      locks = Array.new(20) { Mutex.new }
      fibers = Array.new(40) { spin { locks.sample.synchronize { snooze } while thread.alive? } }
      fibers.each(&:await)
      p thread.value
    RUBY
    assert status.success?, err[0, 2000]
    assert_equal "[:done, :done]\n", out
  end

  def test_an_error_of_another_ractor_comes_to_who_takes_from_it
    out, err, = run_ruby("#{BEGINNING}#{<<~'RUBY'}")
      Thread.report_on_exception = false
      begin
        in_ractor(Ractor.new { raise 'in there' })
      rescue Ractor::RemoteError => e
        puts e.cause.message
      end
    RUBY
    assert_equal "in there\n", out, err
  end

  def test_fibers_are_of_the_main_ractor
    out, err, = run_ruby("#{BEGINNING}#{<<~'RUBY'}")
      p in_ractor(Ractor.new { begin; spin { 1 }.await; rescue Ractor::UnsafeError => e; e.class; end })
      p spin { sleep 0.001; in_ractor(Ractor.new { 2 }) }.await
    RUBY
    assert_equal "Ractor::UnsafeError\n2\n", out, err
  end
end
