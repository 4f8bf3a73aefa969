# frozen_string_literal: true

require 'minitest/autorun'
require 'tmpdir'
require_relative '../lib/polyphony/version'
require_relative 'release/installed'
require_relative 'release/package'

# The quick part of `rake release:check`, so that what would be found there is found at once, and that it finds what is wrong.
class TestRelease < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  Wrong = Polyphony::Release::Wrong

  def setup
    skip 'git is missing, or this is no clone' unless system('git', '-C', ROOT, 'rev-parse', %i[out err] => File::NULL)
  end

  def test_the_gem_is_ready_for_a_release
    in_a_folder do |package|
      package.build
      assert_match(/\A\d{3,} files\z/, package.files)
      assert_match(/MIT/, package.metadata)
      assert_match(/entries\z/, package.changelog)
    end
  end

  def test_what_is_missing_or_too_much_is_named
    in_a_folder do |package|
      contents = %w[lib/polyphony.rb lib/polyphony/polyphony_ext.so test/test_helper.rb]
      package.define_singleton_method(:package) { Struct.new(:contents).new(contents) }
      message = assert_raises(Wrong) { package.files }.message
      assert_includes message, 'LICENSE is missing'
      assert_includes message, 'lib/polyphony/polyphony_ext.so is not in git'
      assert_includes message, 'test/test_helper.rb does not belong there'
    end
  end

  def test_a_changelog_that_begins_with_another_version_is_refused
    in_a_folder do |package, folder|
      package.define_singleton_method(:unpacked) { folder }
      File.write("#{folder}/CHANGELOG.md", "# Changelog\n\n## 0.1.0\n\n- Something\n")
      assert_includes assert_raises(Wrong) { package.changelog }.message, '0.1.0'
      File.write("#{folder}/CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- Something\n")
      assert_raises(Wrong) { package.changelog }
    end
  end

  # They are what a fresh Debian is given.
  def test_the_packages_of_setup_are_found
    installed = Polyphony::Release::Installed
    words = installed::ALWAYS + installed::VARIANTS.values.flat_map(&:libraries)
    assert_empty words - installed::NAMED.keys
    assert_equal %w[gcc libc6-dev], installed::NAMED['compiler']
    assert_equal %w[liburing-dev], installed::NAMED['liburing']
  end

  private

  def in_a_folder
    Dir.chdir(ROOT) { Dir.mktmpdir { |folder| yield Polyphony::Release::Package.new(folder), folder } }
  end
end
