# frozen_string_literal: true

# Other systems to try the tree on: a folder with Debian of another age in it, made by debootstrap once and kept.
# Needs root and a Debian.
#
# What a command needs mounted (/dev, /proc, /sys, the packages) is mounted in a mount namespace of its own, with process
# numbers of its own: it is gone when the command is, also when this process was killed, and nobody else ever sees it.
#
#   ruby test/support/chroot.rb SUITE [--packages NAME,...] [--tree FOLDER] [--limit SECONDS] [--fresh] [-- COMMAND...]
#
#   POLYPHONY_CHROOTS   where they are kept, tmp/chroots without it
#   POLYPHONY_MIRROR    of Debian; without it the one that apt here is set to

require 'fileutils'
require 'optparse'
require 'stringio'
require_relative 'watched_process'

module Polyphony
  # One system: a copy of a minimal one, and what was installed into it.
  class Chroot
    Failed = Class.new(StandardError)

    FOLDER = File.expand_path(ENV.fetch('POLYPHONY_CHROOTS', 'tmp/chroots'))
    ARCHIVES = "#{FOLDER}/archives"
    # The suites of Debian whose packages it takes, and those of Ruby.
    Suite = Struct.new(:apt, :ruby)
    SUITES = {
      'bookworm' => Suite.new(%w[bookworm], %w[ruby ruby-dev bundler]),
      'trixie'   => Suite.new(%w[trixie], %w[ruby ruby-dev bundler]),
      'sid'      => Suite.new(%w[sid experimental], %w[ruby3.4 ruby3.4-dev])
    }.freeze
    BUILD = %w[gcc libc6-dev make pkg-config].freeze
    LIBRARIES = %w[liburing-dev libev-dev libnghttp2-dev zlib1g-dev libssl-dev].freeze
    # What a command finds set, and what it is given of ours.
    ENVIRONMENT = { 'PATH' => '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME' => '/root', 'LANG' => 'C.UTF-8',
                    'DEBIAN_FRONTEND' => 'noninteractive', 'BUNDLE_SILENCE_ROOT_WARNING' => '1' }.freeze
    PASSED_ON = /\A(?:(?:https?|ftp|no|all)_proxy|TERM)\z/i.freeze
    # Stands in what is complete: a run may have been killed meanwhile.
    WHOLE = '.whole'

    # With mounts and process numbers of its own, and ended when whoever started it is.
    ALONE = %w[setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child sh -c].freeze
    # Mounts, then runs what follows as a child, because the first process of all ignores signals that it does not handle.
    # A command that is too slow gets a SEGV, to which Ruby says where it is.
    INSIDE = <<~'SH'
      set -e
      root=$1 archives=$2 limit=$3; shift 3
      mount --make-rprivate /
      mount --rbind /dev "$root/dev"
      mount --rbind /sys "$root/sys"
      mount -t proc proc "$root/proc"
      mount --bind "$archives" "$root/var/cache/apt/archives"
      set +e
      timeout -s SEGV -k 20 "$limit" chroot "$root" "$@"
      exit $?
    SH

    class << self
      # @return [String, nil] why there can be none here
      def refusal
        return 'a chroot takes root' unless ::Process.uid.zero?

        missing = %w[debootstrap setpriv unshare chroot timeout].reject { |name| program?(name) }
        return "#{missing.join(', ')} missing (Debian: apt-get install debootstrap)" if missing.any?

        'no mirror of Debian is known; set POLYPHONY_MIRROR' unless mirror
      end

      # @return [String, nil] the mirror that apt is set to, for the release that runs here
      def mirror
        @mirror ||= ENV['POLYPHONY_MIRROR'] || (apt_mirror if release['ID'] == 'debian')
      end

      # One that nobody has used, for the time of the block.
      # @yieldparam chroot [Chroot]
      def fresh(suite, **options)
        remove_abandoned(suite)
        chroot = new(suite, name: "#{suite}-#{::Process.pid}", **options)
        yield chroot.prepare
      ensure
        chroot&.remove
      end

      # Nothing of ours is ever mounted where this process could see it. What somebody else has mounted there is unmounted
      # first, and if that does not go, nothing is deleted: it would delete what is mounted.
      def delete(folder)
        mounts(folder).reverse_each { |path| system('umount', '-l', path) }
        raise Failed, "chroot: still mounted: #{mounts(folder).join(' ')}" if mounts(folder).any?

        FileUtils.rm_rf(folder, secure: true)
      end

      # Copies what git knows of a tree and what is new there, but not what it ignores. What was compiled or installed in the
      # copy stays; what is in the tree no more goes.
      # @param only [String] a folder; all else is left out
      def copy_tree(tree, target, only: nil)
        FileUtils.mkdir_p(target)
        files = tree_files(tree).select { |file| only.nil? || file.start_with?("#{only}/") }
        (tree_files(target) - files).each { |file| File.delete("#{target}/#{file}") } if File.exist?("#{target}/.git")
        IO.popen(['tar', '-C', tree, '--null', '-T', '-', '-cf', "#{target}.tar"], 'w') { |pipe| pipe.write(files.join("\0")) }
        system('tar', '-C', target, '--no-same-owner', '-xf', "#{target}.tar", exception: true)
        system('git', 'init', '-q', target, exception: true) # knows what is ignored, here too
      ensure
        FileUtils.rm_f("#{target}.tar")
      end

      private

      # Those of processes that were killed.
      def remove_abandoned(suite)
        Dir["#{FOLDER}/#{suite}-*"].each { |folder| delete(folder) unless File.exist?("/proc/#{File.basename(folder)[/-(\d+)/, 1]}") }
      end

      def tree_files(tree)
        names = IO.popen(['git', '-C', tree, 'ls-files', '-zco', '--exclude-standard'], &:read).split("\0")
        names.select { |name| File.file?("#{tree}/#{name}") }
      end

      def program?(name)
        ENV.fetch('PATH').split(':').any? { |folder| File.executable?("#{folder}/#{name}") }
      end

      def release
        @release ||= File.readlines('/etc/os-release').to_h { |line| line.chomp.delete('"').split('=', 2) }
      end

      def apt_mirror
        name = release['VERSION_CODENAME']
        lines = Dir['/etc/apt/sources.list', '/etc/apt/sources.list.d/*.list'].flat_map { |file| File.readlines(file) }
        blocks = Dir['/etc/apt/sources.list.d/*.sources'].flat_map { |file| File.read(file).split(/\n\s*\n/) }
        found = lines.filter_map { |line| line[/\Adeb\s+(?:\[.*?\]\s*)?(\S+)\s+#{name}\s.*\bmain\b/, 1] }
        found += blocks.filter_map { |text| text[/^URIs:\s*(\S+)/, 1] if text.match?(/^Suites:(?:.*\s)?#{name}(?:\s|$)/) }
        found.first
      end

      def mounts(folder)
        File.readlines('/proc/self/mountinfo').map { |line| line.split[4] }.select { |path| path.start_with?("#{folder}/") }
      end
    end

    attr_reader :suite, :root

    # @param packages [Array<String>, nil] what it has beside a minimal Debian; nil is what compiling takes, and Ruby
    # @param name [String] of its folder
    def initialize(suite, packages: nil, name: suite, output: $stdout)
      @suite = SUITES.fetch(suite) { raise Failed, "chroot: no suite #{suite}; there are #{SUITES.keys.join(', ')}" }
      @base = "#{FOLDER}/#{suite}.base"
      @packages = packages || [*@suite.ruby, *BUILD, *LIBRARIES]
      @root = "#{FOLDER}/#{name}"
      @output = output
    end

    # Makes it, or what it lacks. Takes minutes the first time.
    # @return [self]
    def prepare
      raise Failed, "chroot: #{self.class.refusal}" if self.class.refusal

      FileUtils.mkdir_p(ARCHIVES)
      locked do
        made(@base) { |folder| bootstrap(folder) }
        made(@root) { |folder| copy(folder) }
        settings
        install(@packages)
      end
      self
    end

    # Installs packages which it does not have.
    def install(names)
      names -= run!('dpkg-query', '-W', '-f', '${db:Status-Abbrev}${Package}\n', output: StringIO.new).scan(/^ii +(\S+)/).flatten
      return if names.empty?

      say "installing #{names.join(' ')}"
      run!('apt-get', 'update', '-q', output: StringIO.new)
      run!('apt-get', 'install', '-y', '-q', '--no-install-recommends', *names, limit: 1800, output: StringIO.new)
      names.grep(/\Aruby(\d\.\d)\z/) { name_ruby($1) }
    end

    # Runs a command in it.
    # @param limit [Integer] seconds it may take
    # @param silence [Integer] seconds it may be silent
    # @param output [IO, StringIO] where what it writes is shown, as it comes
    # @return [WatchedProcess] that has ended
    def run(*command, env: {}, folder: '/', limit: 600, silence: limit, output: @output)
      set = ENV.to_h.select { |name, _| name.match?(PASSED_ON) }.merge(ENVIRONMENT, env)
      words = ['env', '-i', '-C', folder, *set.map { |name, value| "#{name}=#{value}" }, *command]
      process = WatchedProcess.new({}, [*ALONE, INSIDE, 'chroot', @root, ARCHIVES, limit.to_s, *words],
                                   limit: limit + 30, silence: silence + 30, output: output)
      process.call
      process
    end

    # The same, which has to go well.
    # @return [String] what it wrote
    def run!(*command, **options)
      process = run(*command, **options)
      return process.output if process.success?

      raise Failed, "chroot: #{command.join(' ')}: #{process.describe_end}\n#{process.output.lines.last(40).join}"
    end

    # @return [String] where the copy of the tree is, as seen from inside
    def copy_tree(tree = Dir.pwd, to: '/polyphony', only: nil)
      self.class.copy_tree(tree, "#{@root}#{to}", only: only)
      to
    end

    def remove
      self.class.delete(@root)
    end

    private

    # Under another name first: the name is given when all is there.
    def made(folder)
      return if File.exist?("#{folder}/#{WHOLE}")

      [folder, "#{folder}.half"].each { |path| self.class.delete(path) }
      yield "#{folder}.half"
      FileUtils.touch("#{folder}.half/#{WHOLE}")
      File.rename("#{folder}.half", folder)
    end

    def bootstrap(folder)
      say "making a minimal #{@suite.apt.first}"
      words = ['unshare', '--mount', 'debootstrap', '--variant=minbase', '--include=ca-certificates', "--cache-dir=#{ARCHIVES}",
               @suite.apt.first, folder, self.class.mirror]
      process = WatchedProcess.new({}, words, limit: 1800, output: @output)
      process.call
      raise Failed, "chroot: debootstrap: #{process.describe_end}" unless process.success?
    end

    def copy(folder)
      say "copying it"
      system('cp', '-a', @base, folder, exception: true)
      FileUtils.rm_f("#{folder}/#{WHOLE}")
    end

    # Written each time: the machine around it changes.
    def settings
      write('etc/apt/sources.list', @suite.apt.map { |name| "deb #{self.class.mirror} #{name} main\n" }.join)
      write('etc/dpkg/dpkg.cfg.d/quick', "force-unsafe-io\n")
      write('etc/apt/apt.conf.d/old', "Acquire::Check-Valid-Until \"false\";\n") # a mirror may stand still
      write('usr/sbin/policy-rc.d', "#!/bin/sh\nexit 101\n", 0o755) # packages start nothing
      write('root/.gemrc', "---\n:sources:\n#{Gem.sources.each_source.map { |source| "- #{source.uri}\n" }.join}")
      %w[resolv.conf hosts].each { |name| write("etc/#{name}", File.read("/etc/#{name}")) if File.exist?("/etc/#{name}") }
      certificates = Dir['/usr/local/share/ca-certificates/*.crt']
      FileUtils.cp(certificates, "#{@root}/usr/local/share/ca-certificates")
      run!('update-ca-certificates', output: StringIO.new) if certificates.any?
    end

    # As if it were the only one.
    def name_ruby(version)
      %w[ruby gem bundle bundler rake erb irb].each do |name|
        FileUtils.ln_sf("/usr/bin/#{name}#{version}", "#{@root}/usr/local/bin/#{name}") if File.exist?("#{@root}/usr/bin/#{name}#{version}")
      end
      # Debian's RubyGems is newer than the Bundler that comes with this Ruby, which writes warnings about that into everything.
      run!('gem', 'install', '--no-document', 'bundler', output: StringIO.new)
    end

    # Packages are kept in one place, which has one user at a time.
    def locked
      File.open("#{FOLDER}/lock", File::CREAT | File::RDWR) do |file|
        file.flock(File::LOCK_EX)
        yield
      end
    end

    def write(path, text, mode = 0o644)
      FileUtils.rm_f("#{@root}/#{path}") # may be a link
      File.write("#{@root}/#{path}", text, perm: mode)
    end

    def say(text)
      @output.puts "chroot #{File.basename(@root)}: #{text}"
    end
  end
end

if $PROGRAM_NAME == __FILE__
  packages, tree, fresh, limit = nil, nil, false, 600
  usage = OptionParser.new('usage: chroot.rb SUITE [options] [-- COMMAND...]') do |options|
    options.on('-p', '--packages NAMES', Array, 'what it has beside a minimal Debian') { |names| packages = names }
    options.on('-t', '--tree FOLDER', 'copied to /polyphony, where the command runs') { |folder| tree = folder }
    options.on('-f', '--fresh', 'one that nobody has used, and nobody uses again') { fresh = true }
    options.on('-l', '--limit SECONDS', Integer, 'how long the command may take') { |seconds| limit = seconds }
  end
  suite, *command = usage.permute(ARGV)
  abort usage.to_s unless suite

  $stdout.sync = true
  use = lambda do |chroot|
    folder = tree ? chroot.copy_tree(tree) : '/'
    command.empty? || chroot.run(*command, folder: folder, limit: limit).success?
  end
  ok = fresh ? Polyphony::Chroot.fresh(suite, packages: packages, &use) : use.call(Polyphony::Chroot.new(suite, packages: packages).prepare)
  exit ok
end
