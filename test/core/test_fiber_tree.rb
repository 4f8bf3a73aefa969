# frozen_string_literal: true

require_relative '../test_helper'

# Names, order and moves in the tree of fibers.
class TestFiberTree < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    @log = []
  end

  def sleeper(name, parent = Fiber.current)
    parent.spin(name) do
      sleep
    ensure
      @log << name
    end
  end

  def names(fiber)
    fiber.children.map(&:tag)
  end

  def test_tags_are_names_of_any_kind_and_may_change
    fiber = sleeper('a string')
    assert_equal 'a string', fiber.tag
    assert_match(/#<Fiber a string:\d+ /, fiber.inspect)
    fiber.tag = nil
    assert_match(/#<Fiber:\d+ /, fiber.inspect)
    assert_nil spin { nil }.tag
  end

  def test_children_are_listed_in_the_order_in_which_they_came
    a, b, c = %i[a b c].map { |name| sleeper(name) }
    assert_equal [a, b, c], Fiber.current.children
    a.attach_to(Fiber.current)
    assert_equal [b, c, a], Fiber.current.children
    Fiber.current.children.clear
    assert_equal 3, Fiber.current.children.size, 'the list is a copy'
  end

  def test_children_are_ended_in_the_reverse_of_that_order
    a, = %i[a b c].map { |name| sleeper(name) }
    snooze
    a.attach_to(Fiber.current)
    Fiber.current.shutdown_all_children
    assert_equal %i[a c b], @log
  end

  def test_add_child_is_attach_to_from_the_other_side
    foster = spin { sleep }
    child = sleeper(:child)
    assert_same foster, foster.add_child(child)
    assert_same foster, child.parent
    assert_equal [foster], Fiber.current.children
    snooze
    foster.stop
    foster.await
    assert_equal [:child], @log
  end

  def test_remove_child_gives_it_to_the_main_fiber
    parent = spin { sleeper(:child); sleep }
    2.times { snooze }
    child = parent.children.first
    assert_same parent, parent.remove_child(child)
    assert_equal [[], Fiber.current], [parent.children, child.parent]
    parent.stop
    parent.await
    refute child.dead?
  end

  def test_who_is_no_child_cannot_be_removed
    parent = spin { sleep }
    error = assert_raises(FiberError) { parent.remove_child(sleeper(:other)) }
    assert_match(/#<Fiber other:.* is no child of #{Regexp.escape(parent.inspect)}/, error.message)
  end

  def test_attach_and_monitor_tells_the_parent_instead_of_raising_in_it
    parent = spin do
      Fiber.current.monitor_mailbox.shift
    end
    child = spin { snooze; raise Boom }
    assert_same child, child.attach_and_monitor(parent)
    assert_equal [parent, [parent]], [child.parent, child.monitors]
    told, error = parent.await
    assert_same child, told
    assert_instance_of Boom, error
  end

  def test_attach_all_children_to_keeps_their_order
    parent = spin { %i[a b c].each { |name| sleeper(name) }; sleep }
    foster = spin { sleep }
    2.times { snooze }
    assert_same parent, parent.attach_all_children_to(foster)
    assert_equal [[], %i[a b c]], [names(parent), names(foster)]
    parent.stop
    parent.await
    assert_empty @log
    foster.stop
    foster.await
    assert_equal %i[c b a], @log
  end

  def test_nobody_can_be_given_to_a_fiber_that_has_ended
    dead = spin { nil }
    dead.await
    child = sleeper(:child)
    [-> { dead.add_child(child) }, -> { child.attach_to(dead) }, -> { child.attach_and_monitor(dead) },
     -> { Fiber.current.attach_all_children_to(dead) }].each { |move| assert_raises(FiberError, &move) }
    assert_same Fiber.current, child.parent
    assert_empty child.monitors
  end

  def test_a_detached_fiber_goes_to_the_main_fiber_of_its_thread
    parents = Thread.new do
      child = nil
      spin { child = spin { sleep }; child.detach }.await
      [child.parent, Fiber.current]
    end.value
    assert_same(*parents)
  end

  def test_a_fiber_that_belongs_to_no_thread_cannot_be_detached
    assert_match(/no thread/, assert_raises(FiberError) { Fiber.new { 1 }.detach }.message)
  end
end
