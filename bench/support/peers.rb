# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'

module Bench
  # Other libraries that do the same work. Each is a gem in a folder of its own under tmp, installed when first
  # needed; a process that runs one sees it, and nothing of Polyphony.
  module Peers
    TARGET = File.expand_path('../../tmp/bench/peers', __dir__)
    # The last ones that work on Ruby 3.1 (async 2.24 installs, but its reads ask for IO#timeout). For another:
    # BENCH_PEER_ASYNC=2.30.0
    OLDER = { 'async' => '2.23.1', 'polyphony' => '1.6', 'eventmachine' => '1.2.7', 'nio4r' => '2.7.4', 'libev_scheduler' => '0.2', 'puma' => '8.0.2', 'falcon' => '0.51.1', 'iodine' => '0.7.60', 'itsi' => '0.2.27',
                 'agoo' => '2.15.15', 'rack' => '3.1.16' }.freeze
    # What is current, by the first Ruby that it runs on.
    NEWER = { '3.3' => { 'async' => '2.46.0' }, '3.4' => { 'carbon_fiber' => '0.2.1', 'uringmachine' => '0.20.0' },
              '3.5' => { 'uringmachine' => '1.0.6' } }.freeze
    VERSIONS = NEWER.select { |ruby, _| Gem::Version.new(RUBY_VERSION) >= Gem::Version.new(ruby) }.values.inject(OLDER, :merge).freeze
    # What a web server needs to run the application of bench/net/http.
    RACK = %w[rack:3.1.16 rackup:2.3.1 sqlite3:1.7.3].freeze
    COMPANIONS = Hash.new([].freeze).merge('rack' => RACK, 'puma' => RACK, 'falcon' => RACK, 'iodine' => RACK,
                                           'itsi' => RACK, 'agoo' => RACK).freeze

    # One gem in several builds: what is set while it is installed.
    BUILDS = { 'polyphony-1.6-io_uring' => ['polyphony', {}], 'polyphony-1.6-libev' => ['polyphony', { 'POLYPHONY_LIBEV' => '1' }] }.freeze

    @homes = {}

    class << self
      # @param more [Array<String>] other gems to be there, as NAME:VERSION
      # @return [Hash] the environment in which it is there
      def environment(name, more = [])
        { 'GEM_HOME' => home(name, more), 'GEM_PATH' => home(name, more) }
      end

      # @return [String, nil] why it cannot be had
      def missing(name)
        home(name)
        nil
      rescue LoadError => e
        e.message
      end

      def version(name)
        name = gem_of(name)
        ENV.fetch("BENCH_PEER_#{name.upcase}") { VERSIONS.fetch(name) { raise LoadError, "it needs Ruby #{first_ruby(name)}" } }
      end

      def gem_of(name)
        BUILDS.fetch(name, [name]).first
      end

      private

      def first_ruby(name)
        NEWER.find { |_ruby, gems| gems.key?(name) }&.first || 'of another version'
      end

      def home(name, more = [])
        found = @homes[[name, more]] ||= install(name, more)
        raise LoadError, found.last if found.is_a?(Array)

        found
      end

      # @return [String, Array(:failed, String)]
      def install(name, more)
        home = File.join(TARGET, [name, version(name), *more.map { |gem| gem.tr(':', '-') }, 'ruby', RUBY_VERSION].join('-'))
        return home if Dir.exist?(home)

        FileUtils.mkdir_p(TARGET)
        draft = "#{home}.#{Process.pid}" # half a folder must not be taken for a whole one
        command = %w[gem install --no-document --install-dir] + [draft, "#{gem_of(name)}:#{version(name)}", *COMPANIONS[name], *more]
        output = IO.popen(clean.merge(BUILDS.fetch(name, [])[1] || {}), command, err: %i[child out], &:read)
        return [:failed, reason(output)] unless $?.success?

        File.rename(draft, home) unless Dir.exist?(home) # another run was faster
        home
      ensure
        FileUtils.rm_rf(draft) if draft
      end

      # The line that tells something: what comes last is where a log is.
      def reason(output)
        (output.lines.grep(/error|fatal|cannot|could not|requires/i).first || output.lines.last).to_s.strip
      end

      # Bundler would put the gems elsewhere.
      def clean
        { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'BUNDLE_GEMFILE' => nil, 'GEM_HOME' => nil, 'GEM_PATH' => nil }
      end
    end
  end
end
