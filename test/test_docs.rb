# frozen_string_literal: true

require 'minitest/autorun'
require 'open3'
require 'rbconfig'
require 'set'
require_relative 'support/drivers'

# Documentation that cannot rot. In README.md and docs/guide every Ruby block compiles; one with
# `# =>` comments is run on every driver, and the values compared. A comment may go on after the
# value: `# => nil, after a second`; `# => raises IOError` tells of an exception. Every public name
# has a YARD comment, every name in sig/ exists, and every link leads to a file.
class TestDocs < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  GUIDE = Dir["#{ROOT}/docs/guide/*.md"].sort.map { |path| path.delete_prefix("#{ROOT}/") }.freeze
  PAGES = ['README.md', *GUIDE].freeze
  LIB = File.expand_path(ENV.fetch('POLYPHONY_LIB', 'lib'), ROOT)
  # The environment of what is started: without Bundler, which would take longer than the rest.
  PLAIN = { 'RUBYOPT' => nil, 'RUBYLIB' => nil }.freeze

  Block = Struct.new(:page, :line, :code) do
    def runnable?
      code.include?('# => ')
    end

    # The code, with each value that has a comment handed to +check+.
    def checked
      lines = code.lines(chomp: true)
      lines.each_index do |i|
        next unless (match = lines[i].match(/\A(.*?\S)\s+# => (.*)\z/))

        lines[i] = match[1]
        first = first_line(lines, i)
        lines[first] = "check(#{match[2].dump}, __LINE__) { #{lines[first]}"
        lines[i] += ' }'
      end
      lines.join("\n")
    end

    private

    # Of the expression that ends in that line.
    def first_line(lines, last)
      last.downto(0).find { |first| TestDocs.compiles?(lines[first..last].join("\n")) } ||
        raise("#{page}:#{line + last}: nothing that could have a value")
    end
  end

  RUNNER = <<~'RUBY'
    require 'polyphony'
    require 'socket'
    require 'tempfile'
    $stderr.sync = $stdout.sync = true

    def check(expected, line)
      actual = begin
        yield.inspect
      rescue Exception => e
        "raises #{e.class}"
      end
      return if actual == expected || expected.start_with?("#{actual}, ")

      $differences << "line #{line}: expected #{expected}, got #{actual}"
    end

    $differences = []
    Marshal.load($stdin.binmode.read).each do |page, line, code|
      eval(code, TOPLEVEL_BINDING.dup, page, line)
      Fiber.current.shutdown_all_children
    end
    abort $differences.join("\n") if $differences.any?
  RUBY

  def self.compiles?(code)
    verbose, $VERBOSE = $VERBOSE, nil
    RubyVM::InstructionSequence.compile(code)
    true
  rescue SyntaxError
    false
  ensure
    $VERBOSE = verbose
  end

  def self.blocks(page)
    found = []
    File.read("#{ROOT}/#{page}").scan(/^```ruby\n(.*?)^```$/m) do |code,|
      found << Block.new(page, $~.pre_match.count("\n") + 2, code)
    end
    found
  end

  PAGES.each do |page|
    name = page.gsub(/\W+/, '_')

    define_method("test_every_ruby_block_compiles_in_#{name}") do
      self.class.blocks(page).each do |block|
        assert TestDocs.compiles?(block.code), "#{page}:#{block.line} does not compile"
      end
    end

    define_method("test_every_value_is_right_in_#{name}") do
      blocks = self.class.blocks(page).select(&:runnable?).map { |b| [b.page, b.line, b.checked] }
      skip 'no block with values' if blocks.empty?

      runs = self.class.drivers.map { |driver| Thread.new { [driver, *run_on(driver, blocks)] } }
      runs.map(&:value).each { |driver, output, status| assert status.success?, "#{page} on #{driver}:\n#{output}" }
    end

    define_method("test_every_link_leads_somewhere_in_#{name}") do
      file = "#{ROOT}/#{page}"
      targets = File.read(file).scan(/\]\(([^)#]+)(?:#[^)]*)?\)/).flatten.grep_v(/\Ahttps?:/)
      assert_empty(targets.reject { |name| File.exist?(File.expand_path(name, File.dirname(file))) })
    end
  end

  def test_a_page_of_the_guide_is_short
    assert_empty(GUIDE.select { |page| File.readlines("#{ROOT}/#{page}").size > 150 })
  end

  def test_the_guide_has_every_page_in_its_index
    index = File.read("#{ROOT}/docs/guide/README.md")
    names = GUIDE.map { |page| File.basename(page) } - ['README.md']
    assert_empty(names.reject { |name| index.include?("(#{name})") })
  end

  # --- names ----------------------------------------------------------------------------------------

  # Module or class, then its own public methods: what Ruby itself has is left out.
  NAMES = <<~'RUBY'
    require 'openssl' # what is extended only if it is there
    require 'net/http'
    all = ObjectSpace.each_object(Module)
    before = all.to_h { |m| [m, [m.instance_methods(false), m.singleton_methods(false)]] }
    require 'polyphony/http'
    require 'polyphony/testing'
    ours = all.select { |m| m.name&.start_with?('Polyphony') || m == Fiber || m == Thread }
    shown = ->(path) { path.inject(Object) { |m, name| m.constants.include?(name.to_sym) ? m.const_get(name) : break } }
    hidden = ->(m) { !shown.(m.name.split('::')) }
    ours.reject(&hidden).each do |mod|
      old = before.fetch(mod, [[], []])
      words = mod.name == 'Polyphony::GlobalAPI' ? mod.private_instance_methods(false) : []
      (mod.instance_methods(false) + words - old[0]).each { |name| puts "#{mod}##{name}" }
      (mod.singleton_methods(false) - old[1]).each { |name| puts "#{mod}.#{name}" }
    end
  RUBY

  def test_every_public_method_has_a_comment
    yard = yard_objects or skip 'yard is not installed'
    undocumented = ruby(NAMES).split("\n").reject do |name|
      name.match?(/[#.]__/) || yard.include?(name)
    end
    assert_empty undocumented
  end

  def test_every_name_with_a_signature_exists
    existing = existing(signatures.map(&:first).uniq)
    missing = signatures.reject { |owner, name, singleton| existing.include?("#{owner}#{singleton ? '.' : '#'}#{name}") }
    assert_empty missing
  end

  # With the signatures of stock Ruby and of the libraries that the manifest names.
  def test_signatures_agree_with_each_other_and_with_stock_ruby
    skip 'the gem rbs is not installed' unless system('bundle', 'exec', 'rbs', '--version', chdir: ROOT, %i[out err] => File::NULL)

    libraries = File.read("#{ROOT}/sig/manifest.yaml").scan(/name: (\S+)/).flatten.flat_map { |name| ['-r', name] }
    output, status = Open3.capture2e('bundle', 'exec', 'rbs', *libraries, '-I', 'sig', 'validate', chdir: ROOT)
    assert_predicate status, :success?, output
  end

  def test_every_public_method_has_a_signature
    known = signatures.map { |owner, name, singleton| "#{owner}#{singleton ? '.' : '#'}#{name}" }
    without = ruby(NAMES).split("\n").reject do |name|
      owner, kind, method = name.partition(/[#.]/)
      next true if method.start_with?('_') || owner.match?(/ProcessFork|Extensions|FiberAwait|ClassMethods|OutOfBand/)
      next true if kind == '.' && owner.match?(/GlobalAPI|FiberControl|FiberStorage/) # helpers of these files

      forms = [name, "#{owner.sub(/\APolyphony::Fiber\w+/, 'Fiber')}#{kind}#{method}",
               name.sub('Polyphony::Backend#', 'Polyphony.backend_')]
      forms.any? { |form| known.include?(form) }
    end
    assert_empty without
  end

  # Pictures that a script beside them draws.
  def test_pictures_are_what_their_scripts_draw
    scripts = Dir["#{ROOT}/docs/pictures/*.rb"]
    refute_empty scripts
    scripts.each { |script| assert_equal File.read(script.sub(/rb\z/, 'svg')), Open3.capture2(RbConfig.ruby, '-W0', script).first, script }
  end

  def self.drivers
    @drivers ||= Polyphony::Drivers.refusals(lib: LIB).select { |_, why| why.nil? }.keys
  end

  private

  # @return [Array(String, Process::Status)] output and status
  def run_on(driver, blocks)
    Open3.capture2e({ 'POLYPHONY_BACKEND' => driver, **PLAIN }, RbConfig.ruby, '-W2', "-I#{LIB}", '-e', RUNNER,
                    stdin_data: Marshal.dump(blocks), binmode: true)
  end

  def ruby(code, **options)
    output, status = Open3.capture2e(PLAIN, RbConfig.ruby, "-I#{LIB}", '-e', code, **options)
    assert status.success?, output
    output
  end

  # @return [Array<String>, nil] paths of everything that has a comment
  def yard_objects
    require 'yard'
    YARD::Logger.instance.level = YARD::Logger::ERROR
    YARD::Registry.clear
    YARD.parse("#{ROOT}/lib/**/*.rb")
    methods = YARD::Registry.all(:method)
    methods.reject { |m| m.docstring.blank?(false) && m.visibility != :private }.map(&:path)
  rescue LoadError
    nil
  end

  # [owner, name, singleton] of every def, alias and attribute. By lines: the file is ours, and plain.
  def signatures
    owners = []
    Dir["#{ROOT}/sig/*.rbs"].sort.flat_map { |file| File.readlines(file) }.flat_map do |line|
      case line
      when /^\s*(?:class|module) (\w+)/ then owners.push($1) && []
      when /^\s*end$/                   then owners.pop && []
      when /^\s*def (self\.)?([^:\s]+?):/, /^\s*alias (self\.)?(\S+)/
        [[owners.join('::'), $2, !$1.nil?]]
      when /^\s*attr_reader (\w+)/ then [[owners.join('::'), $1, false]]
      when /^\s*attr_accessor (\w+)/ then [$1, "#{$1}="].map { |name| [owners.join('::'), name, false] }
      else []
      end
    end
  end

  # Asked all at once: a Ruby that loads everything takes a moment to start.
  EXISTING = <<~'RUBY'
    require 'polyphony/http'
    require 'polyphony/core/debug'
    require 'polyphony/testing'
    require 'openssl'
    $stdin.each_line(chomp: true) do |path|
      mod = Object.const_get(path)
      puts (mod.instance_methods + mod.private_instance_methods).map { |name| "#{path}##{name}" },
           (mod.singleton_methods + mod.methods).map { |name| "#{path}.#{name}" }
    end
  RUBY

  def existing(owners)
    ruby(EXISTING, stdin_data: owners.join("\n")).split("\n").to_set
  end
end
