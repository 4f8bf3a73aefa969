# frozen_string_literal: true

require 'fileutils'
require 'json'
require 'rbconfig'
require 'tmpdir'
require 'polyphony/http/check'

module Polyphony
  # A server under attack, from outside: its process, and what is known of it.
  class HostileTarget
    PROGRAM = File.expand_path('hostile_server.rb', __dir__)

    class << self
      # One for each kind of settings, until stop_all.
      def start(name, **settings)
        (@all ||= {})[name] ||= new(**settings)
      end

      def stop_all
        @all&.each_value(&:stop)
        @all = nil
      end
    end

    attr_reader :pid, :folder, :urls

    def initialize(limits: {}, tls: nil, descriptors: nil, crowd: 1)
      @folder = Dir.mktmpdir('hostile')
      @log = File.join(@folder, 'log')
      Dir.mkdir(root)
      settings = JSON.generate(limits: limits, tls: tls, log: @log, root: root)
      reader, writer = IO.pipe
      input, @gate = IO.pipe
      options = descriptors ? { rlimit_nofile: descriptors } : {}
      @pid = ::Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, '-w', "-I#{POLYPHONY_LIB}", PROGRAM, settings,
                             in: input, out: writer, err: errors, **options)
      [writer, input].each(&:close)
      @urls = JSON.parse(reader.gets || raise(File.read(errors)))['urls']
      reader.close
      warm_up(crowd)
    end

    def root
      File.join(@folder, 'root')
    end

    def errors
      File.join(@folder, 'errors')
    end

    def url
      @urls.first
    end

    def stop
      @gate.close
      ::Process.wait(@pid)
      FileUtils.rm_rf(@folder)
    end

    # --- what it says of itself -----------------------------------------------------------------

    def ask(path, within: 5)
      target = HTTP::Check::Target.new(url)
      wire = target.connect
      wire.send("GET #{path} HTTP/1.1\r\nHost: #{target.authority}\r\nConnection: close\r\n\r\n", within: within)
      wire.read(within)
      HTTP::Check::Answers.new(wire.received, ended: wire.closed?).finals.first
    ensure
      wire&.close
    end

    # @return [Hash{Symbol => Integer}] see HostileServer#control
    def control
      JSON.parse(ask('/control').body, symbolize_names: true)
    end

    # Begins a new log.
    def fresh
      ask('/fresh')
    end

    # @return [Array<String>] the log since then
    def log
      File.readlines(@log, chomp: true)
    end

    # @return [String] what was written where nobody should write: warnings, reports of errors
    def complaints
      File.read(errors)
    end

    # @return [Integer] bytes of memory
    def memory
      File.read("/proc/#{@pid}/status")[/^VmRSS:\s+(\d+)/, 1].to_i * 1_024
    end

    # @return [Float] seconds of CPU time
    def cpu
      File.read("/proc/#{@pid}/stat")[/\) (.*)/, 1].split.values_at(11, 12).sum(&:to_i) / 100.0
    end

    private

    # What is made once is not what an attack costs. For attacks with many connections at a time that includes
    # the fibers of as many.
    def warm_up(crowd)
      target = HTTP::Check::Target.new(url)
      50.times { target.probe }
      Array.new(crowd) { target.connect_plain }.each(&:close)
      ask('/control')
    end
  end
end
