# frozen_string_literal: true

require_relative '../test_helper'

# Ruby 3.1 breaks a WeakMap when memory is compacted while one value stands under 30 keys (or 62, or 94 …): it takes the list of the keys,
# which begins with their number, for an object that has moved. So nothing of ours may have one value under many keys.
class TestGCWeakMaps < Polyphony::TestCase
  on_every_driver

  def setup
    skip 'this Ruby does not compact' unless GC.respond_to?(:compact) && RUBY_PLATFORM.include?('linux')
  end

  def test_many_connections_of_mysql_are_remembered_over_a_compaction
    assert_survives <<~RUBY
      require 'polyphony/adapters/mysql'
      kept = Array.new(30) { Object.new.tap { |connection| Polyphony::Adapters.const_get(:MySQL).remember(connection) } }
    RUBY
  end

  def test_many_statements_of_mysql2_are_looked_through_over_a_compaction
    assert_survives <<~RUBY
      module Polyphony; module Adapters; module Mysql2; end; end; end
      require 'polyphony/adapters/mysql2/statements'
      statements = Polyphony::Adapters::Mysql2.const_get(:Statements).new
      kept = Array.new(30) { Object.new.tap { |statement| statements.add(statement) } }
      class << GC; alias without_compaction start; def start = compact; end
      statements.send(:collect)
      class << GC; alias start without_compaction; end
    RUBY
  end

  private

  def assert_survives(program)
    out, err, status = run_ruby(<<~RUBY)
      require 'polyphony'
      #{program}
      GC.compact
      kept = nil
      GC.start
      puts :well
    RUBY
    assert_equal ["well\n", '', true], [out, err, status.success?]
  end
end
