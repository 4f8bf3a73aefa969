# frozen_string_literal: true

require 'fileutils'
require 'open3'

module Polyphony
  # The Chromium of this machine, driven by the scripts in test/browser. What they need of npm is installed
  # into tmp/browser when it is first needed.
  class Browser
    SCRIPTS = File.expand_path('../browser', __dir__)
    MODULES = File.expand_path('../../tmp/browser', __dir__)
    NAMES = %w[chromium chromium-browser google-chrome].freeze

    # @return [String, nil] what there is no browser test without
    attr_reader :missing

    def initialize
      @chromium = ENV['CHROMIUM'] || NAMES.filter_map { |name| find(name) }.first
      @missing = 'Chromium is not installed' unless @chromium
      @missing ||= 'node is not installed' unless find('node')
      @missing ||= install unless installed?
    end

    # @return [Array(String, ::Process::Status)] output and status
    def run(script, *arguments)
      Open3.capture2e('node', File.join(SCRIPTS, script), File.join(MODULES, 'node_modules'), @chromium, *arguments)
    end

    private

    def find(name)
      ENV['PATH'].split(File::PATH_SEPARATOR).map { |folder| File.join(folder, name) }.find { |path| File.executable?(path) }
    end

    def installed?
      File.directory?(File.join(MODULES, 'node_modules/playwright-core'))
    end

    # @return [String, nil] what went wrong
    def install
      return 'npm is not installed' unless find('npm')

      FileUtils.mkdir_p(MODULES)
      File.open(File.join(MODULES, 'lock'), 'w') do |lock|
        lock.flock(File::LOCK_EX) # both drivers' runs may come at once
        installed? ? nil : run_npm
      end
    end

    # @return [String, nil] what went wrong
    def run_npm
      FileUtils.cp(File.join(SCRIPTS, 'package.json'), MODULES)
      output, status = Open3.capture2e('npm', 'install', '--no-audit', '--no-fund', chdir: MODULES)
      status.success? ? nil : "npm could not install playwright-core: #{output.lines.last}"
    end
  end
end
