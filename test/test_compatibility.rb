# frozen_string_literal: true

require 'minitest/autorun'

# docs/compatibility.md tells the truth: the test of each row is there, and shows what the row says; the versions are those that
# the tests run with; no adapter is without a row.
class TestCompatibility < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  PAGE = File.join(ROOT, 'docs/compatibility.md')
  # The bundle of gRPC is not there where it cannot be had.
  OPTIONAL = File.join(ROOT, 'test/adapters/grpc/Gemfile.lock')
  BUNDLES = %w[test/adapters test/adapters/older test/adapters/between].map { |folder| File.join(ROOT, folder, 'Gemfile') }.freeze
  LOCKS = [*[*BUNDLES, File.join(ROOT, 'Gemfile')].map { |path| "#{path}.lock" }, *(OPTIONAL if File.exist?(OPTIONAL))].freeze

  # In lib/polyphony/adapters, and for no gem: the machinery, what adapters share, and libraries of Ruby's own.
  NO_GEMS = %w[auto call conversation drivers exclusive libraries mysql postgres readline shared_redis sqlite_connection fs irb open3 process].freeze
  YIELDS = ['yes', 'no', 'by a thread', ''].freeze

  Row = Struct.new(:gem, :versions, :yields, :adapter, :what, :test) do
    def test_path
      File.expand_path(test[/\]\(([^)]+)\)/, 1].to_s, File.dirname(PAGE))
    end

    def requirement
      Gem::Requirement.new(versions.split(', '))
    end
  end

  ROWS = File.readlines(PAGE, chomp: true).grep(/\A\| /).drop(1).map { |line| Row.new(*line.split('|', -1)[1..-2].map(&:strip)) }.freeze

  # @return [Hash{String => Array<Gem::Version>}] of all bundles
  def self.locked
    @locked ||= LOCKS.flat_map { |path| File.read(path).scan(/^    (\S+) \((\d[\w.]*)/) }
                     .group_by(&:first).transform_values { |found| found.map { |_, version| Gem::Version.new(version) }.uniq }
  end

  def test_the_rows_are_well_formed
    assert_operator ROWS.size, :>=, 20
    assert_equal ROWS.map(&:gem).uniq, ROWS.map(&:gem)
    ROWS.each do |row|
      assert_includes YIELDS, row.yields, row.gem
      refute_empty row.what, row.gem
    end
  end

  ROWS.each do |row|
    define_method("test_the_row_of_#{row.gem}") do
      check_versions(row)
      check_test(row)
      assert_path_exists "#{ROOT}/lib/polyphony/adapters/#{row.adapter}.rb" unless row.adapter.empty?
    end
  end

  def test_every_adapter_has_a_row
    adapters = Dir["#{ROOT}/lib/polyphony/adapters/*.rb"].map { |path| File.basename(path, '.rb') }
    assert_empty adapters - NO_GEMS - ROWS.map(&:adapter)
  end

  # What is tested must be told.
  def test_every_gem_that_adapters_are_tested_with_has_a_row
    named = BUNDLES.flat_map { |path| File.read(path).scan(/^gem '([^']+)'/).flatten }
    assert_empty named.uniq - %w[rake bigdecimal] - ROWS.map(&:gem)
  end

  private

  def check_versions(row)
    versions = self.class.locked.fetch(row.gem) { return assert(row.gem == 'grpc' && !File.exist?(OPTIONAL), 'it is in no bundle') }
    wrong = versions.reject { |version| row.requirement.satisfied_by?(version) }
    assert_empty wrong, "#{row.gem}: the tests run with #{wrong.join(' and ')}, the row says #{row.versions}"
  end

  def check_test(row)
    assert_path_exists row.test_path
    code = File.read(row.test_path)
    assert_match(/\bdef test_|\btest_in_both|\btest_each|define_method\(["':]?test_|_shows/, code, row.test_path)
    return unless row.yields == 'yes'

    assert_includes code, 'assert_yields', "#{row.gem}: nothing shows that it yields"
  end
end
