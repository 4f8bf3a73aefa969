# frozen_string_literal: true

require 'minitest/autorun'
require 'open3'
require 'rbconfig'
require 'set'
require 'socket'
require 'tmpdir'
require_relative 'support/doc_block'
require_relative 'support/drivers'
require_relative 'support/signatures'

# Documentation that cannot rot. In README.md and docs/guide every Ruby block is run on every driver, and the values behind
# `# =>` compared. Such a comment may go on after the value: `# => nil, after a second`; `# => raises IOError` tells of an
# exception. What a block needs to run, or why it is not, stands above it in the page: see support/doc_block.rb. Every public
# name has a YARD comment, every name in sig/ exists, and every link leads to a file.
class TestDocs < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  GUIDE = Dir["#{ROOT}/docs/guide/*.md"].sort.map { |path| path.delete_prefix("#{ROOT}/") }.freeze
  PAGES = ['README.md', *GUIDE].freeze
  LIB = File.expand_path(ENV.fetch('POLYPHONY_LIB', 'lib'), ROOT)
  # The environment of what is started: without Bundler, which would take longer than the rest.
  PLAIN = { 'RUBYOPT' => nil, 'RUBYLIB' => nil }.freeze

  RUNNER = "#{ROOT}/test/support/doc_runner.rb"
  # A page that takes longer hangs.
  LIMIT = 120

  def self.blocks(page)
    Polyphony::DocBlock.in(File.read("#{ROOT}/#{page}"), page)
  end

  PAGES.each do |page|
    name = page.gsub(/\W+/, '_')

    define_method("test_every_ruby_block_compiles_in_#{name}") do
      self.class.blocks(page).select(&:ruby?).each do |block|
        assert Polyphony::DocBlock.compiles?(block.code), "#{page}:#{block.line} does not compile"
      end
    end

    define_method("test_every_ruby_block_runs_and_every_value_is_right_in_#{name}") do
      blocks = self.class.blocks(page).select { |block| block.ruby? && block.here? }
      alone, together = blocks.reject(&:program?).partition(&:alone?)
      jobs = [together, *alone.zip].reject(&:empty?)
      runs = self.class.drivers.to_h { |driver| [driver, jobs.map { |some| Marshal.dump(some.map(&:to_run)) }] }
      side_by_side(self.class.drivers) do |driver|
        runs[driver].each { |job| run_on(driver, RUNNER, input: job) }
        blocks.select(&:program?).each { |block| run_program(driver, block) }
      end
    end

    define_method("test_every_link_leads_somewhere_in_#{name}") do
      file = "#{ROOT}/#{page}"
      targets = File.read(file).scan(/\]\(([^)#]+)(?:#[^)]*)?\)/).flatten.grep_v(/\Ahttps?:/)
      assert_empty(targets.reject { |name| File.exist?(File.expand_path(name, File.dirname(file))) })
    end
  end

  # A typing mistake in a note would leave a block out, or run it without what it needs.
  def test_what_stands_above_blocks_is_understood
    known = %w[before after meanwhile with by alone program elsewhere compiled]
    PAGES.flat_map { |page| self.class.blocks(page) }.each do |block|
      place = "#{block.page}:#{block.line}"
      assert_empty block.notes.keys - known, place
      assert_operator block.notes.fetch('compiled', 'a reason').size, :>, 5, place
      next unless (test = block.notes['elsewhere'])

      assert_includes File.read("#{ROOT}/#{test}"), File.basename(block.page), place
    end
    comments = PAGES.sum { |page| File.read("#{ROOT}/#{page}").scan(/^<!-- *test (?!page)/).size }
    assert_equal comments, PAGES.sum { |page| File.read("#{ROOT}/#{page}").scan(/^<!-- test (?:(?!-->).)*?-->\n(?=<!-- test|```)/m).size }
  end

  # A block of Ruby by another name would not be run.
  def test_every_ruby_block_is_called_ruby
    languages = PAGES.flat_map { |page| self.class.blocks(page) }.map(&:language).uniq
    assert_empty languages - %w[ruby sh ini nginx dockerfile] - ['']
  end

  def test_a_page_of_the_guide_is_short
    assert_empty(GUIDE.select { |page| File.read("#{ROOT}/#{page}").gsub(/<!--.*?-->\n/m, '').lines.size > 150 })
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
    %w[attach cycle deadlocks stalls stats trace tree watcher].each { |tool| require "polyphony/tools/#{tool}" }
    require 'polyphony/adapters/fs'
    name = ->(m) { Module.instance_method(:name).bind_call(m) } # some have a word of that name
    ours = all.select { |m| name.(m)&.start_with?('Polyphony') || m == Fiber || m == Thread }
    shown = ->(path) { path.inject(Object) { |m, name| m.constants.include?(name.to_sym) ? m.const_get(name) : break } }
    hidden = ->(m) { !shown.(name.(m).split('::')) }
    ours.reject(&hidden).each do |mod|
      old = before.fetch(mod, [[], []])
      words = name.(mod) == 'Polyphony::GlobalAPI' ? mod.private_instance_methods(false) : []
      (mod.instance_methods(false) + words - old[0]).each { |name| puts "#{mod}##{name}" }
      structs = mod.is_a?(Class) && mod < Struct ? Struct.new(:member).singleton_methods(false) : []
      (mod.singleton_methods(false) - old[1] - structs).each { |name| puts "#{mod}.#{name}" }
    end
  RUBY

  def test_every_public_method_has_a_comment
    yard = yard_objects or skip 'yard is not installed'
    undocumented = ruby(NAMES).split("\n").reject do |name|
      name.match?(/[#.]__/) || yard.include?(name)
    end
    assert_empty undocumented
  end

  # What `rake doc` does, without writing its pages.
  def test_the_api_pages_are_made_without_a_warning
    skip 'the gem yard is not installed' unless system('bundle', 'exec', 'yard', '--version', chdir: ROOT, %i[out err] => File::NULL)

    Dir.mktmpdir do |folder|
      output, status = Open3.capture2e('bundle', 'exec', 'yard', 'doc', '--quiet', '--no-output', '--no-save', '--no-cache', '-b', "#{folder}/db",
                                       '--fail-on-warning', chdir: ROOT)
      assert_empty output
      assert_predicate status, :success?
    end
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
      next true if name.match?(/\APolyphony::Trace\.(?:after_fork|to_the_end)\z/) # private, as their comments say
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
    scripts.each { |script| assert_equal File.read(script.sub(/rb\z/, 'svg')), Open3.capture2(PLAIN, RbConfig.ruby, '-W0', "-I#{LIB}", script).first, script }
  end

  def self.drivers
    @drivers ||= Polyphony::Drivers.refusals(lib: LIB).select { |_, why| why.nil? }.keys
  end

  private

  def side_by_side(drivers, &block)
    threads = drivers.map { |driver| Thread.new { block.call(driver) } }
    threads.each { |thread| thread.report_on_exception = false }
    threads.each(&:join)
  end

  def run_program(driver, block)
    output = run_on(driver, '-e', block.replaced(block.code))
    assert_match block.printed, output, "#{block.page}:#{block.line} on #{driver}"
  end

  # In an empty folder.
  # @return [String] output
  def run_on(driver, *words, input: '')
    Dir.mktmpdir do |folder|
      command = [{ 'POLYPHONY_BACKEND' => driver, **PLAIN }, RbConfig.ruby, '-W2', "-I#{LIB}", "-I#{ROOT}/test", *words]
      Open3.popen2e(*command, chdir: folder, pgroup: true) do |stdin, out, process|
        guard = Thread.new { Process.kill(:KILL, -process.pid) unless process.join(LIMIT) }
        stdin.binmode.write(input)
        stdin.close
        output = out.read
        assert_predicate process.value, :success?, "on #{driver}:\n#{output}"
        output
      ensure
        guard.kill
      end
    end
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

  def signatures
    Polyphony::Signatures.all("#{ROOT}/sig")
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
