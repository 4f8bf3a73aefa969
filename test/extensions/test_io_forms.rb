# frozen_string_literal: true

require 'test_helper'

# Hundreds of forms of the methods of IO, File, Kernel and ARGF, in each kind of fiber: what they return,
# raise and leave behind is what it is without Polyphony. Those that wait get what they wait for from a
# fiber of the same thread. See test/support/forms.rb.
class TestIOForms < Polyphony::TestCase
  time_limit 180

  FORMS = File.expand_path('../support/forms.rb', __dir__)
  TABLES = Dir["#{FORMS.delete_suffix('.rb')}/*.rb"].sort
  MODES = %w[main spun generator].freeze

  TABLES.each do |table|
    name = File.basename(table, '.rb')
    MODES.each do |mode|
      define_method("test_#{name}_in_a_#{mode}_fiber") { compare(table, mode) }
    end
  end

  private

  # What stock Ruby does, found out once.
  def self.stock(table)
    @stock ||= {}
    @stock[table] ||= yield
  end

  def compare(table, mode)
    heavy
    expected = self.class.stock(table) { results(table, 'stock', []) }
    actual = results(table, mode, ["-I#{POLYPHONY_LIB}"])
    assert_equal expected.size, actual.size
    differences = expected.zip(actual).reject { |one, other| one == other }
    assert_empty differences.map { |one, other| describe(one, other) }
  end

  def describe((title, form, expected), (_, _, actual))
    "#{title}: #{form}\n  stock #{expected.inspect[0, 300]}\n  ours  #{actual.inspect[0, 300]}"
  end

  def results(table, mode, options)
    file = Tempfile.new('forms')
    progress = "#{file.path}.progress"
    out, err, status = run_forms(options, mode, table, file.path)
    assert status.success?, "#{status} at #{File.read(progress).strip}\n#{out}\n#{err}"
    Marshal.load(file.binmode.read)
  ensure
    File.delete(progress) if File.exist?(progress)
    file&.close!
  end

  def run_forms(options, *args)
    load = 'load $PROGRAM_NAME = ARGV.shift'
    run_ruby(load, FORMS, *args, options: options, timeout: 100)
  end
end
