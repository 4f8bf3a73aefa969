# frozen_string_literal: true

require_relative '../test_helper'

# Fiber[] and Fiber#storage: Ruby's own from 3.2 on, ours on 3.1, with the same meaning.
class TestFiberStorage < Polyphony::TestCase
  on_every_driver

  def in_a_fiber(&block)
    spin(&block).await
  end

  def test_children_inherit_what_is_there_when_they_are_spun
    in_a_fiber do
      Fiber[:user] = 'ann'
      child = spin { [Fiber[:user], spin { Fiber[:user] }.await] }
      Fiber[:user] = 'bob'
      assert_equal %w[ann ann], child.await
      assert_equal 'bob', spin { Fiber[:user] }.await
    end
    assert_nil Fiber[:user]
  end

  def test_what_a_child_writes_stays_with_it
    in_a_fiber do
      Fiber[:n] = 1
      spin { Fiber[:n] = 2; Fiber[:m] = 3 }.await
      assert_equal [1, nil], [Fiber[:n], Fiber[:m]]
    end
  end

  def test_storage_as_a_whole
    in_a_fiber do
      Fiber.current.storage = { a: 1 }
      copy = Fiber.current.storage
      copy[:b] = 2
      assert_equal({ a: 1 }, Fiber.current.storage)
      Fiber[:a] = nil
      assert_equal({}, Fiber.current.storage)
    end
  end

  def test_errors_of_use
    fiber = spin { sleep }
    assert_raises(TypeError) { Fiber[1] }
    assert_raises(TypeError) { Fiber[1] = 1 }
    assert_raises(ArgumentError) { fiber.storage }
    assert_raises(TypeError) { Fiber.current.storage = 1 }
  end
end
