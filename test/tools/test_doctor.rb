# frozen_string_literal: true

require_relative '../test_helper'
require 'json'
require 'stringio'
require 'tmpdir'
require 'polyphony/cli'
require 'polyphony/cli/doctor'

# `polyphony doctor`: what is there, what is not, and what mends it. Where io_uring is refused: test/core/test_fallback.rb.
class TestDoctor < Polyphony::TestCase
  on_every_driver

  def setup
    super
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@folder)
    super
  end

  # What the system would say.
  def system_with(files)
    files.each do |name, text|
      path = File.join(@folder, 'proc', name)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    File.join(@folder, 'proc')
  end

  def doctor(*words, **options)
    out = StringIO.new
    err = StringIO.new
    status = Polyphony::CLI.const_get(:Doctor).new(words, out: out, err: err, folder: @folder, **options).run
    [status, out.string, err.string]
  end

  def checks(**options)
    status, out, = doctor('--json', **options)
    data = JSON.parse(out, symbolize_names: true)
    assert_equal status.zero?, data[:healthy]
    data[:checks].to_h { |check| [check[:name], check] }
  end

  def test_a_healthy_machine
    status, out, err = doctor
    assert_equal [0, ''], [status, err]
    assert_match(/^drivers\n  (ok|warn)\s+io_uring.*\n.*  ok    libev: works/, out)
    assert_match(/^  ok    used: #{Thread.current.backend.kind} /, out)
    assert_match(/^  ok    OpenSSL: OpenSSL \d/, out)
    assert_match(/^  ok    ALPN/, out)
    assert_match(/^  (ok|warn)\s+nghttp2: /, out)
    assert_match(/^\d+ ok, \d+ could be better, 0 do not work$/, out)
    refute_match(/  ok .*\n        mend/, out)
  end

  def test_flags_and_opcodes_of_io_uring
    skip 'io_uring does not work here' unless Polyphony::Backend.available.any? { |one| one[:name] == :io_uring && one[:available] }

    found = checks
    assert(found.keys.any? { |name| name.start_with?('IORING_SETUP_SUBMIT_ALL') })
    assert_match(/all \d+ that are used|threads stand in for/, found['opcodes'][:value])
    assert_includes found.keys, 'multishot accept (Linux 5.19)'
  end

  def test_an_old_kernel_that_forbids_and_limits
    found = checks(proc: system_with('sys/kernel/osrelease' => "5.10.0-8\n", 'sys/kernel/io_uring_disabled' => "2\n",
                                     'sys/vm/max_map_count' => "30000\n", 'self/status' => "Name:\truby\nSeccomp:\t2\n"))
    assert_equal ['warn', '5.10.0-8'], found['Linux'].values_at(:status, :value)
    assert_equal ['warn', 'sysctl -w kernel.io_uring_disabled=0'], found['kernel.io_uring_disabled'].values_at(:status, :mend)
    assert_equal ['warn', 'sysctl -w vm.max_map_count=1048576'], found['fibers'].values_at(:status, :mend)
    assert_match(/\Aabout 15,000 at a time/, found['fibers'][:value])
    assert_match(/a filter is at work/, found['seccomp'][:value])
  end

  # Within the hard limit anybody may raise it; above it, root.
  def test_a_limit_of_descriptors_is_mended_where_it_is_set
    advice = lambda do |soft, hard|
      out, = run_ruby("Process.setrlimit(:NOFILE, #{soft}, #{hard}); require 'polyphony/cli'; exit Polyphony::CLI.new(%w[doctor]).run")
      out[/warn  descriptors: .*\n +mend: (.*)/, 1]
    end
    assert_equal 'ulimit -n 5000', advice.call(1000, 5000)
    assert_match(/\Aulimit -n 65536 .* as root, LimitNOFILE=65536/, advice.call(1000, 1000))
  end

  def test_without_proc
    status, out, = doctor(proc: '/nowhere')
    assert_equal 0, status
    assert_match(/no Linux/, out)
  end

  def test_gems_that_clash
    File.write("#{@folder}/Gemfile.lock", <<~TEXT)
      GEM
        remote: https://rubygems.org/
        specs:
          grpc (1.73.0-x86_64-linux-gnu)
            google-protobuf (>= 3.25, < 5.0)
          mysql2 (0.5.4)
          pg (1.5.9)
          rack (3.1.0.rc1)
    TEXT
    found = checks
    assert_match(/stops the thread/, found['grpc 1.73.0-x86_64-linux-gnu'][:value])
    assert_match(/Polyphony\.blocking/, found['grpc 1.73.0-x86_64-linux-gnu'][:mend])
    assert_equal 'bundle update mysql2', found['mysql2 0.5.4'][:mend]
    refute(found.keys.any? { |name| name.start_with?('pg') })
    assert_equal '4 gems, 2 are known to clash', found['Gemfile.lock'][:value]
    assert_equal 0, doctor.first
    assert_equal 1, doctor('--strict').first
  end

  def test_what_does_not_work_is_an_error
    out, _, status = run_ruby("require 'polyphony/cli'; exit Polyphony::CLI.new(%w[doctor]).run", env: { 'POLYPHONY_BACKEND' => 'steam' })
    assert_equal 1, status.exitstatus
    assert_match(/^  FAIL  used: none: .*steam.*\n        mend: unset POLYPHONY_BACKEND/, out)
  end

  # Whatever else is broken.
  def test_an_extension_that_does_not_load
    FileUtils.mkdir_p("#{@folder}/broken")
    File.write("#{@folder}/broken/polyphony.rb", "raise LoadError, 'libruby.so is another one'")
    out, _, status = run_ruby("require 'polyphony/cli'; $LOAD_PATH.unshift(ARGV[0]); exit Polyphony::CLI.new(%w[doctor]).run", "#{@folder}/broken")
    assert_equal 1, status.exitstatus
    assert_match(/FAIL  extension: does not load: libruby\.so is another one\n        mend: gem pristine polyphony/, out)
    assert_match(/^limits$/, out)
  end

  def test_wrong_words
    assert_equal 64, doctor('--what').first
    status, _, err = doctor('please')
    assert_equal 64, status
    assert_match(/what is please\?/, err)
    assert_match(/\Ausage: polyphony doctor/, doctor('--help')[1])
  end
end
