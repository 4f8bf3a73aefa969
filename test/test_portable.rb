# frozen_string_literal: true

require 'minitest/autorun'
require 'etc'
require 'fileutils'
require 'open3'
require 'rbconfig'
require 'tmpdir'
require_relative 'support/public_ruby'

# What Linux with glibc lets one forget. Everything is compiled as on a system that is not Linux (test/c/portable.h takes away what
# others do not have), tested with what stands in for it, and looked through for functions that others lack. And what does not speak Ruby
# is compiled with musl. It shows that nothing of Linux or glibc is needed; it does not show that macOS, BSD or Alpine
# have no surprises: these were not tried.
class TestPortable < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  CLEAN = ENV.keys.grep(/\A(?:BUNDLE|GEM|RUBYOPT|RUBYLIB|POLYPHONY|MAKE)/).to_h { |name| [name, nil] }.freeze
  JOBS = "-j#{Etc.nprocessors}"
  # Of the C library. macOS has all of them, from 11 on, and POSIX most.
  FUNCTIONS = %w[
    _exit accept calloc ceil clock_gettime close closedir connect dirfd dladdr dlclose dlerror dlopen dlsym dup2 fcntl flock free
    freeaddrinfo fstat fsync gai_strerror getaddrinfo getentropy getenv getnameinfo getpeername getpgrp getpid getppid getsockname
    getsockopt gmtime_r inet_ntop inet_pton ioctl lseek malloc memchr memcmp memcpy memmove memset mmap munmap nanosleep open openat opendir
    pipe poll pread pthread_atfork pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate pthread_attr_setstacksize
    pthread_cond_init pthread_cond_broadcast pthread_cond_signal pthread_cond_timedwait pthread_create pthread_detach pthread_mutex_destroy pthread_mutex_init
    pthread_mutex_lock pthread_mutex_unlock pthread_once pthread_sigmask pwrite pwritev qsort read readdir realloc recv recvmsg send
    sendmsg sendto shutdown sigfillset snprintf socketpair stat strcasecmp strchr strcmp strcpy strerror strlen strncasecmp strncmp strnlen strspn
    strstr strtol strtoll sysconf tcgetattr time waitid write writev
  ].freeze
  # Ours only where __APPLE__ is not defined.
  NOT_ON_MACOS = %w[fdatasync].freeze
  OTHERS = /\A(?:_*(?:rb|ruby|st|nghttp2|inflate|deflate|zlib)|__stack_chk|_ITM_|__gmon|__cxa|__assert_fail|__errno_location|__register_atfork)/.freeze
  FOLDER = Dir.mktmpdir('polyphony-portable')
  Minitest.after_run { FileUtils.rm_rf(FOLDER) }

  def test_layer_0_passes_its_tests_without_what_is_for_linux
    output = run!('make', '-s', JOBS, '-C', 'test/c', 'PORTABLE=1', 'SAN=', "BUILD=#{FOLDER}/layer0")
    assert_match(/^[1-9]\d* passed, 0 failed/, output)
  end

  def test_the_extensions_run_a_program_without_what_is_for_linux
    lib = portable_lib
    program = "#{ROOT}/test/release/old_program.rb"
    output, status = Open3.capture2(CLEAN, RbConfig.ruby, "-I#{lib}", program, err: File::NULL)
    assert_predicate status, :success?
    assert_equal File.read(program.sub(/rb\z/, 'txt')), output
  end

  def test_the_extensions_call_no_function_that_macos_lacks
    objects = Dir["#{portable_lib}/polyphony/*.so"]
    called = run!('nm', '-D', '--undefined-only', *objects).lines.filter_map { |line| line[/ U ([^@\s]+)/, 1] }
    names = called.map { |name| name[/\A__(\w+)_chk\z/, 1] || name[/\A__isoc\d+_(\w+)\z/, 1] || name }
    assert_empty names.grep_v(OTHERS).uniq - FUNCTIONS - NOT_ON_MACOS
    assert_empty Polyphony::PublicRuby.strangers(names)
  end

  # With io_uring, if liburing.a is there, which calls the kernel without a C library. libev cannot be had for musl here, so its
  # driver is compiled and not run.
  def test_layer_0_and_its_tests_build_and_pass_with_musl
    compiler = musl
    run!('make', '-s', JOBS, '-C', 'test/c', "CC=#{compiler} -static", 'SAN=', 'WITHOUT=ev', "BUILD=#{FOLDER}/musl0").then do |output|
      assert_match(/^[1-9]\d* passed, 0 failed/, output)
    end
    %w[attempt driver_libev driver_libev_api].each { |name| compile(compiler, "ext/polyphony/#{name}.c", '-DHAVE_LIBEV') }
  end

  # With the headers of a Ruby for glibc: it shows what musl's own lack.
  def test_all_the_rest_compiles_with_the_headers_of_musl
    ruby = RbConfig::CONFIG.values_at('rubyhdrdir', 'rubyarchhdrdir').flat_map { |folder| ['-isystem', folder] }
    %w[polyphony polyphony_http].each do |name|
      files = Dir["#{ROOT}/ext/#{name}/*.c"]
      run!(*musl.split, *ruby, '-std=gnu11', '-D_GNU_SOURCE', '-DHAVE_LIBEV', '-Wall', '-Wextra', '-Wno-unused-parameter', '-Werror',
           '-fsyntax-only', *files)
    end
  end

  # WebSockets and HTTP/2 need zlib and libnghttp2 for what is compiled only here.
  def test_the_parsers_of_the_web_server_build_and_pass_with_musl
    compiler = musl
    objects = Dir["#{ROOT}/ext/polyphony_http/*.c"].grep_v(%r{/class_|_ext\.c\z}).map { |file| compile(compiler, file) }
    %w[http1_chunk http1_head proxy_protocol].each do |name|
      program = "#{FOLDER}/musl_#{name}"
      run!(*compiler.split, '-static', '-std=gnu11', '-D_GNU_SOURCE', '-Iext/polyphony_http', "test/fuzz/#{name}.c", 'test/fuzz/replay/main.c',
           *objects, '-o', program)
      assert_match(/: [1-9]\d* files/, run!(program, "test/fuzz/corpus/#{name}"))
    end
  end

  private

  # @return [String] a lib folder
  def portable_lib
    skip 'libev is missing' unless libev?
    @@portable_lib ||= "#{FOLDER}/lib".tap do |lib|
      FileUtils.cp_r("#{ROOT}/lib", FOLDER)
      FileUtils.rm_f(Dir["#{lib}/polyphony/*.{so,bundle}"])
      { 'polyphony' => '--without-liburing', 'polyphony_http' => '' }.each { |name, switch| build(name, switch, "#{lib}/polyphony") }
    end
  end

  def build(name, switch, target)
    skip 'asks a Ruby of Linux to build as if it were not there' unless RUBY_PLATFORM.include?('linux')
    folder = "#{FOLDER}/#{name}"
    flags = "-U__linux__ -U__linux -Ulinux -U__gnu_linux__ -include #{ROOT}/test/c/portable.h $(DEFS)"
    FileUtils.mkdir_p(folder)
    strict = { 'POLYPHONY_WERROR' => '1' }
    run!(RbConfig.ruby, "#{ROOT}/ext/#{name}/extconf.rb", *switch.split, "--with-cppflags=#{flags}", chdir: folder, env: strict)
    run!('make', JOBS, chdir: folder)
    FileUtils.cp(Dir["#{folder}/*.so"], target)
  end

  # What is the kernel's, or a library's and not of glibc, is laid beside musl's own headers.
  # @return [String] the compiler, as words
  def musl
    skip 'musl-gcc is missing (Debian: musl-tools)' unless system('musl-gcc', '--version', %i[out err] => File::NULL)
    skip 'the headers of libev or of the kernel are missing' unless libev? && File.directory?('/usr/include/linux')
    @@musl ||= begin
      folder = FileUtils.mkdir_p("#{FOLDER}/beside").first
      headers = Dir['/usr/include/{ev.h,liburing.h,liburing,linux,asm-generic}'] + Dir['/usr/include/{asm,*-linux-gnu/asm}'].first(1)
      FileUtils.ln_s(headers + Dir['/usr/lib/{,*-linux-gnu/}liburing.a'].first(1), folder)
      "musl-gcc -isystem #{folder} -L#{folder}"
    end
  end

  def libev?
    File.exist?('/usr/include/ev.h')
  end

  # @return [String] the object
  def compile(compiler, file, *flags)
    object = "#{FOLDER}/musl_#{File.basename(file, '.c')}.o"
    run!(*compiler.split, '-std=gnu11', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror', *flags, '-c', file, '-o', object)
    object
  end

  def run!(*command, chdir: ROOT, env: {})
    output, status = Open3.capture2e(CLEAN.merge(env), *command, chdir: chdir)
    assert status.success?, "#{command.join(' ')}\n#{output}"
    output
  end
end
