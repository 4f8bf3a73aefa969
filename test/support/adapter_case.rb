# frozen_string_literal: true

require_relative '../test_helper'
require_relative 'heartbeat'

module Polyphony
  # For tests of gems. They run with the bundle of test/adapters (see test/run.rb); by hand: bin/test test/adapters/FILE.
  class AdapterCase < TestCase
    include Heartbeat

    # Loads gems, or skips every test of the class and says which gem is missing. To be called in the body of the class.
    # @param names [Array<String>] what is required, in this order
    def self.gems(*names)
      names.each { |name| require name }
    rescue LoadError => e
      missing = "#{e.message} (bin/setup --all installs the gems of test/adapters)"
      define_method(:before_setup) { super(); skip missing } # before a setup of the class itself
    end

    # @return [Array(Object, Class)] the name and the runner of each kind of fiber in which gems are used
    WHERE = {
      main: ->(work) { work.call },
      spun: ->(work) { Fiber.current.spin { work.call }.await }
    }.freeze

    # Defines a test for the main fiber, where Ruby calls no hooks of a scheduler, and one for a spun fiber.
    def self.test_in_both(name, &block)
      WHERE.each { |where, runner| define_method("test_#{name}_in_#{where}") { runner.call(-> { instance_exec(&block) }) } }
    end
  end
end
