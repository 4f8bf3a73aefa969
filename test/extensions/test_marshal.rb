# frozen_string_literal: true

require_relative '../test_helper'

# Exceptions remember fibers, which cannot be marshalled; exceptions can, as without Polyphony.
class TestMarshal < Polyphony::TestCase
  on_every_driver

  def raised
    raise IOError, 'gone'
  rescue IOError => e
    e
  end

  def raised_in_a_fiber
    spin { raise IOError, 'gone' }.await
  rescue IOError => e
    e
  end

  def test_an_exception_comes_back_with_its_backtrace
    [raised, raised_in_a_fiber].each do |error|
      line = error.backtrace.first
      copy = Marshal.load(Marshal.dump(error))
      assert_equal [IOError, 'gone', line], [copy.class, copy.message, copy.backtrace.first]
      assert_equal [nil, nil], [copy.raising_fiber, copy.source_fiber]
    end
  end

  def test_the_original_remembers_its_fibers
    error = raised_in_a_fiber
    Marshal.dump(error)
    assert_kind_of Fiber, error.source_fiber
    assert_same error.source_fiber, error.raising_fiber
    assert_same Fiber.current, raised.raising_fiber
    assert_empty error.instance_variables
  end

  def test_a_copy_may_be_raised_and_passed_up_again
    copy = Marshal.load(Marshal.dump(raised_in_a_fiber))
    fiber = spin { raise copy }
    assert_same copy, assert_raises(IOError) { fiber.await }
    assert_same fiber, copy.source_fiber
  end

  def test_a_ruby_without_polyphony_loads_it
    dump = [Marshal.dump(raised_in_a_fiber)].pack('m0')
    out, err, = run_ruby("p Marshal.load('#{dump}'.unpack1('m'))")
    assert_equal ["#<IOError: gone>\n", ''], [out, err]
  end
end
