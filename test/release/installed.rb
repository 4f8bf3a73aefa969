# frozen_string_literal: true

require 'fileutils'
require 'stringio'
require_relative '../support/chroot'
require_relative 'package'

module Polyphony
  module Release
    # The gem as somebody has it who installs it: on a Debian which has had nothing but Ruby and the packages that bin/setup names. Each is unpacked
    # anew and thrown away.
    class Installed
      SUITE = 'bookworm'
      NAMED = File.read(File.expand_path('../../bin/setup', __dir__)).scan(/^\s+apt-get:([\w-]+)\)\s+echo (.+?) ;;$/)
                  .to_h.transform_values(&:split).freeze
      ALWAYS = %w[ruby ruby-header compiler make pkg-config libnghttp2 zlib].freeze

      # What is there beside that, and which drivers the gem then has.
      Variant = Struct.new(:title, :libraries, :drivers)
      VARIANTS = {
        'both'     => Variant.new('liburing and libev', %w[liburing libev], %w[io_uring libev]),
        'liburing' => Variant.new('liburing alone', %w[liburing], %w[io_uring]),
        'libev'    => Variant.new('libev alone', %w[libev], %w[libev]),
        'neither'  => Variant.new('neither', [], [])
      }.freeze
      INSTALLED = { installed: 'gem install', driver: 'drivers', old_program: 'old program', readme: "README's blocks",
                    quick_tests: 'quick tests' }.freeze
      REFUSED = { refused: 'gem install says why not' }.freeze

      # They need no gem beside minitest, which comes with Ruby, and no other program.
      QUICK = %w[core fork testing].freeze
      TREE = '/checked'
      HELLO = 'spin { sleep 0.01; puts Thread.current.backend.kind }.await'

      # @param gem [String] file
      def initialize(gem, variant)
        @gem = gem
        @variant = VARIANTS.fetch(variant)
      end

      # @return [String]
      def title
        @variant.title
      end

      # @return [Hash{Symbol => String}] names of methods, to be called one after the other, and what they check
      def checks
        @variant.drivers.empty? ? REFUSED : INSTALLED
      end

      # The system is there for the time of the block.
      def open
        packages = [*ALWAYS, *@variant.libraries].flat_map { |word| NAMED.fetch(word) }
        Chroot.fresh(SUITE, packages: packages) do |chroot|
          @chroot = chroot
          FileUtils.cp(@gem, "#{chroot.root}/root/polyphony.gem")
          yield
        end
      end

      def installed
        install.then { |process| raise Wrong, process.output.lines.last(30).join unless process.success? }
        folder = run!('gem', 'contents', 'polyphony', '--show-install-dir').chomp
        raise Wrong, "no extension in #{folder}/lib" if Dir["#{@chroot.root}#{folder}/lib/polyphony/*.so"].size != 2

        lay_out(@lib = "#{folder}/lib")
        File.basename(folder)
      end

      def driver
        @variant.drivers.each do |driver|
          used = ruby!(driver, '-rpolyphony', '-e', HELLO)
          raise Wrong, "asked for #{driver}: #{used}" unless used == "#{driver}\n"
        end
        without = %w[io_uring libev] - @variant.drivers
        said = without.map { |name| run('ruby', '-rpolyphony', '-e', HELLO, env: { 'POLYPHONY_BACKEND' => name }) }
        raise Wrong, "#{without.first} is there, too" if said.any?(&:success?)

        @variant.drivers.join(', ')
      end

      def old_program
        expected = File.read(File.expand_path('old_program.txt', __dir__))
        @variant.drivers.each do |driver|
          output = ruby!(driver, '-W0', "#{TREE}/test/release/old_program.rb", errors: false)
          raise Wrong, "on #{driver}:\n#{output}" unless output == expected
        end
        "#{expected.lines.size} lines, on #{@variant.drivers.join(' and ')}"
      end

      def readme
        summary_of(run('ruby', '-Itest', 'test/test_docs.rb', '-n', '/every_ruby_block_.*_README/', folder: TREE, env: environment))
      end

      def quick_tests
        tests = QUICK.map { |name| "test/#{name}" }
        process = run('ruby', 'test/run.rb', *tests, folder: TREE, env: environment.merge('POLYPHONY_SECOND_TRY' => '1'), limit: 1500, silence: 360,
                                                     output: $stdout)
        summary_of(process) + (process.output.include?("\nUNSTABLE") ? ', some UNSTABLE' : '')
      end

      def refused
        process = install
        raise Wrong, 'it was installed' if process.success?

        %w[liburing libev apt-get\ install\ liburing-dev\ libev-dev].each do |words|
          raise Wrong, "does not say #{words}:\n#{process.output}" unless process.output.include?(words)
        end
        'names the packages'
      end

      private

      # By the words of README.
      def install
        run('gem', 'install', '--no-document', './polyphony.gem', folder: '/root')
      end

      # The tests, and beside them what they look for: all of that is the gem's, and its lib is not beside them.
      def lay_out(lib)
        @chroot.copy_tree(to: TREE, only: 'test')
        %w[README.md CHANGELOG.md docs examples exe sig ext].each { |name| FileUtils.ln_s("#{File.dirname(lib)}/#{name}", "#{@chroot.root}#{TREE}/#{name}") }
      end

      def environment
        { 'POLYPHONY_LIB' => @lib }
      end

      # Found by RubyGems, as in any program.
      def ruby!(driver, *words, errors: true)
        words = ['ruby', *words]
        words = ['sh', '-c', 'exec "$@" 2>/dev/null', 'sh', *words] unless errors
        run!(*words, env: { 'POLYPHONY_BACKEND' => driver })
      end

      def run!(*words, **options)
        process = run(*words, **options)
        raise Wrong, "#{words.first(4).join(' ')}: #{process.describe_end}\n#{process.output.lines.last(30).join}" unless process.success?

        process.output
      end

      def run(*words, output: StringIO.new, **options)
        @chroot.run(*words, output: output, **options)
      end

      def summary_of(process)
        summary = process.output.scan(/^\d+ runs, .*skips$/).last
        raise Wrong, "#{summary || process.describe_end}\n#{process.output.lines.last(60).join}" unless process.success? && summary&.match?(/\A[1-9]/)

        summary
      end
    end
  end
end
