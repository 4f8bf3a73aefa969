# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/terminal'
require 'json'
require 'tmpdir'
require 'polyphony/tools/attach/client'

# `polyphony tree` and `polyphony top` look at programs that know nothing of it.
class TestAttach < Polyphony::TestCase
  on_every_driver
  time_limit 120

  EXE = File.join(POLYPHONY_ROOT, 'exe/polyphony')
  ENVIRONMENT = { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'BUNDLER_SETUP' => nil }.freeze
  PROGRAM = <<~RUBY
    require 'polyphony'
    $stdout.sync = true
    queue = Polyphony::Queue.new
    lock = Polyphony::Mutex.new
    spin(:shop) do
      spin(:clerk) { queue.shift }
      spin(:owner) { lock.synchronize { sleep 600 } }
      spin(:thief) { sleep 0.01; lock.lock }
      suspend
    end
    spin(:victim) { begin; suspend; ensure; puts 'cancelled'; end }
    puts 'ready'
    sleep 600
  RUBY

  # @yield [pid, its output]
  def program(code = PROGRAM, env: {})
    reader, writer = IO.pipe
    pid = Process.spawn(ENVIRONMENT.merge(env), RbConfig.ruby, '--disable-gems', "-I#{POLYPHONY_LIB}", '-e', code, out: writer)
    writer.close
    assert_equal "ready\n", reader.gets
    yield pid, reader
  ensure
    writer.close unless writer.closed?
    if pid
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
    reader.close
  end

  def command(*words, **options)
    run_ruby('load ARGV.shift', EXE, *words.map(&:to_s), gems: true, **options)
  end

  def socket_of(pid)
    Polyphony.const_get(:Attach).const_get(:Place).socket(pid)
  end

  def test_the_tree_of_a_running_program
    program do |pid|
      refute File.exist?(socket_of(pid)), 'nothing is opened before somebody asks'
      out, err, status = command('tree', pid)
      assert_predicate status, :success?, err
      assert_match(/^     ├─ #<Fiber clerk:.* waits for an item in a queue|^  │  ├─ #<Fiber clerk:.* waits for an item in a queue/, out)
      assert_match(/thief:.* waits for a lock .* held by #<Fiber owner:/, out)
      refute_match(/attach/, out)
      data = JSON.parse(command('tree', pid, '--json').first)
      assert_equal pid, data['pid']
      out, = command('tree', '--html', pid)
      assert_match(/\A<!doctype html>/, out)
      assert_match(/"tag":"clerk"/, out)
    end
  end

  def test_the_socket_is_its_users_alone
    program do |pid|
      command('tree', pid)
      assert_equal 0o600, File.stat(socket_of(pid)).mode & 0o777
      assert_equal 0o700, File.stat(File.dirname(socket_of(pid))).mode & 0o777
    end
  end

  # Nothing is evaluated, and nobody is disturbed.
  def test_what_killed_programs_have_left_is_taken_away
    left, alive = [1_000_001, 1_000_002].map { |number| socket_of("#{Process.pid}#{number}") }
    Polyphony.const_get(:Attach).const_get(:Place).prepare
    UNIXServer.new(left).close
    track(UNIXServer.new(alive))
    [left, alive].each { |path| File.utime(Time.now - 100, Time.now - 100, path) }
    program { |pid| assert_predicate command('tree', pid).last, :success? }
    refute File.exist?(left)
    assert File.exist?(alive)
  ensure
    [left, alive].each { |path| File.unlink(path) if path && File.exist?(path) }
  end

  def test_a_program_with_odd_names_can_be_looked_at
    odd = 'class Odd; def to_s = raise("no \xff"); end; [Odd.new, "\xff\xfe".b, "wide".encode("UTF-16LE")].each { |tag| spin(tag) { suspend } }'
    program(PROGRAM.sub("puts 'ready'") { "#{odd}\nputs 'ready'" }) do |pid|
      out, err, status = command('tree', pid)
      assert_predicate status, :success?, err
      assert_match(/cannot be shown \(RuntimeError\)/, out)
      UNIXSocket.open(socket_of(pid)) do |socket|
        ask = ->(question) { socket.puts(JSON.generate(question)); JSON.parse(socket.gets) }
        ids = ask.({ do: 'tree' })['threads'].flat_map { |thread| thread['fibers'] }.flat_map { |fiber| fiber['children'] }.map { |fiber| fiber['id'] }
        assert_equal 5, ids.size
        ids.each { |id| assert_includes ask.({ do: 'backtrace', id: id }), 'backtrace' }
        ids.each { |id| assert_equal true, ask.({ do: 'cancel', id: id })['cancelled'] }
      end
    end
  end

  # A tag may be what a client sent. It moves no cursor, and stays in its line.
  def test_names_do_not_steer_the_terminal
    odd = 'spin("nul\\0 red\\e[31m\\nline\\u202eback") { suspend }; Thread.current.name = "home\\e[H"'
    program(PROGRAM.sub("puts 'ready'") { "#{odd}\nputs 'ready'" }) do |pid|
      out, err, status = command('tree', pid)
      assert_predicate status, :success?, err
      assert_match(/^  └─ #<Fiber nul\\x00 red\\e\[31m\\nline\\u202Eback:\d+ -e:\d+> waits for/, out)
      refute_match(/[\0\e\u202e]/, out)
      tags = JSON.parse(command('tree', pid, '--json').first)['threads'][0]['fibers'][0]['children'].map { |fiber| fiber['tag'] }
      assert_includes tags, "nul\0 red\e[31m\nline\u202eback"
      top(pid) do |terminal|
        terminal.expect(/FIBER/)
        terminal.type("/nul\rcn")
        terminal.expect(/not cancelled/)
        terminal.type('cy')
        terminal.expect(/^nul\\x00 red\\e\[31m\\nline\\u202Eback \(\d+\) has been told to end/)
        terminal.type('q')
        terminal.status
      end
    end
  end

  def test_questions_that_make_no_sense
    program do |pid|
      command('tree', pid)
      UNIXSocket.open(socket_of(pid)) do |socket|
        ['{"do":"eval","id":"exit"}', 'exit!', '[1]', '{"do":"cancel","id":"1"}', '{"do":"cancel","id":1}', '{"do":"backtrace","id":99999}'].each do |line|
          socket.puts(line)
          assert JSON.parse(socket.gets)['error'], line
        end
        socket.puts('{"do":"tree"}')
        assert JSON.parse(socket.gets)['threads']
      end
    end
  end

  def test_a_program_that_computes_is_seen_as_it_is
    program("require 'polyphony'\n$stdout.sync = true\nspin(:waiter) { sleep 600 }\nsnooze\nputs 'ready'\nloop { 1 + 1 }\n") do |pid|
      out, err, = command('tree', '--wait', patient(50), pid, timeout: 55)
      assert_match(/in -e:6:in/, out, err)
      assert_match(/waiter:.* waits for time to pass/, out)
    end
  end

  def test_a_forked_child_has_a_socket_of_its_own
    code = "require 'polyphony'\n$stdout.sync = true\npid = fork { spin(:of_the_child) { sleep 600 }; puts 'ready'; puts Process.pid; sleep 600 }\n" \
           "Process.wait(pid)\n"
    program(code) do |_pid, output|
      child = Integer(output.gets)
      assert_match(/of_the_child/, command('tree', child).first)
    ensure
      Process.kill(:KILL, child)
    end
  end

  def test_programs_that_do_not_listen
    _, err, status = command('tree', Process.pid.to_s, '--wait', '0.1') if Signal.trap('URG', 'SYSTEM_DEFAULT')
    assert_equal 1, status.exitstatus
    assert_match(/does not listen/, err)
    program(env: { 'POLYPHONY_ATTACH' => 'off' }) { |pid| assert_match(/does not listen: .*POLYPHONY_ATTACH=off/, command('tree', pid)[1]) }
    assert_match(/there is no process/, command('tree', '4194304')[1])
    assert_equal 64, command('tree')[2].exitstatus
    assert_equal 64, command('tree', 'x')[2].exitstatus
  ensure
    Signal.trap('URG', 'DEFAULT')
  end

  # The program's own handler is its own; trap answers as in stock Ruby.
  def test_a_program_that_uses_the_signal_itself
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      p trap('URG') { puts 'mine' }
      Process.kill('URG', Process.pid)
      p trap('URG', 'DEFAULT').class, trap('URG', 'IGNORE'), trap('URG', 'SYSTEM_DEFAULT')
    RUBY
    assert_predicate status, :success?, err
    assert_equal %("SYSTEM_DEFAULT"\nmine\nProc\n"DEFAULT"\n"IGNORE"\n), out
  end

  def test_an_inherited_ignore_stays
    assert_equal "\"IGNORE\"\n", IO.popen([ENVIRONMENT, 'sh', '-c', 'trap "" URG; exec "$@"', '-', RbConfig.ruby, '--disable-gems', "-I#{POLYPHONY_LIB}",
                                          '-e', "require 'polyphony'; p trap('URG', 'DEFAULT')"], &:read)
  end

  # --- top ----------------------------------------------------------------------------------------------

  def top(pid, *words, &block)
    Terminal.run(ENVIRONMENT.merge('TERM' => 'xterm'), RbConfig.ruby, "-I#{POLYPHONY_LIB}", EXE, 'top', pid.to_s, *words, limit: patient(30), &block)
  end

  def test_top_shows_sorts_filters_and_ends
    program do |pid|
      top(pid, '--every', '0.1') do |terminal|
        terminal.expect(/-e \(#{pid}\): 6 fibers, 0 running, 0 runnable, 6 waiting/)
        terminal.expect(/waiting .* clerk: an item in a queue/)
        terminal.type('s')
        terminal.expect(/sorted by time/)
        terminal.type('/thi')
        terminal.expect(/filter: thi/)
        terminal.expect(/thief: a lock/)
        terminal.type("\r")
        terminal.expect(/s sort/)
        terminal.type('q')
        assert_predicate terminal.status, :success?
      end
    end
  end

  def test_top_shows_a_backtrace
    program do |pid|
      top(pid) do |terminal|
        terminal.expect(/FIBER/)
        terminal.type("/owner\r\r")
        terminal.expect(/#<Fiber owner:/)
        terminal.expect(/-e:7:in/)
        terminal.type("\r")
        terminal.expect(/FIBER/)
        terminal.type("\u0003")
        assert_predicate terminal.status, :success?
      end
    end
  end

  def test_top_cancels_after_a_question
    program do |pid, output|
      top(pid) do |terminal|
        terminal.expect(/FIBER/)
        terminal.type("/victim\rc")
        terminal.expect(%r{cancel victim \(\d+\)\? y/n})
        terminal.type('n')
        terminal.expect(/not cancelled/)
        terminal.type('cy')
        terminal.expect(/victim \(\d+\) has been told to end/)
        assert_equal "cancelled\n", output.gets
        refute_match(/victim/, command('tree', pid).first, 'it has ended, and the program goes on')
        terminal.type('q')
        assert_predicate terminal.status, :success?
      end
    end
  end

  def test_top_ends_with_the_program
    program do |pid|
      top(pid, '--every', '0.1') do |terminal|
        terminal.expect(/FIBER/)
        Process.kill(:TERM, pid)
        terminal.expect(/process #{pid} has ended/)
        assert_equal 1, terminal.status.exitstatus
      end
    end
  end

  def test_top_needs_a_terminal
    program { |pid| assert_match(/no terminal: polyphony tree/, command('top', pid)[1]) }
  end
end
