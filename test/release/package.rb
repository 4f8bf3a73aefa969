# frozen_string_literal: true

require 'fileutils'
require 'open3'
require 'rubygems/package'
require_relative '../support/chroot'

module Polyphony
  module Release
    # What is wrong with a release, in a sentence.
    Wrong = Class.new(StandardError)

    # The gem as a file: whether it is built the same wherever it is built, and has in it what belongs there. Each check returns what it
    # found in few words, or raises Wrong.
    class Package
      CHECKS = { build: 'built twice, the same bytes', files: 'file list', metadata: 'metadata and licence', changelog: 'CHANGELOG',
                 signatures: 'signatures (rbs validate)', names: 'comments and signatures of public methods', coverage: 'docs coverage (yard stats)' }.freeze

      # What a gem of ours is made of, and of that what is for the tree alone: pictures are drawn there.
      FOLDERS = %w[docs examples exe ext lib sig].freeze
      PAGES = %w[.yardopts CHANGELOG.md CONTRIBUTING.md LICENSE README.md SECURITY.md].freeze
      LEFT_OUT = %r{\Adocs/pictures/.*\.rb\z}.freeze
      FOREIGN = %r{\A(?:test|bench|vendor|tmp|bin)/|\.(?:so|bundle|o|a|log|gem|lock|orig|rej|swp)\z|(?:\A|/)(?:Makefile|mkmf\.log|\.git)}.freeze
      # Of everything that YARD finds. What stands in for methods of others has their comments, and counts as without.
      COVERED = 90.0

      attr_reader :file

      # @param folder [String] where it is built
      def initialize(folder)
        @folder = folder
        @file = "#{folder}/polyphony.gem"
      end

      # A second time from a copy, of another age, in another folder, at another place of the world.
      def build
        FileUtils.mkdir_p(@folder)
        build_in(Dir.pwd, @file)
        copy = "#{@folder}/copy"
        FileUtils.rm_rf(copy)
        Chroot.copy_tree(Dir.pwd, copy)
        Dir["#{copy}/**/*"].each { |path| File.utime(0, 0, path) if File.file?(path) }
        build_in(copy, "#{@folder}/twin.gem", 'TZ' => 'Pacific/Auckland', 'LC_ALL' => 'C', 'HOME' => @folder)
        raise Wrong, "#{@file} and #{@folder}/twin.gem differ" unless FileUtils.identical?(@file, "#{@folder}/twin.gem")

        "#{File.size(@file) / 1024} KB"
      end

      def files
        inside = package.contents.sort
        tracked = IO.popen(%w[git ls-files -z -- ] + FOLDERS + PAGES, &:read).split("\0").grep_v(LEFT_OUT).sort
        differences = [*(tracked - inside).map { |name| "#{name} is missing" }, *(inside - tracked).map { |name| "#{name} is not in git" },
                       *inside.grep(FOREIGN).map { |name| "#{name} does not belong there" }]
        raise Wrong, differences.join(', ') if differences.any?

        "#{inside.size} files"
      end

      def metadata
        spec = package.spec
        expect('version', VERSION, spec.version.to_s)
        expect('licence', ['MIT'], spec.licenses)
        expect('executables', ['polyphony'], spec.executables)
        expect('extensions', %w[ext/polyphony/extconf.rb ext/polyphony_http/extconf.rb], spec.extensions)
        expect('dependencies', [], spec.runtime_dependencies.map(&:name))
        expect('Ruby', '>= 3.1', spec.required_ruby_version.to_s)
        text = File.read("#{unpacked}/LICENSE")
        ['MIT License', 'Permission is hereby granted, free of charge', 'THE SOFTWARE IS PROVIDED "AS IS"'].each do |words|
          raise Wrong, "LICENSE does not say: #{words}" unless text.include?(words)
        end
        "#{spec.full_name}, #{spec.license}, Ruby #{spec.required_ruby_version}"
      end

      # The first section is that of this version; of one that is not out yet it has no number.
      def changelog
        sections = File.read("#{unpacked}/CHANGELOG.md").scan(/^## (.+)$/).flatten
        wanted = Gem::Version.new(VERSION).prerelease? ? /\AUnreleased\z/ : /\A#{Regexp.escape(VERSION)}\b/
        raise Wrong, "#{VERSION}, but the first section is #{sections.first.inspect}" unless sections.first&.match?(wanted)

        entries = File.read("#{unpacked}/CHANGELOG.md")[/^## .+?(?=^## |\z)/m].scan(/^- /).size
        raise Wrong, 'nothing stands in it' if entries.zero?

        "#{sections.first}, #{entries} entries"
      end

      def signatures
        libraries = File.read("#{unpacked}/sig/manifest.yaml").scan(/name: (\S+)/).flatten.flat_map { |name| ['-r', name] }
        run!('bundle', 'exec', 'rbs', *libraries, '-I', "#{unpacked}/sig", 'validate')
        "#{Dir["#{unpacked}/sig/**/*.rbs"].size} files"
      end

      # Where a gem is missing these tests are skipped: that is not enough here.
      def names
        output = run!('bundle', 'exec', Gem.ruby, '-Ilib', '-Itest', 'test/test_docs.rb', '-n', '/every_public_method|every_name_with|without_a_warning/')
        summary = output[/^\d+ runs, .*skips$/]
        raise Wrong, summary.to_s unless summary&.match?(/\A[1-9].* 0 skips\z/)

        summary
      end

      def coverage
        output = run!('bundle', 'exec', 'yard', 'stats', '--no-save', '--no-cache', '-b', "#{@folder}/yardoc")
        share = Float(output[/([\d.]+)% documented/, 1] || 0)
        raise Wrong, "#{share} % have a comment, wanted are #{COVERED}" if share < COVERED

        "#{share} % of all names"
      end

      # Unpacked, as it is installed.
      def unpacked
        @unpacked ||= "#{@folder}/unpacked".tap do |folder|
          FileUtils.rm_rf(folder)
          package.extract_files(folder)
        end
      end

      private

      def package
        @package ||= Gem::Package.new(@file)
      end

      # The time of the last commit stands for that of the build: whoever builds this commit gets these bytes.
      def build_in(tree, file, env = {})
        time = IO.popen(%w[git log -1 --format=%ct], &:read).chomp
        run!('gem', 'build', '--output', file, 'polyphony.gemspec', env: { 'SOURCE_DATE_EPOCH' => time, **env }, chdir: tree)
      end

      def run!(*command, env: {}, **options)
        output, status = Open3.capture2e(env, *command, **options)
        return output if status.success?

        raise Wrong, "#{command.first(4).join(' ')}: #{output.lines.last(20).join}"
      end

      def expect(name, wanted, found)
        raise Wrong, "#{name} is #{found.inspect}, not #{wanted.inspect}" unless wanted == found
      end
    end
  end
end
