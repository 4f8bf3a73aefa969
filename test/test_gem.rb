# frozen_string_literal: true

require 'minitest/autorun'
require 'fileutils'
require 'open3'
require 'rbconfig'
require 'tmpdir'

# What people do with the gem: build it, install it where nothing else is, run a line of it. And what
# they meet when a library is missing. Every build here treats warnings as errors.
class TestGem < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  EXTCONF = File.join(ROOT, 'ext/polyphony/extconf.rb')
  HTTP_EXTCONF = File.join(ROOT, 'ext/polyphony_http/extconf.rb')
  HELLO = 'spin { sleep 0.1; puts :ok }.await'
  # What the web server can do, and what it answers: to HTTP/1, and to HTTP/2 by prior knowledge.
  SERVE = <<~'RUBY'
    require 'polyphony/http'
    log = StringIO.new
    server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: log) { |request| request.respond('ok') }.start
    puts "#{Polyphony::HTTP.http2?} #{Polyphony::HTTP::WebSocket.deflate?}"
    ["GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"].each do |text|
      socket = TCPSocket.new('127.0.0.1', server.port)
      socket.write(text)
      socket.close_write
      answer = socket.read
      puts answer.start_with?('HTTP') ? answer.lines.first.chomp : answer.unpack('x3C').inspect
    end
    server.stop(within: 0)
  RUBY
  # Any time will do; without one RubyGems takes that of the build.
  EPOCH = '1700000000'
  FOLDER = Dir.mktmpdir('polyphony-gem')
  Minitest.after_run { FileUtils.rm_rf(FOLDER) }

  # Neither bundler's settings nor a forced driver may leak into what we start.
  CLEAN = ENV.keys.grep(/\A(BUNDLE|GEM|RUBYOPT|RUBYLIB|POLYPHONY)/).to_h { |name| [name, nil] }
             .merge('POLYPHONY_WERROR' => '1').freeze

  class << self
    # The four builds take most of the time here; they run side by side from the first test on.
    def builds
      @builds ||= {
        gem:      Thread.new { install_gem },
        io_uring: Thread.new { build_alone('io_uring', '--without-libev') },
        libev:    Thread.new { build_alone('libev', '--without-liburing') },
        http:     Thread.new { build_bare_http }
      }
    end

    def gem_home(home)
      { 'GEM_HOME' => home, 'GEM_PATH' => home }
    end

    def run!(env, *command, chdir: ROOT)
      output, status = Open3.capture2e(CLEAN.merge(env), *command, chdir: chdir)
      raise "#{command.join(' ')}\n#{output}" unless status.success?

      output
    end

    private

    def install_gem
      home = File.join(FOLDER, 'home')
      file = File.join(FOLDER, 'polyphony.gem')
      run!({ 'SOURCE_DATE_EPOCH' => EPOCH }, 'gem', 'build', '--output', file, 'polyphony.gemspec')
      run!(gem_home(home), 'gem', 'install', '--local', '--no-document', file, chdir: FOLDER)
      home
    end

    # @return [String] a lib folder whose extension knows one driver only
    def build_alone(name, switch)
      build = File.join(FOLDER, name)
      FileUtils.mkdir_p(build)
      FileUtils.cp_r(File.join(ROOT, 'lib'), build)
      FileUtils.rm_f(Dir["#{build}/lib/polyphony/polyphony_ext.*"])
      run!({}, RbConfig.ruby, EXTCONF, switch, chdir: build)
      run!({}, 'make', chdir: build)
      FileUtils.cp(Dir["#{build}/polyphony_ext.{so,bundle}"], "#{build}/lib/polyphony")
      "#{build}/lib"
    end

    # @return [String] a lib folder whose web server has neither libnghttp2 nor zlib
    def build_bare_http
      build = File.join(FOLDER, 'http')
      FileUtils.mkdir_p(build)
      FileUtils.cp_r(File.join(ROOT, 'lib'), build)
      FileUtils.rm_f(Dir["#{build}/lib/polyphony/polyphony_http_ext.*"])
      run!({}, RbConfig.ruby, HTTP_EXTCONF, '--without-libnghttp2', '--without-libz', chdir: build)
      run!({}, 'make', chdir: build)
      FileUtils.cp(Dir["#{build}/polyphony_http_ext.{so,bundle}"], "#{build}/lib/polyphony")
      "#{build}/lib"
    end
  end

  def test_the_gem_runs_from_an_empty_gem_home
    home = built(:gem)
    command = [RbConfig.ruby, '-rpolyphony', '-e', HELLO]
    assert_equal "ok\n", run!(gem_home(home), *command, chdir: FOLDER)
  end

  def test_the_installed_command_answers
    home = built(:gem)
    command = [RbConfig.ruby, File.join(home, 'bin/polyphony')]
    require_relative '../lib/polyphony/version'
    assert_equal "polyphony #{Polyphony::VERSION}\n", run!(gem_home(home), *command, '--version')
    assert_match(/io_uring.*\n.*libev/, run!(gem_home(home), *command, 'doctor'))
  end

  def test_the_installed_web_server_answers
    home = built(:gem)
    command = [RbConfig.ruby, '-rpolyphony', '-rstringio', '-e', SERVE]
    features, http1, http2 = run!(gem_home(home), *command, chdir: FOLDER).lines(chomp: true)
    assert_equal 'HTTP/1.1 200 OK', http1
    if features.start_with?('true') then assert_equal '[4]', http2 # SETTINGS
    else assert_equal 'HTTP/1.1 505 HTTP Version Not Supported', http2
    end
  end

  # What is left out says so.
  def test_the_web_server_needs_neither_libnghttp2_nor_zlib
    lib = built(:http)
    output = run!({}, RbConfig.ruby, "-I#{lib}", '-rpolyphony', '-rstringio', '-e', SERVE, chdir: FOLDER)
    assert_equal "false false\nHTTP/1.1 200 OK\nHTTP/1.1 505 HTTP Version Not Supported\n", output
  end

  # Whoever builds it from the same sources gets the same bytes.
  def test_the_gem_is_built_the_same_twice
    built(:gem)
    twin = File.join(FOLDER, 'twin.gem')
    run!({ 'SOURCE_DATE_EPOCH' => EPOCH }, 'gem', 'build', '--output', twin, 'polyphony.gemspec')
    assert FileUtils.identical?(File.join(FOLDER, 'polyphony.gem'), twin)
  end

  def test_the_gem_carries_no_built_or_foreign_file
    spec = Gem::Specification.load(File.join(ROOT, 'polyphony.gemspec'))
    assert_empty spec.files.grep(/\.(so|bundle|o|log|gem)\z|\Atest|\Avendor|\Atmp/)
    assert_includes spec.files, 'ext/polyphony/extconf.rb'
    assert_includes spec.files, 'ext/polyphony_http/extconf.rb'
    assert_includes spec.files, 'ext/build.rb'
    assert_includes spec.files, 'lib/polyphony.rb'
    assert_includes spec.files, 'LICENSE'
    assert_includes spec.files, 'SECURITY.md'
    assert_equal 'MIT', spec.license
    linked = File.read(File.join(ROOT, 'README.md')).scan(/\]\((\w[^)#:]*\.(?:md|rb))\)/).flatten
    assert_empty linked - spec.files, 'what README leads to'
  end

  def test_it_builds_and_runs_with_liburing_alone
    skip 'liburing is for Linux' unless RUBY_PLATFORM.include?('linux')

    assert_runs_with :io_uring
  end

  def test_it_builds_and_runs_with_libev_alone
    assert_runs_with :libev
  end

  def test_with_neither_library_one_message_names_the_packages
    output = refused_by_extconf('--without-liburing', '--without-libev')
    ['Debian', 'Fedora', 'Alpine', 'macOS', 'apt-get install liburing-dev libev-dev',
     'dnf install liburing-devel libev-devel', 'apk add liburing-dev libev-dev',
     'brew install libev'].each { |words| assert_includes output, words }
    refute_includes output, 'extconf.rb failed'
  end

  def test_a_liburing_that_is_too_old_counts_as_missing
    Dir.mktmpdir do |old|
      File.write("#{old}/liburing.h", "struct io_uring { int ring_fd; };\n")
      output = refused_by_extconf("--with-liburing-include=#{old}", '--without-libev')
      assert_includes output, 'liburing is older than 2.3'
    end
  end

  private

  # @return [String] what extconf.rb says when it gives up
  def refused_by_extconf(*switches)
    Dir.mktmpdir do |folder|
      output, status = Open3.capture2e(CLEAN, RbConfig.ruby, EXTCONF, *switches, chdir: folder)
      refute_predicate status, :success?
      refute_path_exists File.join(folder, 'Makefile')
      output
    end
  end

  def built(name)
    self.class.builds.each_value { |thread| thread.report_on_exception = false }
    self.class.builds[name].value
  end

  def assert_runs_with(driver)
    lib = built(driver)
    code = "#{HELLO}; puts Thread.current.backend.kind"
    output, status = Open3.capture2e(CLEAN, RbConfig.ruby, "-I#{lib}", '-rpolyphony', '-e', code,
                                     chdir: FOLDER)
    refused = /EPERM|ENOSYS|not permitted|not implemented/
    if !status.success? && driver == :io_uring && output.match?(refused)
      skip "this kernel refuses io_uring: #{output.lines.first}"
    end
    assert_equal "ok\n#{driver}\n", output
  end

  def run!(...)
    self.class.run!(...)
  end

  def gem_home(home)
    self.class.gem_home(home)
  end
end
