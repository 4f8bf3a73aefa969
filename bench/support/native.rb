# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'

module Bench
  # C programs, and the C extension, that stand for the limit. Compiled when first needed.
  module Native
    SOURCES = __dir__
    TARGET = File.expand_path('../../tmp/bench', __dir__)
    FLAGS = %w[-O2 -std=gnu11 -Wall -Wextra].freeze
    LIBRARIES = { 'echo_uring' => %w[-luring], 'sleep_storm' => %w[-luring] }.freeze

    class << self
      # @return [String] the path of the program
      def program(name)
        build(name, File.join(TARGET, name), [], LIBRARIES.fetch(name, []))
      end

      # @return [String] the path of the extension
      def extension(name)
        config = RbConfig::CONFIG
        headers = %w[rubyhdrdir rubyarchhdrdir].map { |key| "-I#{config[key]}" }
        shared = %w[-shared -fPIC -Wno-unused-parameter]
        shared << '-Wl,-undefined,dynamic_lookup' if config['target_os'].include?('darwin')
        # Its own folder for each Ruby: Init_ is found by the name of the file.
        build(name, File.join(TARGET, RUBY_VERSION, "#{name}.#{config['DLEXT']}"),
              headers + shared, [])
      end

      private

      def build(name, target, flags, libraries)
        source = File.join(SOURCES, "#{name}.c")
        return target if File.exist?(target) && File.mtime(target) > File.mtime(source)

        FileUtils.mkdir_p(File.dirname(target))
        compiler = ENV.fetch('CC', 'cc')
        # Several runs may build at once: each to its own file, then put in place.
        draft = "#{target}.#{Process.pid}"
        ok = system(compiler, *FLAGS, *flags, source, '-o', draft, *libraries)
        raise "#{name}.c does not compile here" unless ok

        File.rename(draft, target)
        target
      end
    end
  end
end
