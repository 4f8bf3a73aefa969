# frozen_string_literal: true

require_relative '../test_helper'

# What runs in a child before fork returns there: ours, and what gems have put in front of Process._fork.
class TestForkHooks < Polyphony::TestCase
  on_every_driver

  # Gems that were loaded before Polyphony: theirs runs in the innermost place but for Ruby's own.
  EARLIER = <<~'RUBY'
    module Earlier
      def _fork
        super.tap { |pid| $hook&.call if pid.zero? }
      end
    end
    Process.singleton_class.prepend Earlier
  RUBY

  # A program in which a hook of somebody's raises in the child, and whoever forked goes on whatever happens.
  RESCUED = <<~'RUBY'
    def go_on
      pid = begin
        yield
      rescue Exception => e
        e
      end
      puts "in the place of the parent: #{pid.inspect}" unless Process.pid == PARENT
      Process.wait(pid)
      puts $?.exitstatus
    end
    PARENT = Process.pid
    sleep 0.001
  RUBY

  def program(code, before: '')
    out, err, status = run_ruby("#{before}\nrequire 'polyphony'; $stdout.sync = true\n#{code}")
    assert status.success?, "#{err}\n#{out}"
    [out.lines(chomp: true), err]
  end

  def test_hooks_of_gems_that_were_loaded_before_may_wait
    lines, = program(<<~'RUBY', before: EARLIER)
      spin { loop { sleep 0.001 } }
      reader, writer = IO.pipe
      $hook = -> { sleep 0.001; line = spin { reader.gets }; snooze; writer.puts('hook'); print line.await }
      sleep 0.002
      Process.wait(fork { puts 'child' })
      sleep 0.002
      p $?.exitstatus
    RUBY
    assert_equal %w[hook child 0], lines
  end

  def test_what_a_hook_of_ours_raises_ends_the_child
    [IOError, ScriptError, Interrupt, Polyphony::Terminate].each do |error|
      lines, err = program(<<~RUBY)
        #{RESCUED}
        Polyphony::ProcessFork.in_child { raise #{error} }
        go_on { fork { puts 'child' } }
        go_on { spin { Process.fork { puts 'child' } }.await }
      RUBY
      assert_equal %w[1 1], lines
      assert_equal ["polyphony: a forked child ends, for it cannot begin: #{error.name} (#{error})\n"] * 2, err.lines
    end
  end

  def test_what_anybodys_hook_raises_does_not_come_out_of_our_forks
    lines, err = program(<<~RUBY, before: EARLIER)
      #{RESCUED}
      faults, writer = IO.pipe
      writer << 'fff'
      $hook = -> { raise NoMethodError, 'a gem' if faults.read_nonblock(1, exception: false) == 'f' }
      go_on { Polyphony.fork { puts 'child' } }
      go_on { spin { Polyphony.fork { puts 'child' } }.await }
      pool = Polyphony::ProcessPool.new(1, pid: -> { Process.ppid })
      puts pool.process(:pid) == PARENT
    RUBY
    assert_equal %w[1 1 true], lines
    assert_equal ["polyphony: a forked child ends, for it cannot begin: a gem (NoMethodError)\n"] * 3, err.lines
  end

  def test_nothing_is_collected_before_ours_have_run
    lines, = program(<<~'RUBY')
      Polyphony::ProcessFork.in_child { |parent| $seen = [parent == Process.ppid, GC.disable] }
      p GC.enable
      Process.wait(fork { p $seen, GC.disable })
      p GC.disable
      Process.wait(fork { p GC.disable })
      p GC.enable
    RUBY
    assert_equal ['false', '[true, true]', 'false', 'false', 'true', 'true'], lines
  end

  def test_a_fork_that_fails_leaves_the_collector_as_it_was
    lines, = program(<<~'RUBY')
      def Process.__polyphony_fork = raise(Errno::ENOMEM)
      begin
        fork { puts 'child' }
      rescue Errno::ENOMEM => e
        puts e.class
      end
      p GC.disable
    RUBY
    assert_equal %w[Errno::ENOMEM false], lines
  end

  def test_a_child_that_comes_back_runs_no_tests
    child = fork
    unless child
      $stderr.reopen(File::NULL)
      raise IOError, 'in the child'
    end
    Process.wait(child)
    assert_equal 1, $?.exitstatus
  end

  def test_a_daemon_gets_what_is_not_only_for_children
    lines, = program(<<~'RUBY')
      Polyphony::ProcessFork.in_child { puts 'children' }
      Polyphony::ProcessFork.in_child(daemon: true) { puts 'daemons' }
      reader, writer = IO.pipe
      if fork
        writer.close
        puts reader.read
        Process.wait
      else
        reader.close
        $stdout.reopen(writer)
        Process.daemon(true, true)
        sleep 0.001
        puts 'on'
      end
    RUBY
    assert_equal %w[children daemons daemons on], lines
  end
end
