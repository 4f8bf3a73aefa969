# frozen_string_literal: true

require 'etc'
require 'json'
require 'rbconfig'
require_relative 'native'

module Bench
  # What a reader has to know about where the figures come from; nothing that names the machine.
  class Machine
    # @return [Array<String>] drivers that work here
    def drivers
      @drivers ||= ask_drivers
    end

    def facts
      {
        processor: processor, processors: Etc.nprocessors, load_average: load_average,
        kernel: Etc.uname.values_at(:sysname, :release, :machine).join(' '),
        ruby: RUBY_DESCRIPTION, libraries: libraries, drivers: drivers
      }
    end

    # @return [String] the facts that head a table
    def self.line(facts)
      "#{facts[:processor]}, #{facts[:processors]} processors · #{facts[:kernel]} · #{facts[:ruby]}"
    end

    private

    def processor
      return 'unknown' unless File.readable?('/proc/cpuinfo')

      File.read('/proc/cpuinfo')[/^model name\s*:\s*(.+)$/, 1] || 'unknown'
    end

    # Tells how far the figures can be trusted: others may be using the machine.
    def load_average
      File.readable?('/proc/loadavg') ? File.read('/proc/loadavg').split.first(3).join(' ') : 'unknown'
    end

    def libraries
      @libraries ||= JSON.parse(IO.popen([Native.program('versions')], &:read)).tap do |versions|
        versions['liburing'] ||= liburing # its header tells from 2.4 on
      end
    end

    def liburing
      IO.popen(%w[pkg-config --modversion liburing], err: File::NULL, &:read).strip
    rescue Errno::ENOENT
      'unknown'
    end

    def ask_drivers
      script = 'require "polyphony"; ' \
               'puts Polyphony::Backend.available.select { |d| d[:available] }.map { |d| d[:name] }'
      environment = { 'RUBYOPT' => nil, 'RUBYLIB' => $LOAD_PATH.join(File::PATH_SEPARATOR) }
      names = IO.popen(environment, [RbConfig.ruby, '--disable-gems', '-e', script], &:read).split
      raise 'polyphony does not load: is it compiled (rake compile)?' if names.empty?

      names
    end
  end
end
