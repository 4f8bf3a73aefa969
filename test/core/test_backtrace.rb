# frozen_string_literal: true

require_relative '../test_helper'

# Where fibers come from, and backtraces that say so.
class TestBacktrace < Polyphony::TestCase
  on_every_driver

  def in_a_child
    spin { yield }
  end

  # @return [Array<String>] method names of the lines that are in this file, innermost first
  def names(lines)
    lines.grep(/^#{Regexp.escape(__FILE__)}:/).map { |line| line[/(?:block in )?(?:\w+#)?(\w+)'$/, 1] }
  end

  def grandparent
    spin { parent_of_it }.await
  end

  def parent_of_it
    in_a_child { failing }.await
  end

  def failing
    raise IOError, 'far down'
  end

  def test_a_backtrace_goes_on_where_the_fiber_and_its_parents_were_spun
    error = assert_raises(IOError) { grandparent }
    expected = %w[failing parent_of_it in_a_child in_a_child parent_of_it grandparent grandparent]
    assert_equal expected, names(error.backtrace).first(7)
    assert_empty(error.backtrace.select { |line| line.start_with?(Exception::POLYPHONY_DIR) })
  end

  def test_the_line_of_the_spin_is_in_it
    fiber = spin { raise IOError }
    line = __LINE__ - 1
    error = assert_raises(IOError) { fiber.await }
    assert_match(/:#{line}:.*block in/, error.backtrace[0])
    assert_match(/:#{line}:/, error.backtrace[1])
    assert_equal [fiber, fiber], [error.raising_fiber, error.source_fiber]
  end

  def test_an_error_rescued_in_the_fiber_tells_the_story_too
    lines = spin { failing rescue $!.backtrace }.await
    assert_includes names(lines), 'test_an_error_rescued_in_the_fiber_tells_the_story_too'
    assert_equal 'failing', names(lines).first
  end

  def test_in_the_main_fiber_a_backtrace_is_as_in_stock_ruby
    error = assert_raises(IOError) { failing }
    assert_equal error.backtrace_locations.map(&:to_s), error.backtrace
    assert_same error.backtrace, error.backtrace
    assert_nil IOError.new.backtrace
  end

  def test_lines_set_by_hand_are_left_alone
    error = assert_raises(IOError) { in_a_child { failing }.await }
    story = error.backtrace
    error.set_backtrace(story)
    assert_equal story, error.backtrace
    error.set_backtrace(['here:1'])
    assert_equal ['here:1'], error.backtrace
    error = assert_raises(IOError) { in_a_child { raise IOError, 'x', ['there:1'] }.await }
    assert_equal ['there:1'], error.backtrace
  end

  def test_the_frames_of_the_library_are_shown_on_demand
    Exception.__disable_sanitized_backtrace__ = true
    error = assert_raises(ArgumentError) { in_a_child { sleep(-1) }.await }
    assert(error.backtrace.any? { |line| line.start_with?(Exception::POLYPHONY_DIR) })
  ensure
    Exception.__disable_sanitized_backtrace__ = false
  end

  def test_caller_outlives_the_fiber_and_a_restart
    fiber = in_a_child { 1 }
    fiber.await
    assert_equal 'in_a_child', names(fiber.caller).first
    assert_equal fiber.caller, fiber.restart.caller
    assert_equal [], Fiber.current.caller
  end

  def test_a_fiber_that_a_word_has_spun_is_where_the_word_was_called
    seen = []
    fibers = [spin_loop { break }, spin_loop(rate: 1000) { break }, after(0) {},
              Polyphony::Timer.new(resolution: 0.001).after(0) {}]
    Fiber.map([1]) { seen << Fiber.current.location }
    line = __LINE__
    assert_equal [line - 3, line - 3, line - 3, line - 2, line - 1].map { |number| "#{__FILE__}:#{number}" },
                 fibers.map(&:location) + seen
  ensure
    Fiber.await(fibers)
  end

  def test_fibers_of_a_map_are_where_its_block_is_whoever_wrote_the_each
    foreign = Class.new { include Enumerable }
    foreign.class_eval('def each = yield(1)', '/gems/other/each.rb', 7) # as Active Support does it with Range
    Fiber.map(foreign.new) do
      assert_equal "#{__FILE__}:#{__LINE__ - 1}", Fiber.current.location
      refute_match(/other/, Polyphony.module_eval('WaitReport').holding(Fiber.current, nil))
    end
  end

  def test_caller_may_be_set
    fiber = Fiber.current.spin(:tag, ['given:1']) { 1 }
    assert_equal ['given:1'], fiber.caller
    assert_same fiber, fiber.set_caller(['set:1'])
    assert_equal ['set:1'], fiber.caller
    assert_equal __FILE__, fiber.set_caller(nil).caller.first[/\A[^:]+/]
    assert_match(/got 1/, assert_raises(TypeError) { fiber.set_caller(1) }.message)
    assert_match(/got 2/, assert_raises(TypeError) { Fiber.current.spin(:tag, 2) { flunk } }.message)
  end

  def test_fibers_of_the_words_are_located_where_they_were_spun
    here = "#{__FILE__}:#{__LINE__ + 1}"
    fibers = [after(5) { 1 }, spin_loop { sleep }, spin { sleep }]
    assert_equal [here] * 3, fibers.map(&:location)
  end

  def test_a_frozen_exception_passes
    error = IOError.new('frozen').freeze
    assert_equal 'frozen', assert_raises(IOError) { in_a_child { raise error }.await }.message
  end

  def test_places_survive_the_gc
    fibers = Array.new(100) { in_a_child { sleep } }
    3.times { GC.start }
    GC.compact if GC.respond_to?(:compact)
    assert_equal [%w[in_a_child]], fibers.map { |fiber| names(fiber.caller).first(1) }.uniq
  end

  def test_an_uncaught_error_is_reported_with_the_place_of_its_spin
    _, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      def start
        spin(:child) { raise IOError, 'lost' }
      end
      start
      sleep
    RUBY
    assert_equal 1, status.exitstatus
    assert_match(/\A-e:3:in .block in (Object#)?start.*: lost \(IOError\)\n\s+from -e:3:in .*start'\n\s+from -e:5:in .<main>'\n\z/, err)
  end

  def test_instantiate_takes_what_raise_takes
    assert_equal [RuntimeError, 'unhandled exception'], described(Exception.instantiate)
    assert_equal [RuntimeError, 'text'], described(Exception.instantiate('text'))
    assert_equal [IOError, 'IOError'], described(Exception.instantiate(IOError))
    assert_equal [IOError, 'text'], described(Exception.instantiate(IOError, 'text'))
    assert_equal [IOError, 'text'], described(Exception.instantiate([IOError, 'text']))
    error = IOError.new
    assert_same error, Exception.instantiate(error)
    assert_match(/got 5/, assert_raises(TypeError) { Exception.instantiate(5) }.message)
  end

  def described(error)
    [error.class, error.message]
  end
end
