# frozen_string_literal: true

require 'fileutils'
require 'open3'
require 'rbconfig'

module Polyphony
  module Compat
    # The interpreter's own sources, of exactly the Ruby that runs: the folder that COMPAT_SOURCE names,
    # or Debian's source package, which is fetched once and kept in tmp/compat.
    class Source
      # Says what is missing and what to do about it.
      class Missing < StandardError
      end

      # @param cache [String] a folder of ours
      # @param given [String, nil] an unpacked tree
      def initialize(cache, given: ENV['COMPAT_SOURCE'])
        @cache = cache
        @given = given unless given.to_s.empty?
      end

      # @return [String] the root of the tree
      # @raise [Missing]
      def path
        @path ||= @given ? check(File.expand_path(@given)) : check(kept || fetch)
      end

      # Builds the C extensions that some of the test files load.
      # @param names [Array<String>] below ext/-test-
      # @return [String] a folder for RUBYLIB
      def build_extensions(names)
        library = File.join(@cache, 'extensions', "#{RUBY_VERSION}-#{RUBY_PLATFORM}")
        names.each do |name|
          stamp = File.join(library, 'built', name)
          next if File.exist?(stamp) || !File.exist?("#{path}/ext/-test-/#{name}/extconf.rb")

          build_extension(name, library) && FileUtils.mkdir_p(stamp)
        end
        library
      end

      private

      def check(tree)
        found = version_of(tree)
        return tree if found == [RUBY_VERSION, RUBY_PATCHLEVEL]

        raise Missing, "the sources in #{tree} are those of Ruby #{found.join('p')}, but this is " \
                       "#{RUBY_VERSION}p#{RUBY_PATCHLEVEL}; set COMPAT_SOURCE to the matching ones"
      end

      def version_of(tree)
        text = %w[include/ruby/version.h version.h].map { |name| File.read("#{tree}/#{name}") }.join
        number = ->(name) { text[/^#\s*define #{name} (-?\d+)/, 1] }
        version = %w[API_VERSION_MAJOR API_VERSION_MINOR VERSION_TEENY].map { |part| number["RUBY_#{part}"] }
        [version.join('.'), Integer(number['RUBY_PATCHLEVEL'] || -1)]
      rescue Errno::ENOENT => e
        raise Missing, "no sources of Ruby in #{tree}: #{e.message}"
      end

      def kept
        Dir["#{@cache}/source/*/version.h"].map { |file| File.dirname(file) }
                                           .find { |tree| version_of(tree).first == RUBY_VERSION }
      end

      def fetch
        package = debian_package
        folder = File.join(@cache, 'source')
        FileUtils.mkdir_p(folder)
        puts "compat: fetching the sources of #{package}"
        Apt.new(File.join(@cache, 'apt')).unpack(package, folder)
        kept || raise(Missing, "#{package} holds no Ruby #{RUBY_VERSION}; set COMPAT_SOURCE")
      end

      # @return [String] source package and version that this interpreter was built from
      def debian_package
        owner = output('dpkg', '-S', File.realpath(RbConfig.ruby)).to_s[/\A[^:]+/]
        owner && output('dpkg-query', '-W', '-f', '${source:Package}=${source:Version}', owner) ||
          raise(Missing, "#{RbConfig.ruby} comes from no Debian package; unpack the sources of Ruby " \
                         "#{RUBY_VERSION} and set COMPAT_SOURCE to their folder")
      end

      def output(*command)
        out, status = Open3.capture2(*command, err: File::NULL)
        out if status.success?
      rescue Errno::ENOENT
        nil
      end

      # In a source tree top_srcdir is set; mkmf alone leaves it empty, and an empty -I swallows a flag.
      def build_extension(name, library)
        folder = File.join(@cache, 'extensions', 'build', name)
        FileUtils.mkdir_p(folder)
        log = File.join(folder, 'build.log')
        options = { chdir: folder, %i[out err] => [log, 'w'] }
        built = system(RbConfig.ruby, '-rmkmf', "#{path}/ext/-test-/#{name}/extconf.rb", **options) &&
                system('make', 'install', "top_srcdir=#{path}", "sitearchdir=#{library}",
                       chdir: folder, %i[out err] => [log, 'a'])
        warn "compat: ext/-test-/#{name} does not build, see #{log}" unless built
        built
      end
    end

    # Fetches a source package with the machine's own package sources, without touching their settings:
    # they are copied, with deb-src for deb, and lists and cache are kept elsewhere.
    class Apt
      def initialize(folder)
        @folder = folder
      end

      # @param package [String] name=version; if that version has left the archive, the one that is there
      # @param target [String] the folder to unpack in
      def unpack(package, target)
        raise Source::Missing, 'dpkg-source is missing: install the package dpkg-dev' unless tool?('dpkg-source')

        copy_sources
        apt('update', '-qq')                    # a third party without sources is no harm
        return if [package, package[/\A[^=]+/]].any? { |what| apt('source', '-qq', what, chdir: target) }

        raise Source::Missing, "apt-get source #{package} failed; unpack the sources of Ruby #{RUBY_VERSION} " \
                               'and set COMPAT_SOURCE to their folder'
      end

      private

      def tool?(name)
        ENV['PATH'].split(':').any? { |folder| File.executable?(File.join(folder, name)) }
      end

      def apt(*words, chdir: @folder)
        options = { 'Dir::Etc::SourceList' => '/dev/null', 'Dir::Etc::SourceParts' => "#{@folder}/parts",
                    'Dir::State::Lists' => "#{@folder}/lists", 'Dir::Cache' => "#{@folder}/cache",
                    'Acquire::Languages' => 'none' }
        options['APT::Sandbox::User'] = 'root' if ::Process.uid.zero? # it may not read our folders
        system('apt-get', *options.map { |name, value| "-o#{name}=#{value}" }, *words,
               chdir: chdir, out: File::NULL, err: ["#{@folder}/apt.log", 'a'])
      end

      def copy_sources
        %w[parts lists/partial cache/archives/partial].each { |name| FileUtils.mkdir_p("#{@folder}/#{name}") }
        machine_sources.each_with_index do |file, i|
          lines = File.readlines(file)
          lines = file.end_with?('.sources') ? stanzas(lines) : one_liners(lines)
          File.write("#{@folder}/parts/#{i}#{File.extname(file)}", lines.join)
        end
      end

      def machine_sources
        answer, = Open3.capture2('apt-config', 'shell', 'LIST', 'Dir::Etc::SourceList/f',
                                 'PARTS', 'Dir::Etc::SourceParts/d')
        list, parts = %w[LIST PARTS].map { |name| answer[/^#{name}='(.*)'$/, 1].to_s }
        [list, *Dir["#{parts.chomp('/')}/*.{list,sources}"]].select { |file| File.file?(file) }
      end

      def stanzas(lines)
        lines.map { |line| line.sub(/\ATypes:.*/i, 'Types: deb-src') }
      end

      def one_liners(lines)
        lines.grep(/\Adeb\s/).map { |line| line.sub(/\Adeb/, 'deb-src') }
      end
    end
  end
end
