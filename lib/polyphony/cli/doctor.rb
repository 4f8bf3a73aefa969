# frozen_string_literal: true

require 'json'
require_relative 'command'

module Polyphony
  class CLI
    # +polyphony doctor+: looks at what Polyphony stands on, and says what to do where something is missing. It changes nothing.
    # @api private
    class Doctor < Command
      # One line. status: +:ok+; +:warn+, which works but could be better; +:fail+, with which it does not work.
      Check = Struct.new(:group, :name, :status, :value, :mend, keyword_init: true) do
        # @return [Array<String>]
        def lines
          [format('  %-5s %s', { ok: 'ok', warn: 'warn', fail: 'FAIL' }.fetch(status), [name, value].compact.join(': ')),
           *mend&.lines(chomp: true)&.map { |line| "        mend: #{line}" }]
        end
      end

      BUILD = 'gem pristine polyphony'
      # Fewer than that many is a limit that programs meet.
      FEW_MAPS = 60_000
      FEW_DESCRIPTORS = 4096
      DESCRIPTORS = 65_536
      LOCKED = 8 << 20

      # Gems that stop the thread or bring a loop of their own: versions, what is wrong, what to do. The rest is in
      # docs/compatibility.md.
      CLASHES = {
        'pg' => ['< 1.5', 'waits in ways that cannot be followed', 'bundle update pg'],
        'mysql2' => ['< 0.5.5', 'is not known to the adapter', 'bundle update mysql2'],
        'trilogy' => ['< 2.9', 'is not known to the adapter', 'bundle update trilogy'],
        'redis' => ['< 5', 'is not known to the adapter', 'bundle update redis'],
        'sqlite3' => ['< 1.6', 'is not known to the adapter', 'bundle update sqlite3'],
        'extralite' => ['< 2.8.2', 'is not known to the adapter', 'bundle update extralite'],
        'activerecord' => ['< 7.2', 'has a pool that the adapter does not know', 'bundle update activerecord'],
        'hiredis-client' => ['>= 0', 'waits in C and stops the thread', "bundle remove hiredis-client    # redis-client's own driver lets fibers run"],
        'hiredis' => ['>= 0', 'waits in C and stops the thread', 'bundle remove hiredis'],
        'grpc' => ['>= 0', 'waits in C and stops the thread', 'Polyphony.blocking { stub.call(request) }    # see docs/guide/blocking.md'],
        'typhoeus' => ['>= 0', 'waits in libcurl and stops the thread', 'Polyphony.blocking { }, or Net::HTTP, http, httpx, excon'],
        'curb' => ['>= 0', 'waits in libcurl and stops the thread', 'Polyphony.blocking { }, or Net::HTTP, http, httpx, excon'],
        'eventmachine' => ['>= 0', 'has a loop of its own, which keeps its thread', 'Thread.new { EM.run }    # a thread of its own'],
        'em-synchrony' => ['>= 0', 'switches fibers by itself', 'bundle remove em-synchrony']
      }.freeze

      # @param words [Array<String>] behind +doctor+
      # @param proc [String] where the system tells of itself
      # @param folder [String] whose Gemfile.lock is read
      def initialize(words = [], out: $stdout, err: $stderr, proc: '/proc', folder: Dir.pwd)
        @proc = proc
        @folder = folder
        @checks = []
        super(words, out: out, err: err)
      end

      # @return [Integer] exit status: 0, 1 if something does not work (with --strict, if something could be better)
      def perform
        return complain("what is #{@words.first}?") unless @words.empty?

        look
        @json ? tell(JSON.pretty_generate(to_h)) : print
        healthy? ? 0 : 1
      end

      # @return [Array<Check>]
      def look
        @group = 'ruby'
        rubies
        each_group('kernel') { kernel }
        each_group('drivers') { drivers } if @loaded
        each_group('limits') { limits }
        each_group('tls') { tls }
        each_group('http') { http } if @loaded
        each_group('gems') { gems }
        @checks
      end

      private

      def parser
        @parser ||= OptionParser.new do |options|
          options.banner = "usage: polyphony doctor [options]\n\n" \
                           "What Polyphony stands on: Ruby, kernel, drivers, limits, TLS, HTTP/2, gems of the Gemfile.lock here. Each line\n" \
                           "is ok or not, with what mends it. Exit status 0, or 1 if something does not work.\n\n"
          options.on('--json', 'as JSON') { @json = true }
          options.on('--strict', 'what could be better counts as well') { @strict = true }
          options.on('-h', '--help', 'this text') { @help = true }
        end
      end

      def each_group(name)
        @group = name
        yield
      rescue SystemCallError, LoadError => e
        note(name, :warn, "could not be looked at: #{e.message}")
      end

      def note(name, status, value = nil, mend = nil)
        @checks << Check.new(group: @group, name: name, status: status, value: value, mend: (mend unless status == :ok))
      end

      def healthy?
        bad = @strict ? %i[warn fail] : %i[fail]
        @checks.none? { |check| bad.include?(check.status) }
      end

      # --- Ruby and the extension -----------------------------------------------------------------

      def rubies
        note('Ruby', RUBY_VERSION >= '3.1' ? :ok : :fail, RUBY_DESCRIPTION, 'use Ruby 3.1 or later')
        require 'polyphony'
        @loaded = true
        note('extension', :ok, "polyphony #{VERSION}")
      rescue LoadError => e
        note('extension', :fail, "does not load: #{e.message}", BUILD)
      end

      # --- the kernel ------------------------------------------------------------------------------

      def kernel
        release = read('sys/kernel/osrelease') or return note('system', :ok, "#{RUBY_PLATFORM}: no Linux, so libev")
        note('Linux', since?(release, 5, 11) ? :ok : :warn, release, 'io_uring is used from Linux 5.11 on, best from 6.1: use a newer kernel')
        disabled = read('sys/kernel/io_uring_disabled')
        if disabled
          note('kernel.io_uring_disabled', disabled == '0' ? :ok : :warn, disabled, 'sysctl -w kernel.io_uring_disabled=0')
        end
        seccomp
      end

      def seccomp
        mode = read('self/status').to_s[/^Seccomp:\s*(\d)/, 1] or return
        note('seccomp', :ok, { '0' => 'no filter', '1' => 'strict' }.fetch(mode, 'a filter is at work, as in containers; io_uring below tells whether it is allowed'))
      end

      def since?(release, *version)
        (release.scan(/\d+/).first(2).map(&:to_i) <=> version) >= 0
      end

      # --- drivers ----------------------------------------------------------------------------------

      def drivers
        found = Backend.available
        found.each { |one| driver(one) }
        missing(%i[io_uring libev] - found.map { |one| one[:name] })
        chosen
        io_uring if found.any? { |one| one[:name] == :io_uring && one[:available] }
      end

      def driver(one)
        note(one[:name], one[:available] ? :ok : :warn, one[:available] ? 'works' : "refused: #{one[:reason]}", mend_driver(one[:reason].to_s))
      end

      def mend_driver(reason)
        case reason
        when /io_uring_disabled/ then 'sysctl -w kernel.io_uring_disabled=0'
        when /seccomp/ then "docker run --security-opt seccomp=profile.json ...    # one that allows io_uring_setup, io_uring_enter, io_uring_register\n" \
                            'export POLYPHONY_BACKEND=libev    # or say that libev is fine'
        when /ulimit -l/ then 'ulimit -l unlimited    # LimitMEMLOCK=infinity in a unit of systemd'
        when /ulimit -n/ then 'ulimit -n 65536    # LimitNOFILE=65536 in a unit of systemd'
        when /fs\.file-max/ then 'sysctl -w fs.file-max=1000000'
        when /libev/ then 'apt-get install libev4'
        else 'use a newer kernel, or export POLYPHONY_BACKEND=libev'
        end
      end

      PACKAGES = { io_uring: 'liburing-dev', libev: 'libev-dev' }.freeze

      def missing(names)
        names.each do |name|
          next if name == :io_uring && !RUBY_PLATFORM.include?('linux')

          note(name, :warn, 'not compiled in', "apt-get install #{PACKAGES[name]} && #{BUILD}")
        end
      end

      def chosen
        order = ENV['POLYPHONY_BACKEND'].to_s
        note('used', :ok, "#{Thread.current.backend.kind} (POLYPHONY_BACKEND: #{order.empty? ? 'unset, same as auto' : order})")
      rescue StandardError => e
        note('used', :fail, "none: #{e.message}", 'unset POLYPHONY_BACKEND')
      end

      def io_uring
        lines = Backend.__describe('io_uring')
        lines.select { |group, *| group == 'flag' }.each { |_, name, there| note(name, there ? :ok : :warn, there ? 'used' : 'not known here', 'use a newer kernel') }
        lacking = lines.select { |group, _, there| group == 'opcode' && !there }.map { |_, name, _| name }
        count = lines.count { |group, *| group == 'opcode' }
        note('opcodes', lacking.empty? ? :ok : :warn, lacking.empty? ? "all #{count} that are used" : "threads stand in for #{lacking.join(', ')}", 'use a newer kernel')
        # Without these it is a little slower, which is nothing to mend.
        lines.select { |group, *| group == 'extra' }.each { |_, name, there| note(name, :ok, there ? 'there' : 'done without') }
      end

      # --- limits -----------------------------------------------------------------------------------

      def limits
        maps = read('sys/vm/max_map_count')&.to_i
        note('fibers', maps >= FEW_MAPS ? :ok : :warn, "about #{thousands(maps / 2)} at a time (vm.max_map_count is #{maps}, each needs two)",
             'sysctl -w vm.max_map_count=1048576') if maps
        soft, hard = ::Process.getrlimit(:NOFILE)
        note('descriptors', soft >= FEW_DESCRIPTORS ? :ok : :warn, "#{amount(soft)} (ulimit -n; at most #{amount(hard)})", mend_descriptors(hard))
        locked
        threads
      end

      def mend_descriptors(hard)
        return "ulimit -n #{[hard, DESCRIPTORS].min}" if hard >= FEW_DESCRIPTORS

        "ulimit -n #{DESCRIPTORS}    # as root, LimitNOFILE=#{DESCRIPTORS} in a unit of systemd, --ulimit nofile=#{DESCRIPTORS} of docker run"
      end

      # Since 5.12, rings are not counted.
      def locked
        soft, = ::Process.getrlimit(:MEMLOCK)
        counts = (release = read('sys/kernel/osrelease')) && !since?(release, 5, 12)
        enough = !counts || soft >= LOCKED
        note('locked memory', enough ? :ok : :warn, "#{bytes(soft)} (ulimit -l)#{'; rings do not count on this kernel' unless counts}", 'ulimit -l unlimited')
      end

      def threads
        most = ::Process.getrlimit(:NPROC).first
        note('threads', most >= 1024 ? :ok : :warn, "#{amount(most)} (ulimit -u), for Polyphony.blocking and pools", 'ulimit -u 4096')
      end

      def amount(number)
        number >= ::Process::RLIM_INFINITY ? 'unlimited' : thousands(number)
      end

      def bytes(number)
        number >= ::Process::RLIM_INFINITY ? 'unlimited' : "#{thousands(number / 1024)} KiB"
      end

      def thousands(number)
        number.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,')
      end

      # --- TLS and HTTP -------------------------------------------------------------------------------

      def tls
        require 'openssl'
        note('OpenSSL', :ok, OpenSSL::OPENSSL_LIBRARY_VERSION)
        alpn = OpenSSL::SSL::SSLContext.method_defined?(:alpn_protocols=)
        note('ALPN', alpn ? :ok : :warn, alpn ? 'there, HTTP/2 can be agreed on' : 'missing: no HTTP/2 over TLS', 'build Ruby with OpenSSL 1.0.2 or later')
        newest = OpenSSL::SSL.const_defined?(:TLS1_3_VERSION)
        note('TLS 1.3', newest ? :ok : :warn, newest ? nil : 'missing', 'build Ruby with OpenSSL 1.1.1 or later')
        certificates
      rescue LoadError => e
        note('OpenSSL', :warn, "Ruby has none: #{e.message}", 'apt-get install libssl-dev, and build Ruby again')
      end

      def certificates
        file = ENV.fetch('SSL_CERT_FILE', OpenSSL::X509::DEFAULT_CERT_FILE)
        folder = ENV.fetch('SSL_CERT_DIR', OpenSSL::X509::DEFAULT_CERT_DIR)
        there = File.file?(file) || (File.directory?(folder) && !Dir.empty?(folder))
        note('certificates', there ? :ok : :warn, there ? (File.file?(file) ? file : folder) : "neither #{file} nor #{folder}", 'apt-get install ca-certificates')
      end

      def http
        require 'polyphony/http'
        note('web server', :ok, 'HTTP/1')
        return note('nghttp2', :ok, "#{HTTP::HTTP2::Session.nghttp2_version}, HTTP/2 works") if HTTP.http2?

        note('nghttp2', :warn, 'not compiled in: no HTTP/2', "apt-get install libnghttp2-dev && #{BUILD}")
      rescue LoadError => e
        note('web server', :warn, "does not load: #{e.message}", BUILD)
      end

      # --- gems ---------------------------------------------------------------------------------------

      def gems
        path = File.join(@folder, 'Gemfile.lock')
        return note('Gemfile.lock', :ok, "none in #{@folder}: run this where your program is") unless File.file?(path)

        require 'rubygems' # whoever calls may do without
        locked = File.read(path).scan(/^    ([\w.-]+) \(([^)\s]+)\)$/).to_h
        bad = CLASHES.select { |name, clash| locked[name] && clash?(locked[name], clash.first) }
        bad.each { |name, (_, what, mend)| note("#{name} #{locked[name]}", :warn, what, mend) }
        note('Gemfile.lock', :ok, "#{locked.size} gems, #{bad.empty? ? 'none is' : "#{bad.size} are"} known to clash")
      end

      # "1.5.3-x86_64-linux" as Bundler writes it for native gems.
      def clash?(version, versions)
        number = version[/\A[\d.]+(\.?[a-z]+\d*)?(?=-|\z)/] || version[/\A[\d.]+/] or return false
        Gem::Requirement.new(versions).satisfied_by?(Gem::Version.new(number))
      rescue ArgumentError
        false
      end

      # --- telling --------------------------------------------------------------------------------------

      def read(name)
        File.read(File.join(@proc, name)).strip
      rescue SystemCallError
        nil
      end

      def to_h
        { polyphony: VERSION, ruby: RUBY_VERSION, platform: RUBY_PLATFORM, healthy: healthy?, checks: @checks.map { |check| check.to_h.compact } }
      end

      def print
        @checks.group_by(&:group).each { |group, checks| @out.puts group, checks.flat_map(&:lines) }
        counts = @checks.map(&:status).tally
        @out.puts '', "#{counts.fetch(:ok, 0)} ok, #{counts.fetch(:warn, 0)} could be better, #{counts.fetch(:fail, 0)} do not work"
      end
    end

    private_constant :Doctor
  end
end
