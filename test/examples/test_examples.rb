# frozen_string_literal: true

require_relative '../test_helper'

# Every example runs to its end, without warnings, and shows what its first lines promise.
class TestExamples < Polyphony::TestCase
  on_every_driver

  # What must be in the output, by example. The chat has a test of its own.
  SHOWN = {
    'cancelled_reads' => ['bytes received: 10000', 'all there, in order: true'],
    'clock' => ['tick 1', 'read: at last', /^the clock has ticked \d+ times meanwhile$/],
    'echo_server' => ['one -> one', 'two -> two', 'three -> three', /^done\Z/],
    'fork' => ['child:  0 other fibers, main: true', 'child:  a fiber of mine said 42',
               'parent: the child ended with 3', 'parent: the clock ticked meanwhile: true'],
    'parents_and_children' => ["quick: finished\nquick: cleaned up", 'broken: cleaned up',
                               "slow: told to stop\nslow: cleaned up",
                               'main: the disk is full, said the broken one',
                               'main: the supervisor is dead, and has 0 children'],
    'proxy' => ['client: THROUGH THE PROXY', 'proxy: 17 bytes there, 17 back'],
    'tee' => ["line 0\nline 1\nline 2\n", 'the file has 21 bytes'],
    'threads' => [/^squares: 0 1 4 9 .* 196 225$/, 'the main thread was free meanwhile: true'],
    'timeouts' => ['in time:   finished', 'too slow:  gave_up', 'nested:    inner limit was over first',
                   'an error:  nobody answers', 'idle time: received 01234, then silence'],
    'waiting_for_threads' => ['after 10 ms: nil', 'the sum:     42', 'ticked meanwhile: true', 'an error:    the disk is full',
                              "the worker:  did a job\nthe worker tidies up", 'a limit:     execution expired'],
    'worker_pool' => ['jobs done: 10', 'workers that did some: 3']
  }.freeze
  CHAT = %w[chat_demo chat_server].freeze
  FOLDER = File.join(POLYPHONY_ROOT, 'examples')

  SHOWN.each do |name, shown|
    define_method("test_#{name}_shows_what_it_promises") do
      out, err, status = run_ruby('load ARGV.shift', File.join(FOLDER, "#{name}.rb"), options: ['-W2'])
      assert_predicate status, :success?, err
      assert_empty err
      shown.each { |text| assert_match text, out }
    end
  end

  def test_every_example_is_tested
    assert_equal Dir["#{FOLDER}/*.rb"].map { |file| File.basename(file, '.rb') }.sort, (SHOWN.keys + CHAT).sort
  end

  def test_every_example_is_short_and_says_how_to_run_it
    Dir["#{FOLDER}/*.rb"].each do |file|
      lines = File.readlines(file)
      assert_operator lines.size, :<=, 60, file
      assert_match(%r{^# .*(examples/#{File.basename(file)}|bin/demo)}, lines.first(12).join, file)
    end
  end
end
