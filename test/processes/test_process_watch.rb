# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/child_helpers'

# Polyphony::Process, and statuses made of what a backend returns.
class TestProcessWatch < Polyphony::TestCase
  include Polyphony::ChildHelpers
  on_every_driver

  # A child that says when it is there, in whatever it does about SIGTERM.
  def stubborn(trap, **options)
    reader, writer = pipe_pair
    pid = spawn("trap #{trap} TERM; echo; while :; do sleep 0.01; done", out: writer, pgroup: true, **options)
    writer.close
    Polyphony.backend_read(reader, nil, 1, false, 0)
    pid
  end

  def test_a_command_is_waited_for
    reader, writer = pipe_pair
    beats = 0
    heart = spin do
      5.times { beats += 1; snooze }
      writer.close
    end
    assert_equal true, Polyphony::Process.watch(['sh', '-c', 'read line; exit 3', { in: reader }])
    assert_equal [3, 5], [$?.exitstatus, beats]
    heart.await
  end

  def test_a_block_is_run_in_a_child
    assert_equal(true, Polyphony::Process.watch { spin { sleep 0.001; exit 4 }.await })
    assert_equal 4, $?.exitstatus
    assert_equal true, Polyphony.watch_process('exit 5')
    assert_equal 5, $?.exitstatus
  end

  def test_a_watch_that_is_cut_short_ends_the_child
    pid = nil
    %i[stop raise].each do |way|
      reader, writer = pipe_pair
      fiber = spin { outcome { Polyphony::Process.watch(['sh', '-c', 'echo $$; exec sleep 1000', { out: writer }]) } }
      pid = Polyphony.backend_read(reader, nil, 20, false, 0).to_i
      way == :raise ? fiber.raise(IOError, 'enough') : fiber.stop
      fiber.await
      assert_raises(Errno::ESRCH) { Process.kill(0, pid) }
    end
    assert_raises(Errno::ECHILD) { Process.wait }
  end

  def test_a_command_that_cannot_be_run_is_an_error
    assert_raises(Errno::ENOENT) { Polyphony::Process.watch('/nonexistent/command') }
    error = assert_raises(ArgumentError) { Polyphony::Process.watch }
    assert_equal 'watch needs a command or a block to run', error.message
  end

  def test_a_child_that_heeds_sigterm_may_say_how_it_ends
    assert_equal 7, Polyphony::Process.kill_process(stubborn("'exit 7'")).exitstatus
  end

  def test_a_child_that_does_not_heed_sigterm_is_killed_with_its_group
    pid = stubborn("''")
    assert_equal 9, Polyphony::Process.kill_process(pid, grace: 0.01).termsig
    assert_raises(Errno::ESRCH) { sleep 0.001 while Process.kill(0, -pid) } # init takes its time
  end

  def test_a_child_that_leads_no_group_is_killed_too
    reader, writer = pipe_pair
    pid = spawn("trap '' TERM; echo; exec sleep 1000", out: writer)
    Polyphony.backend_read(reader, nil, 1, false, 0)
    assert_equal 9, Polyphony::Process.kill_process(pid, grace: 0.01).termsig
  end

  def test_killing_cannot_be_cut_short
    pid = stubborn("''")
    fiber = spin { Polyphony::Process.kill_process(pid, grace: 0.02) }
    snooze
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_raises(Errno::ECHILD) { Process.wait(pid) }
  end

  def test_who_is_no_child_is_left_alone
    pid = spawn('true')
    Process.wait(pid)
    assert_nil Polyphony::Process.kill_process(pid)
    [0, -1, 1, nil, 'x'].each do |bad|
      error = assert_raises(ArgumentError) { Polyphony::Process.kill_process(bad) }
      assert_equal "no pid of a child: #{bad.inspect}", error.message
    end
  end

  # --- statuses -------------------------------------------------------------------------------

  def test_a_status_made_by_hand_is_a_status
    ['exit 0', 'exit 3', 'kill -9 $$', 'kill -15 $$'].each do |command|
      Process.wait(spawn(command))
      real = $?
      made = Process::Status.from_status_array([real.pid, real.to_i])
      assert_instance_of Process::Status, made
      assert_equal real, made
      %i[pid exitstatus success? signaled? termsig stopped? stopsig exited? inspect to_s frozen?].each do |name|
        real.public_send(name).nil? ? assert_nil(made.public_send(name)) : assert_equal(real.public_send(name), made.public_send(name))
      end
      assert_same real, $?
    end
    stopped = Process::Status.from_status_array([12, 0x137f])
    assert_equal [true, 0x13, 12], [stopped.stopped?, stopped.stopsig, stopped.pid]
  end

  def test_a_status_made_by_hand_takes_what_waitpid_returns
    pair = Polyphony.backend_waitpid(spawn('exit 6'))
    assert_equal 6, Process::Status.from_status_array(pair).exitstatus
    assert_nil(Thread.new { Process::Status.from_status_array(pair); $? }.value)
  end

  def test_bad_input_is_refused_by_name
    [nil, [], [1], [1, 2, 3], 5].each do |bad|
      error = assert_raises(ArgumentError) { Process::Status.from_status_array(bad) }
      assert_equal "expected [pid, raw status], got #{bad.inspect}", error.message
    end
    assert_raises(TypeError) { Process::Status.from_status_array([nil, 1]) }
  end
end
