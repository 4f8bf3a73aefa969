# frozen_string_literal: true

require 'minitest/autorun'

# Dependencies point one way: exe, http, extensions, core, layer 2, layer 1, layer 0.
# Reads the sources only, so it holds when the extension does not compile, too.
class TestLayers < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  EXT = File.join(ROOT, 'ext/polyphony')
  LIB = File.join(ROOT, 'lib')

  # Plain C. A file that is not named here belongs to layer 1, or to layer 2 by its name.
  LAYER_0 = %w[util accept clock list ring timer_heap wakeup op op_pool driver loop driver_table attempt
               driver_uring driver_uring_setup driver_libev driver_libev_api offload page_cache faults].freeze
  LAYER_2 = /\A(class_\w+|direct_\w+|polyphony_ext)\z/.freeze

  METHOD_DEFINITION =
    /\brb_define_((private_|singleton_)?method|module_function|global_function|alloc_func)\b/.freeze
  REQUIRE =
    /^[^#\n]*?\b(require|require_relative|autoload)\b\s*\(?\s*(?::\w+,\s*)?['"]([^'"]+)['"]/.freeze
  OURS = %r{\A#{Regexp.escape(LIB)}/polyphony(/|\z)}.freeze

  # What the files of a folder (or of the single file lib/polyphony/NAME.rb) may require of ours.
  MAY_REQUIRE = {
    'version'    => [],
    'core'       => %w[core version],
    'extensions' => %w[core extensions version],
    'adapters'   => %w[polyphony core extensions adapters version],
    'remote'     => %w[polyphony core extensions adapters remote version],
    'http'       => %w[polyphony core extensions http version],
    'handler'    => %w[http], # lib/rackup/handler and lib/rack/handler, where rackup looks for servers
    'tools'      => %w[polyphony core extensions tools version],
    'testing'    => %w[polyphony core extensions testing version],
    'scheduler'  => %w[core version],
    'polyphony'  => %w[core extensions adapters tools version],
    'cli'        => %w[polyphony core extensions adapters http tools testing cli version]
  }.freeze

  def test_no_include_points_up
    upward = c_files.flat_map do |file|
      includes(file, '"').select { |header| layer(header) > layer(file) }
                         .map { |header| "#{base(file)} includes #{header}" }
    end
    assert_empty upward
  end

  def test_layer_0_knows_nothing_of_ruby
    guilty = c_files.select { |file| layer(file).zero? }.flat_map do |file|
      named = (includes(file, '"') + includes(file, '<')).grep(%r{\Aruby(\.h|/)})
      named += ['VALUE'] if code(file).match?(/\bVALUE\b/)
      named.map { |what| "#{base(file)}: #{what}" }
    end
    assert_empty guilty
  end

  def test_only_layer_2_defines_ruby_methods
    guilty = c_files.select { |file| layer(file) < 2 && code(file).match?(METHOD_DEFINITION) }
    assert_empty guilty.map { |file| base(file) }
  end

  # Its own shared object: of the other one it may have what is plain C, and that only in headers.
  def test_of_the_other_extension_the_web_server_includes_plain_headers_only
    found = Dir["#{ROOT}/ext/polyphony_http/*.{c,h}"].flat_map { |file| includes(file, '"') }.grep(%r{/})
    assert_empty found.reject { |path| path.match?(%r{\A\.\./polyphony/\w+\.h\z}) && layer(path).zero? }
    assert_empty c_files.flat_map { |file| includes(file, '"') }.grep(%r{/})
  end

  def test_the_command_requires_the_command_line_only
    paths = Dir["#{ROOT}/exe/*"].flat_map { |file| File.read(file).scan(REQUIRE).map(&:last) }
    assert_equal ['polyphony/cli'], paths
  end

  # So that it can be fuzzed: see test/fuzz.
  def test_the_parsers_of_the_web_server_know_nothing_of_ruby
    folder = File.join(ROOT, 'ext/polyphony_http')
    plain = Dir["#{folder}/*.c"].reject { |file| base(file).match?(/\Aclass_|_ext\.c\z/) }
    guilty = plain.select { |file| with_headers(file, folder).any? { |part| code(part).match?(/\bVALUE\b|<ruby/) } }
    assert_empty guilty.map { |file| base(file) }
  end

  def test_no_require_points_up
    upward = ruby_files.flat_map do |file|
      from = part(file)
      allowed = MAY_REQUIRE.fetch(from) { flunk "MAY_REQUIRE does not know #{relative(file)}" }
      requires(file).reject { |target| allowed.include?(part(target)) }
                    .map { |target| "#{relative(file)} requires #{relative(target)}" }
    end
    assert_empty upward
  end

  # There is a Polyphony::Process, and a module sees its own constants first.
  def test_rubys_own_process_is_called_by_its_full_name
    files = Dir["#{ROOT}/{lib,test,bench}/**/*.rb"].select { |file| File.read(file).match?(/^\s*module Polyphony\b/) }
    short = files.flat_map do |file|
      lines = File.readlines(file).map.with_index(1) { |line, number| [line.sub(/(\A|\s)#.*/, ''), number] }
      lines.select { |line, _| line.match?(/(?<![\w:])Process(\.|::)(?!watch)/) }
           .map { |_, number| "#{relative(file)}:#{number}" }
    end
    assert_empty short, 'write ::Process'
  end

  private

  def c_files
    Dir["#{EXT}/*.{c,h,def}"].sort
  end

  def ruby_files
    Dir["#{LIB}/**/*.rb"].sort
  end

  # The file, and the headers of the same folder that it includes, and they include.
  def with_headers(file, folder, seen = [])
    return seen if seen.include?(file) || !File.exist?(file)

    seen << file
    includes(file, '"').each { |header| with_headers(File.join(folder, header), folder, seen) }
    seen
  end

  def base(file)
    File.basename(file)
  end

  def layer(file)
    name = File.basename(file, '.*')
    return 0 if LAYER_0.include?(name)

    name.match?(LAYER_2) ? 2 : 1
  end

  def includes(file, quote)
    File.read(file).scan(/^\s*#\s*include\s*#{quote}([^">]+)/).flatten
  end

  # The file without its comments and strings.
  def code(file)
    File.read(file).gsub(%r{/\*.*?\*/}m, '').gsub(%r{//.*}, '').gsub(/"(\\.|[^"\\\n])*"/, '""')
  end

  # Full paths of the files of ours that a file requires; the extension itself is everybody's.
  def requires(file)
    paths = File.read(file).scan(REQUIRE).map do |how, name|
      from = how == 'require_relative' ? File.dirname(file) : LIB
      File.expand_path(name, from).delete_suffix('.rb')
    end
    paths.select { |path| path.match?(OURS) && !path.end_with?('_ext') }
  end

  # lib/polyphony/core/timer.rb and lib/polyphony/core.rb are 'core', lib/polyphony.rb 'polyphony'.
  def part(path)
    parts = path.delete_prefix("#{LIB}/").delete_suffix('.rb').split('/')
    parts[1] || parts[0]
  end

  def relative(path)
    path.delete_prefix("#{ROOT}/")
  end
end
