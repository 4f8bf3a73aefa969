# frozen_string_literal: true

require 'minitest'
require 'polyphony/testing'

module Polyphony
  module Testing
    # For test classes of minitest: after each test, nothing may be left behind; the words of the kit are methods.
    #
    # @example
    #   require 'polyphony/testing/minitest'
    #   class TestClient < Minitest::Test
    #     include Polyphony::Testing::Minitest
    #     polyphony virtual_clock: true, shuffle: true
    #
    #     def test_it_gives_up_after_an_hour
    #       assert_nil Client.new.fetch
    #     end
    #   end
    module Minitest
      include Helpers

      # @!visibility private
      def self.included(klass)
        klass.extend(ClassMethods)
      end

      # Of a test class.
      module ClassMethods
        # How the tests of this class, and of those that inherit from it, are run.
        # @param settings [Hash] +leaks:+ (true), +virtual_clock:+ (true, or its options), +shuffle:+ (true, or a seed)
        # @return [nil]
        def polyphony(**settings)
          @polyphony = __polyphony.merge(**settings)
          nil
        end

        # @!visibility private
        def __polyphony
          @polyphony || (superclass.respond_to?(:__polyphony) ? superclass.__polyphony : Settings.new)
        end
      end

      # @!visibility private
      def run
        settings = self.class.__polyphony
        settings.around { super }.tap { __tell_seed(settings.seed) }
      end

      # @!visibility private
      def before_setup
        super
        @__leaks = Leaks.new if self.class.__polyphony.leaks?
      end

      # @!visibility private
      def after_teardown
        super
        left = @__leaks ? @__leaks.found : []
        Settings.clean_up
        raise ::Minitest::Assertion, "left behind by this test:\n  #{left.join("\n  ")}", __place if left.any? && passed?
      end

      private

      # Of the test: the lines that look for what it has left say nothing.
      def __place
        file, line = method(name).source_location
        ["#{file}:#{line}"]
      end

      def __tell_seed(seed)
        return if seed.nil? || passed? || skipped?

        $stderr.puts "\npolyphony: in #{self.class}##{name} #{Seed.words(seed, 'the order of fibers')}"
      end
    end
  end
end
