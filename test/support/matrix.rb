# frozen_string_literal: true

# `rake matrix`: the tree built and tested with each Ruby it is for. Everything that can be varied:
#
#   Rubies   the one that runs this; 3.3 and 3.4 in a chroot (see chroot.rb: takes root, and minutes the first time);
#            any others whose programs POLYPHONY_RUBIES names, separated by colons
#   drivers  io_uring, libev
#   kinds    normal: the whole suite; stress: the core and GC, with a collection at every allocation; compact: core, extensions and
#            GC while objects move all the time. The last two have a time budget for each folder, like `rake sanitize`.
#
# Words narrow it, also to folders of test/. Each Ruby has a copy of the tree, and there warnings are errors.
#
#   ruby test/support/matrix.rb [3.4] [libev] [normal] [core] ...

require 'etc'
require 'fileutils'
require 'rbconfig'
require 'stringio'
require_relative 'chroot'
require_relative 'progress'

module Polyphony
  class Matrix
    include Progress

    FOLDER = File.expand_path('tmp/matrix')
    DRIVERS = %w[io_uring libev].freeze
    Kind = Struct.new(:folders, :limit, :env)
    KINDS = {
      'normal'  => Kind.new(nil, 2700, {}),
      'stress'  => Kind.new(%w[core gc], 600, { 'POLYPHONY_GC' => 'stress', 'POLYPHONY_TEST_BUDGET' => '150', 'POLYPHONY_PATIENCE' => '20' }),
      'compact' => Kind.new(%w[core extensions gc], 900,
                            { 'POLYPHONY_GC' => 'compact', 'POLYPHONY_TEST_BUDGET' => '150', 'POLYPHONY_PATIENCE' => '6' })
    }.freeze
    CHROOTS = { '3.3' => 'trixie', '3.4' => 'sid' }.freeze
    # For the gems of the Gemfiles, and what the tests of the web server and of the adapters ask things of.
    PACKAGES = %w[g++ git libyaml-dev libreadline-dev libpq-dev libsqlite3-dev sqlite3 curl openssl nghttp2-client procps strace].freeze
    SERVERS = %w[libmariadb-dev postgresql mariadb-server redis-server python3-h2 python3-websockets].freeze
    GEMFILES = { 'Gemfile' => 'vendor/bundle', 'test/adapters/Gemfile' => 'vendor/apps' }.freeze
    # Folders whose tests ask nothing of databases and of others' web gems.
    BARE = %w[core extensions fork gc processes soak testing tools].freeze

    # A Ruby of this system, with a copy of the tree.
    class Here
      attr_reader :name, :tree

      def initialize(program)
        @program = program
        @name = version
        @tree = "#{FOLDER}/#{@name}"
      end

      # @return [String, nil] why it cannot be had
      def refusal
        'it does not run' unless @name
      end

      # @param _packages [Array<String>] are here or not
      def prepare(_packages)
        Chroot.copy_tree(Dir.pwd, @tree)
      end

      # @return [WatchedProcess] that has ended
      def run(*command, env: {}, limit: 600, output: $stdout)
        clean = ENV.keys.grep(/\A(?:BUNDLE|BUNDLER|GEM|RUBY)/).to_h { |name| [name, nil] }
        path = "#{File.dirname(@program)}:#{ENV.fetch('PATH')}"
        process = WatchedProcess.new({ **clean, 'PATH' => path, **env }, ['env', '-C', @tree, *command], limit: limit, silence: 360, output: output)
        process.call
        process
      end

      private

      def version
        IO.popen([@program, '--disable-gems', '-e', 'print RUBY_VERSION[/\d+\.\d+/]'], &:read) if File.executable?(@program)
      end
    end

    # A Ruby of another system.
    class Elsewhere
      attr_reader :name, :tree

      def initialize(name)
        @name = name
      end

      def refusal
        Chroot.refusal
      end

      def prepare(packages)
        @chroot = Chroot.new(CHROOTS.fetch(@name)).prepare
        @chroot.install(packages)
        @tree = @chroot.copy_tree
      end

      def run(*command, env: {}, **options)
        @chroot.run(*command, folder: @tree, silence: 360, env: env, **options)
      end
    end

    def initialize(words)
      @drivers, words = words.partition { |word| DRIVERS.include?(word) }
      @kinds, words = words.partition { |word| KINDS.key?(word) }
      @folders, @names = words.partition { |word| File.directory?("test/#{word}") }
      @drivers = DRIVERS if @drivers.empty?
      @kinds = KINDS.keys if @kinds.empty?
      @places = places
      @rows = []
    end

    # @return [Boolean]
    def call
      FileUtils.mkdir_p(FOLDER)
      ok = @places.map { |place| try_place(place) }.all?
      File.write("#{FOLDER}/table.md", table)
      puts '', table
      ok
    end

    private

    def places
      programs = [RbConfig.ruby, *ENV['POLYPHONY_RUBIES'].to_s.split(':')]
      all = programs.map { |program| Here.new(program) } + CHROOTS.keys.map { |name| Elsewhere.new(name) }
      all = all.uniq(&:name)
      unknown = @names - all.map(&:name)
      abort "matrix: #{unknown.join(' ')}? There are #{[*all.map(&:name), *DRIVERS, *KINDS.keys].join(', ')}, and the folders of test" if unknown.any?

      @names.empty? ? all : all.select { |place| @names.include?(place.name) }
    end

    def try_place(place)
      return row(place, 'build', '', "not had: #{place.refusal}") && false if place.refusal

      say "Ruby #{place.name}"
      place.prepare(bare? ? PACKAGES : PACKAGES + SERVERS)
      return false unless build(place)

      @kinds.product(@drivers).map { |kind, driver| try(place, kind, driver) }.all?
    rescue Chroot::Failed => e
      row(place, 'build', '', "FAILED: #{e.message.lines.first.chomp}")
      puts e.message
      false
    end

    def bare?
      @folders.any? && (@folders - BARE).empty?
    end

    # The gems of the adapters may be missing: their tests are skipped then.
    def build(place)
      gems = GEMFILES.first(bare? ? 1 : 2).map { |gemfile, path| install_gems(place, gemfile, path) }
      jobs = { 'MAKEFLAGS' => "-j#{Etc.nprocessors}" }
      done = place.run('bundle', 'exec', 'rake', 'compile', env: gems_env(place, *GEMFILES.first).merge(jobs, 'POLYPHONY_WERROR' => '1'),
                                                             limit: 900, output: StringIO.new)
      warnings = done.output.lines.grep(/\.[ch]:\d+:\d+: warning: /)
      ok = gems.first && done.success? && warnings.empty?
      puts done.output.lines.last(40) unless ok
      row(place, 'build', '', ok ? 'no warning' : "FAILED: #{done.describe_end}, #{warnings.size} warnings")
      ok
    end

    def install_gems(place, gemfile, path)
      say "Ruby #{place.name}: gems of #{gemfile}"
      done = place.run('bundle', 'install', '--quiet', env: gems_env(place, gemfile, path), limit: 1200)
      done.success?
    end

    def gems_env(place, gemfile, path)
      { 'BUNDLE_GEMFILE' => "#{place.tree}/#{gemfile}", 'BUNDLE_PATH' => "#{place.tree}/#{path}", 'BUNDLE_SILENCE_ROOT_WARNING' => '1' }
    end

    def try(place, kind, driver)
      say "Ruby #{place.name}, #{driver}, #{kind}"
      settings = KINDS.fetch(kind)
      folders = settings.folders ? settings.folders & (@folders.empty? ? settings.folders : @folders) : @folders
      return true if settings.folders && folders.empty?

      paths = folders.empty? ? Dir['test/*/'].reject { |folder| Dir["#{folder}**/test_*.rb"].empty? } : folders.map { |name| "test/#{name}" }
      began = now
      done = place.run('bundle', 'exec', 'ruby', 'test/run.rb', *paths, limit: settings.limit,
                       env: gems_env(place, *GEMFILES.first).merge(settings.env, 'POLYPHONY_BACKEND' => driver))
      File.write("#{FOLDER}/#{place.name}-#{driver}-#{kind}.log", done.output)
      ok = done.success?
      summary = done.output.scan(/^\d+ runs, .*skips$/).last || done.describe_end
      row(place, kind, driver, "#{'FAILED: ' unless ok}#{summary} (#{(now - began).round} s)")
      ok
    end

    def row(place, kind, driver, result)
      @rows << [place.name, driver, kind, result]
    end

    def table
      table_of(%w[Ruby driver kind result], @rows)
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('../..', __dir__))
exit Polyphony::Matrix.new(ARGV).call
