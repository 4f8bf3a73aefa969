# frozen_string_literal: true

# `rake sanitize`: the suite where mistakes with memory show. Four kinds of run, each on every driver:
#
#   asan      the extension built with AddressSanitizer and UBSan
#   stress    a garbage collection at every allocation
#   compact   objects move all the time, and references are verified after each test
#   valgrind  the extension as it is, on valgrind: memory that nobody has written, what is not freed. See valgrind.rb
#
# Each run has a time budget, after which the remaining tests are skipped; their order is random, so
# each day sees other ones. All together stays under 20 minutes.
#
# Words choose kinds, drivers and folders of test/. Folders that are named are not left out, and have as much time each.
#
#   ruby test/support/sanitize.rb [asan|stress|compact|valgrind] [io_uring|libev] [core] ...

require 'etc'
require 'fileutils'
require 'rbconfig'
require_relative 'drivers'
require_relative 'valgrind'
require_relative 'watched_process'

module Polyphony
  class Sanitize
    FOLDER = File.expand_path('tmp/sanitize')
    REPORTS = "#{FOLDER}/report"
    KINDS = {
      'asan'    => { seconds: Integer(ENV.fetch('POLYPHONY_SANITIZE_SECONDS', '150'), 10), patience: 4 },
      'stress'  => { seconds: 100, patience: 20 },
      'compact' => { seconds: 60, patience: 6 },
      'valgrind' => { seconds: Integer(ENV.fetch('POLYPHONY_SANITIZE_SECONDS', '150'), 10), patience: 30 }
    }.freeze
    # AddressSanitizer also writes that it does not know the stacks of fibers, which is no fault.
    REPORT = /ERROR: |runtime error: /.freeze
    # A run that has used its budget may finish the test it is in; valgrind begins and ends slowly.
    GRACES = Hash.new(60).merge('valgrind' => 240).freeze
    # Not here: what takes long and asks nothing of our C that others do not.
    LEFT_OUT = %r{\Atest/(?:soak/|http/test_(?:check|cluster\w*|config|demo|hostile_slow|rack_apps|rack_beside_puma|rails|serve)\.rb)}.freeze
    # Programs of others that tests start. AddressSanitizer makes some of them hang (curl, now and then), and is not
    # theirs to carry.
    OTHERS = %w[chromium curl h2load nghttp nginx node openssl python3 wrk].freeze

    def initialize(words)
      @kinds, words = words.partition { |word| KINDS.key?(word) }
      @drivers, words = words.partition { |word| Drivers::ALL.include?(word) }
      @folders, unknown = words.partition { |word| Dir["test/#{word}/**/test_*.rb"].any? }
      abort "sanitize: #{unknown.join(' ')}? There are #{[*KINDS.keys, *Drivers::ALL].join(', ')}, and the folders of test" if unknown.any?

      @kinds = KINDS.keys if @kinds.empty?
      @drivers = Drivers::ALL if @drivers.empty?
      @started = now
      @lines = []
    end

    # @return [Boolean]
    def call
      build if @kinds.include?('asan')
      @kinds.delete('valgrind') && say("no valgrind: #{Valgrind.refusal}") if Valgrind.refusal
      drivers = @drivers & Drivers.refusals.select { |_name, refusal| refusal.nil? }.keys
      folders = @folders.empty? ? [nil] : @folders
      ok = @kinds.product(drivers, folders).map { |kind, driver, folder| run(kind, driver, folder) }.all?
      puts '', '== summary', @lines
      ok
    end

    private

    def build
      say 'building the extensions with AddressSanitizer and UBSan'
      FileUtils.rm_rf(FOLDER)
      FileUtils.mkdir_p(FOLDER)
      File.chmod(0o1777, FOLDER) # servers that become somebody else have something to report, too
      FileUtils.cp_r('lib', FOLDER)
      %w[polyphony polyphony_http].each { |name| build_extension(name) }
      spare_others
    end

    def spare_others
      FileUtils.mkdir_p("#{FOLDER}/bin")
      folders = ENV.fetch('PATH').split(':')
      OTHERS.each do |name|
        program = folders.map { |folder| "#{folder}/#{name}" }.find { |path| File.executable?(path) } or next
        File.write("#{FOLDER}/bin/#{name}", "#!/bin/sh\nunset LD_PRELOAD\nexec #{program} \"$@\"\n", perm: 0o755)
      end
    end

    def build_extension(name)
      folder = "#{FOLDER}/build/#{name}"
      FileUtils.mkdir_p(folder)
      env = { 'POLYPHONY_SANITIZE' => 'address,undefined' }
      quietly(folder, env, RbConfig.ruby, File.expand_path("ext/#{name}/extconf.rb"))
      quietly(folder, env, 'make', "-j#{Etc.nprocessors}")
      FileUtils.cp("#{folder}/#{name}_ext.#{RbConfig::CONFIG['DLEXT']}", "#{FOLDER}/lib/polyphony")
    end

    def quietly(folder, env, *command)
      log = "#{FOLDER}/build.log"
      return if system(env, *command, chdir: folder, out: [log, 'a'], err: %i[child out])

      abort "#{File.read(log)}\nsanitize: #{command.first} failed"
    end

    def run(kind, driver, folder)
      limits = KINDS.fetch(kind)
      title = [kind, 'on', driver, folder].compact.join(' ')
      say "#{title}, at most #{limits[:seconds]} seconds"
      env = { 'POLYPHONY_BACKEND' => driver,
              'POLYPHONY_TEST_BUDGET' => limits[:seconds].to_s,
              'POLYPHONY_PATIENCE' => limits[:patience].to_s }.merge(send("#{kind}_env"))
      process = WatchedProcess.new(env, [*(Valgrind.command(REPORTS, driver) if kind == 'valgrind'), *command(folder)], limit: limits[:seconds] + GRACES[kind])
      process.call
      judge(title, process)
    end

    def command(folder)
      files = folder ? Dir["test/#{folder}/**/test_*.rb"].sort : Dir['test/*/**/test_*.rb'].grep_v(LEFT_OUT).sort
      load_files = 'ARGV.shift(Integer(ARGV.shift)).each { |file| require File.expand_path(file) }'
      [RbConfig.ruby, '-Itest', '-e', load_files, files.size.to_s, *files]
    end

    def judge(title, process)
      files = Dir["#{REPORTS}.*"]
      reports = files.map { |file| File.read(file) }.then { |texts| texts.grep(REPORT) + texts.flat_map { |text| Valgrind.reports(text) } }
      puts reports
      FileUtils.rm_f(files)
      summary = process.output[/^\d+ runs, .*$/]
      ok = process.success? && reports.empty? && summary
      words = [('FAILED:' unless ok), summary || process.describe_end,
               ("#{reports.size} reports" if reports.any?)]
      @lines << format('%-24s %s', title, words.compact.join(' '))
      ok
    end

    # Leaks are not looked for: Ruby itself frees little when it ends. Signal stacks are Ruby's, which
    # changes those of threads. Reports go to files, because tests catch the output of the processes
    # they start.
    def asan_env
      { 'POLYPHONY_LIB' => "#{FOLDER}/lib",
        'PATH' => "#{FOLDER}/bin:#{ENV.fetch('PATH')}",
        'LD_PRELOAD' => %w[libasan.so libubsan.so].map { |name| runtime(name) }.join(' '),
        'ASAN_OPTIONS' => "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0:log_path=#{REPORTS}",
        'UBSAN_OPTIONS' => "print_stacktrace=1:log_path=#{REPORTS}" }
    end

    def stress_env
      { 'POLYPHONY_GC' => 'stress' }
    end

    def valgrind_env
      {}
    end

    def compact_env
      { 'POLYPHONY_GC' => 'compact' }
    end

    def runtime(name)
      IO.popen([RbConfig::CONFIG['CC'].split.first, "-print-file-name=#{name}"], &:read).strip
    end

    def say(text)
      puts format("\n== [%d:%02d] %s", *(now - @started).divmod(60), text)
    end

    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end

$stdout.sync = true
exit Polyphony::Sanitize.new(ARGV).call
