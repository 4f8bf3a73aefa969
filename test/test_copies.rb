# frozen_string_literal: true

require 'minitest/autorun'
require 'tmpdir'
require_relative 'support/copies'

# Six lines and more stand once in ext, lib and exe.
class TestCopies < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  # Pairs that stay, and why.
  KEPT = {
    %w[lib/polyphony/adapters/redis.rb lib/polyphony/adapters/redis_client/client.rb] =>
      'closes what a cancel has left half done: another thing with another condition each, and a helper would be as long',
    %w[lib/polyphony/core/pipe.rb lib/polyphony/extensions/io_additions.rb] =>
      'the same words of two classes, one line each, in two layers',
    %w[lib/polyphony/http/cluster.rb lib/polyphony/http/single.rb] =>
      'tables of signals that differ in their ends'
  }.freeze

  def test_nothing_is_written_twice
    found = Dir.chdir(ROOT) { Polyphony::Copies.in(Dir['{ext,lib,exe}/**/*.{c,h,rb}'].sort) }
    found.reject! { |one, _, other, _, _| KEPT.key?([one, other]) }
    assert_empty(found.map { |one, at, other, there, size| "#{one}:#{at} and #{other}:#{there} share #{size} lines" })
  end

  def test_what_is_kept_is_still_there
    pairs = Dir.chdir(ROOT) { Polyphony::Copies.in(KEPT.keys.flatten.uniq) }.map { |one, _, other, _, _| [one, other] }
    assert_empty KEPT.keys - pairs
  end

  # Other blanks and comments do not hide a copy; five lines are none.
  def test_the_detector_finds_copies
    six = Array.new(6) { |i| "call#{i}(value, #{i})" }
    Dir.mktmpdir do |folder|
      Dir.chdir(folder) do
        File.write('one.rb', "start\n#{six.join("\n")}\nfinish\n")
        File.write('two.rb', "# here\n\n#{six.map { |line| "    #{line}  # so" }.join("\n\n")}\n")
        File.write('five.rb', six.first(5).join("\n"))
        assert_equal [['one.rb', 2, 'two.rb', 3, 6]], Polyphony::Copies.in(%w[one.rb two.rb five.rb])
      end
    end
  end
end
