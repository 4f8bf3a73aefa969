# frozen_string_literal: true

require 'minitest/autorun'
require 'open3'
require_relative 'support/public_ruby'

# The extensions call what Ruby's public headers declare, and nothing else of Ruby's: what is exported beside that is for
# Ruby's own use, and goes without notice. All else that they call is of a library they are linked with.
class TestSymbols < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  OBJECTS = Dir[File.join(ROOT, 'lib/polyphony/*.{so,bundle}')].freeze

  def test_only_public_functions_of_ruby_are_called
    skip 'the extensions are not compiled' if OBJECTS.empty?
    private_ones = OBJECTS.to_h { |object| [File.basename(object), Polyphony::PublicRuby.strangers(undefined(object))] }
    assert_empty private_ones.reject { |_object, names| names.empty? }
  end

  def test_a_private_function_would_be_found
    assert_equal ['rb_no_such_function'], Polyphony::PublicRuby.strangers(%w[rb_no_such_function rb_ary_new malloc])
  end

  # A function that no header shows can still be declared by whoever wants to call it, or looked up by name.
  def test_no_function_of_ruby_is_declared_or_looked_up_here
    declaration = /^(?:extern\s+)?(?!return\b|else\b|typedef\b|static\b|#)\w[\w\s*]*\b((?:rb|ruby)_\w+)\s*\([^;{]*\)\s*;/
    guilty = Dir[File.join(ROOT, 'ext/**/*.{c,h}')].flat_map do |file|
      text = File.read(file).gsub(%r{/\*.*?\*/}m) { |comment| comment.gsub(/[^\n]/, ' ') }
      found = text.scan(declaration).flatten + text.scan(/\bdlsym\s*\([^;]*"((?:rb|ruby)_\w+)"/).flatten
      found.map { |name| "#{File.basename(file)}: #{name}" }
    end
    assert_equal ['sqlite_handlers.c: ruby_thread_has_gvl_p'], guilty  # see docs/decisions/135
  end

  def test_all_else_is_of_a_library_that_is_linked
    skip 'asks the tools of ELF' unless elf?
    OBJECTS.each do |object|
      libraries = linked(object).grep_v(/\blibruby/)
      known = libraries.flat_map { |library| defined_in(library) }
      left = undefined(object).grep_v(Polyphony::PublicRuby::NAME) - known
      assert_empty left.grep_v(/\A(?:_ITM_|__gmon_start__|__cxa_finalize|__asan_|__ubsan_|Init_)/), File.basename(object)
    end
  end

  private

  def elf?
    RUBY_PLATFORM.include?('linux') && system('ldd', '--version', out: File::NULL, err: File::NULL)
  end

  def undefined(object)
    names('--undefined-only', object)
  end

  def defined_in(library)
    names('--defined-only', library)
  end

  # Without what stands behind the name: its version.
  def names(which, file)
    output, status = Open3.capture2('nm', '-D', which, file)
    skip 'nm is missing or cannot read this' unless status.success?
    output.lines.filter_map { |line| line.split.last&.sub(/@.*/, '') }
  rescue Errno::ENOENT
    skip 'nm is missing'
  end

  def linked(object)
    output, = Open3.capture2('ldd', object)
    output.scan(%r{=> (/\S+)}).flatten
  end
end
