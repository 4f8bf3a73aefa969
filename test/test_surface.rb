# frozen_string_literal: true

require 'minitest/autorun'
require 'set'
require_relative 'support/signatures'

# Every public method has a test that calls it by its name. That it has a comment and a signature is looked at in test_docs.rb.
# Only names are compared: a method called `call` is named somewhere anyhow. What this finds is the method that was added, written down and forgotten.
class TestSurface < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  # README and the guide are run, too: see test_docs.rb.
  FILES = Dir["#{ROOT}/test/**/*.rb", "#{ROOT}/docs/guide/*.md", "#{ROOT}/README.md"].freeze

  # What the web server has its own parts call, from one file to another: tested by what a client sees, in test/http and test/tools.
  PARTS = %w[
    HTTP::Check::Outcome HTTP::Check::Wire HTTP::HTTP1 HTTP::HTTP2 HTTP::HTTP2::Session HTTP::Launcher HTTP::Listener HTTP::Connection
    HTTP::Stats HTTP::Systemd HTTP::TLSTransport
  ].map { |name| "Polyphony::#{name}" }.freeze
  # Of a backend in a forked child, which forks in all tests of that.
  OTHERS = %w[Polyphony::Backend#post_fork].freeze
  # Members of these can be set because that is how Struct is.
  STRUCTS = %w[Trace::Slice Trace::Arrow Trace::Track Telemetry::Call HTTP::Check::Options].map { |name| "Polyphony::#{name}" }.freeze

  def test_every_public_method_is_named_in_a_test
    left = Polyphony::Signatures.all("#{ROOT}/sig", files: '**/*.rbs').reject { |owner, name, singleton| excused?(owner, name, singleton) || named?(name) }
    assert_empty left.map { |owner, name, singleton| "#{owner}#{singleton ? '.' : '#'}#{name}" }
  end

  # An excuse that nobody needs any more goes.
  def test_parts_of_the_server_are_still_there
    owners = Polyphony::Signatures.all("#{ROOT}/sig", files: '**/*.rbs').map(&:first).to_set
    assert_empty (PARTS + STRUCTS).reject { |owner| owners.include?(owner) }
  end

  def test_an_unknown_name_is_found
    refute named?("no_such#{'_'}method")
    refute named?("no_such#{'_'}writer=")
  end

  private

  def excused?(owner, name, singleton)
    PARTS.include?(owner) || (STRUCTS.include?(owner) && name.end_with?('=')) || OTHERS.include?("#{owner}#{singleton ? '.' : '#'}#{name}")
  end

  # Operators cannot be looked for. A writer is used as one, or sent by its name.
  def named?(name)
    return true unless name.match?(/\A\w/)
    return words.include?(name) unless name.end_with?('=')

    text.match?(/\.#{name.chomp('=')}\s*(?:\|\||[+-])?=[^=~>]/) || text.include?(":#{name}")
  end

  def text
    @@text ||= (FILES - [__FILE__]).map { |file| File.read(file) }.join("\n")
  end

  # `assert_predicate x, :dead?` names it, and `refute fiber.dead?`.
  def words
    @@words ||= text.scan(/[A-Za-z_]\w*[?!]?/).flat_map { |word| [word, word.delete_suffix('?').delete_suffix('!')] }.to_set
  end
end
