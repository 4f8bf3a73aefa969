# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/failing_calls'

# System calls of the drivers fail, completions overflow, submissions come in parts: whatever must not be noticed is not, what is
# refused is told to whoever asked, and nothing hangs or stays behind. rake faults[100] goes through many seeds.
class TestFailingCalls < Polyphony::TestCase
  on_every_driver
  time_limit 180

  SEEDS = ENV.fetch('POLYPHONY_SEEDS', '1..2').split('..')

  def test_a_system_that_refuses
    heavy
    Dir.mktmpdir('failing_calls') do |folder|
      library = Polyphony::FailingCalls.build(folder) or skip 'failing_calls.c cannot be compiled here'
      out, err, status = run_ruby("load '#{Polyphony::FailingCalls::WORKLOAD}'", *SEEDS, timeout: 120, gems: true, options: ['-W0'],
                                  env: { **Polyphony::FailingCalls.environment(library), 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil })
      assert_predicate status, :success?, out + err
      assert_match(/\Astruck [1-9]\d* and [1-9]\d* times\n\z/, out)
    end
  end

  # There is memory for what has been accepted before it is: on io_uring the kernel goes on meanwhile.
  def test_no_connection_is_accepted_and_dropped
    heavy
    Dir.mktmpdir('failing_calls') do |folder|
      library = Polyphony::FailingCalls.build(folder) or skip 'failing_calls.c cannot be compiled here'
      out, err, status = run_ruby("load '#{Polyphony::FailingCalls::WORKLOAD}'", '1', '20', 'accept_loop', 'late_accept', timeout: 120, gems: true, options: ['-W0'],
                                  env: { **Polyphony::FailingCalls.environment(library), 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil })
      assert_predicate status, :success?, out + err
    end
  end

  # libev notes that epoll has refused a descriptor, and waits: nothing would come from it, not even a word from another thread.
  WATCHES = <<~'RUBY'
    require 'fiddle'
    require 'polyphony'
    REFUSE = Fiddle::Function.new(Fiddle.dlopen(nil)['failing_calls_refuse_watches'], [Fiddle::TYPE_INT], Fiddle::TYPE_VOID)

    sleep 0.01 # what the loop watches for itself is watched
    reader, writer = IO.pipe
    waiting = spin { reader.read(1) }
    REFUSE.call(1)
    puts move_on_after(20, with_value: 'nobody is told') { waiting.await } rescue puts $!.class

    waiting = spin { reader.read(1) }
    snooze
    writer << 'x'
    puts waiting.await

    queue, begun = Thread::Queue.new, Thread::Queue.new
    REFUSE.call(4)
    thread = Thread.new { begun << 1; spin { queue.pop }.await }
    begun.pop
    Process.clock_gettime(Process::CLOCK_MONOTONIC).then { |now| nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > now + 0.05 && thread.stop? }
    queue << 'heard'
    puts thread.join(20) ? thread.value : 'it does not hear'
    $stdout.flush
    exit!
  RUBY

  def test_a_descriptor_that_cannot_be_watched_is_told_to_whoever_waits
    skip 'io_uring watches nothing' unless driver?(:libev)
    Dir.mktmpdir('failing_calls') do |folder|
      library = Polyphony::FailingCalls.build(folder) or skip 'failing_calls.c cannot be compiled here'
      out, err, = run_ruby(WATCHES, timeout: 100, env: Polyphony::FailingCalls.environment(library, entries: 0))
      assert_equal "Errno::ENOMEM\nx\nheard\n", out, err
    end
  end
end
