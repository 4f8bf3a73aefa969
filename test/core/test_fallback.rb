# frozen_string_literal: true

require_relative '../test_helper'
require 'tmpdir'

# Where io_uring is refused, as in many containers: what is chosen, and what is said.
class TestFallback < Polyphony::TestCase
  on_every_driver

  SOURCE = File.expand_path('../support/seccomp_refuse.c', __dir__)
  COULD_NOT_FILTER = 125
  WORK = <<~'RUBY'
    require 'polyphony'
    reader, writer = IO.pipe
    spin { sleep 0.001; Polyphony.backend_write(writer, 'works') }
    puts Polyphony.backend_kind, Polyphony.backend_read(reader, +'', 10, false, 0)
    puts Thread.new { sleep 0.001; Polyphony.backend_kind }.value
  RUBY

  class << self
    # Compiled once for all tests; nil where that is not possible.
    def helper
      return @helper if defined?(@helper)

      folder = Dir.mktmpdir('seccomp')
      Minitest.after_run { FileUtils.rm_rf(folder) }
      path = File.join(folder, 'seccomp_refuse')
      built = system('cc', '-o', path, SOURCE, out: File::NULL, err: File::NULL)
      @helper = built ? path : nil
    end
  end

  def refused(name, code = WORK, driver: nil)
    helper = self.class.helper or skip 'seccomp_refuse.c cannot be compiled here'
    env = { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'POLYPHONY_BACKEND' => driver }
    started = start_command(env, helper, name, RbConfig.ruby, '--disable-gems', "-I#{POLYPHONY_LIB}", '-e', code, in: File::NULL)
    out, err, status = started.finish(self, patient(30))
    skip 'seccomp filters are not allowed here' if status.exitstatus == COULD_NOT_FILTER
    [out, err, status]
  end

  def available?(name)
    Polyphony::Backend.available.any? { |driver| driver[:name] == name && driver[:available] }
  end

  def setup
    super
    skip 'libev is not compiled in' unless available?(:libev)
    skip 'io_uring is not compiled in' if Polyphony::Backend.available.none? { |d| d[:name] == :io_uring }
  end

  %w[EPERM ENOSYS ENOMEM EOPNOTSUPP EINVAL].each do |name|
    define_method("test_without_an_order_libev_is_used_when_io_uring_is_refused_with_#{name}") do
      [nil, 'auto', ''].each do |driver|
        out, err, status = refused(name, driver: driver)
        assert status.success?, err
        assert_equal "libev\nworks\nlibev\n", out
        assert_equal 1, err.lines.grep(/io_uring/).size, "said once: #{err}"
        message = Errno.const_get(name).new.message
        assert(err.include?(name) || err.include?(message), "#{err} does not name #{name} (#{message})")
      end
    end

    define_method("test_an_order_for_io_uring_that_is_refused_with_#{name}_raises") do
      out, err, status = refused(name, driver: 'io_uring')
      refute status.success?
      assert_empty out
      message = Errno.const_get(name).new.message
      assert_match(/io_uring/, err)
      assert(err.include?(name) || err.include?(message), "#{err} does not name #{name} (#{message})")
    end

    define_method("test_an_order_for_libev_says_nothing_when_io_uring_is_refused_with_#{name}") do
      out, err, status = refused(name, driver: 'libev')
      assert status.success?, err
      assert_equal "libev\nworks\nlibev\n", out
      assert_empty err
    end
  end

  def test_available_tells_who_was_refused_and_why
    out, err, status = refused('EPERM', <<~RUBY, driver: 'libev')
      require 'polyphony'
      Polyphony::Backend.available.each { |d| puts [d[:name], d[:available], d[:reason].to_s.empty?].join(' ') }
    RUBY
    assert status.success?, err
    assert_equal ['io_uring false false', 'libev true true'], out.lines(chomp: true)
  end

  def test_a_driver_nobody_knows_is_an_error_that_names_it
    _out, err, status = run_ruby(WORK, env: { 'POLYPHONY_BACKEND' => 'nonsense' })
    refute status.success?
    assert_match(/nonsense/, err)
    assert_match(/libev/, err, 'the choices are named')
  end

  def test_loading_the_gem_opens_nothing
    out, err, status = run_ruby("require 'polyphony'; puts 'loaded'", env: { 'POLYPHONY_BACKEND' => 'nonsense' })
    assert_equal "loaded\n", out, err
    assert status.success?, err
  end

  def test_an_order_is_obeyed
    Polyphony::Backend.available.select { |driver| driver[:available] }.each do |driver|
      out, err, = run_ruby(WORK, env: { 'POLYPHONY_BACKEND' => driver[:name].to_s })
      assert_equal "#{driver[:name]}\nworks\n#{driver[:name]}\n", out
      assert_empty err
    end
  end

  def test_an_automatic_choice_says_nothing_when_the_best_one_works
    skip 'io_uring does not work here' unless available?(:io_uring)
    ['auto', '', nil].each do |value|
      out, err, = run_ruby(WORK, env: { 'POLYPHONY_BACKEND' => value })
      assert_equal "io_uring\nworks\nio_uring\n", out
      assert_empty err
    end
  end

  def test_the_doctor_tells_what_refuses_and_what_mends_it
    out, _, status = refused('EPERM', "require 'polyphony/cli'; exit Polyphony::CLI.new(%w[doctor]).run")
    assert_predicate status, :success?, 'libev does'
    assert_match(/^  warn  io_uring: refused: io_uring_setup: EPERM.*\n        mend: (docker run .*seccomp|sysctl)/, out)
    assert_match(/^  ok    used: libev/, out)
    refute_match(/IORING_SETUP/, out)
    _, _, status = refused('EPERM', "require 'polyphony/cli'; exit Polyphony::CLI.new(%w[doctor --strict]).run")
    assert_equal 1, status.exitstatus
  end
end
