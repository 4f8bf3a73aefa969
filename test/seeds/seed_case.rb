# frozen_string_literal: true

require_relative '../test_helper'

module Polyphony
  # Runs the programs of the documents this library was begun from: each as a program of its own, with
  # the output that its text promises. Times are shortened where the outcome is the same, and loops
  # without end get one. See docs/decisions/028-seed-documents.md.
  class SeedCase < TestCase
    # Asserts what a program prints, and that it ends well and says nothing else.
    def assert_prints(expected, program)
      out, err, status = run_ruby("require 'polyphony'\n$stdout.sync = true\n#{program}")
      assert_predicate status, :success?, err
      assert_empty err
      assert_equal expected, out
    end
  end
end
