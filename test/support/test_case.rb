# frozen_string_literal: true

require 'minitest'
require 'rbconfig'
require 'socket'
require 'tempfile'
require 'polyphony/testing'

module Polyphony
  # What every test of the runtime stands on. After each test: the fibers it left are shut down,
  # the IOs that the helpers opened are closed, and then no fiber, no operation in flight and no
  # descriptor may be left over.
  class TestCase < Minitest::Test
    PATIENCE = Float(ENV.fetch('POLYPHONY_PATIENCE', '1'))
    BUDGET = ENV['POLYPHONY_TEST_BUDGET']&.to_f
    SANITIZERS = %r{/tmp/sanitize/report\.}.freeze # they write there
    STARTED = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)

    class << self
      # Says that the tests below hold on every driver. All files in the folders of test/ run once per driver
      # anyway (see test/run.rb); a test for one driver alone asks `driver?` and skips.
      def on_every_driver; end

      # How many seconds one test of this class may take.
      def time_limit(seconds = nil)
        @time_limit = seconds if seconds
        @time_limit || (superclass.respond_to?(:time_limit) ? superclass.time_limit : 60)
      end

      def run(...)
        super
      ensure
        after_all
      end

      # When the tests of the class are over. Processes that were started for all of them end here: later tests
      # wait for any child.
      def after_all; end
    end

    def run
      Watchdog.watch("#{self.class}##{name}", self.class.time_limit * PATIENCE) { super }
    end

    # A child that came back from where it was forked would run the tests that are left, with its parent's servers.
    def capture_exceptions
      owner = ::Process.pid
      super do
        yield
      ensure
        leave_tests_to_parent($!) unless ::Process.pid == owner
      end
    end

    def before_setup
      super
      keep_to_budget
      @ios = []
      @leaks = Testing::Leaks.new(ignore: SANITIZERS)
      GCPressure.on
    end

    def keep_to_budget
      skip 'the time budget is used up' if BUDGET && clock - STARTED > BUDGET
    end

    def after_teardown
      GCPressure.off if @leaks # it was on: whoever was skipped has nothing to be looked at
      shut_down_children
      @ios&.each { |io| io.close unless io.closed? }
      left = @leaks && passed? ? @leaks.found : []
      assert_empty left, "left behind by this test:\n  #{left.join("\n  ")}\n"
      super
    end

    # --- what tests ask for -----------------------------------------------------------------

    # @return [Boolean] whether this run is on that driver (:io_uring, :libev)
    def driver?(kind)
      Thread.current.backend.kind == kind
    end

    # A duration, longer where everything is slow. For limits that a test must not reach.
    def patient(seconds)
      seconds * PATIENCE
    end

    # The shortest of the durations that the block returns, which is called until one is below the limit, or often enough:
    # on a busy machine single ones are longer.
    def shortest(limit, tries: 25)
      best = Float::INFINITY
      tries.times do
        best = [best, yield].min
        break if best < limit
      end
      best
    end

    # Said first by a test that allocates too much for a collection at every allocation.
    def heavy
      skip 'takes too long under GC.stress' if GCPressure::MODE == 'stress'
    end

    # @return [Boolean] whether the size of a process tells what is in use: AddressSanitizer keeps what was freed
    def size_tells?
      !ENV['LD_PRELOAD'].to_s.include?('asan')
    end

    # Closes the IO after the test, if the test has not.
    def track(*ios)
      @ios.concat(ios)
      ios.size == 1 ? ios.first : ios
    end

    # @return [Array(IO, IO)] reader and writer
    def pipe_pair
      track(*IO.pipe)
    end

    # What ends the block, as a value: an error in a fiber would go to whoever awaits it.
    def outcome
      yield
    rescue SystemCallError, IOError => e
      e
    end

    # @return [Fiber] that has come to its first wait
    def waiting(&block)
      fiber = spin { outcome(&block) }
      snooze until %i[waiting dead].include?(fiber.state)
      assert_equal :waiting, fiber.state
      fiber
    end

    # IO::Buffer is announced as experimental by Ruby 3.1.
    def without_announcement
      before = Warning[:experimental]
      Warning[:experimental] = false
      yield
    ensure
      Warning[:experimental] = before
    end

    # @return [Array(UNIXSocket, UNIXSocket)]
    def socket_pair
      track(*UNIXSocket.pair)
    end

    # @return [Array(TCPSocket, TCPSocket)] client and server side of one connection
    def tcp_pair
      server = TCPServer.new('127.0.0.1', 0)
      client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
      track(client, server.accept_nonblock)
    rescue IO::WaitReadable
      server.to_io.wait_readable(1)
      retry
    ensure
      server&.close
    end

    # Each kind of stream by name, for tests that hold on all of them.
    # @yield [name, reader, writer]
    def each_stream
      yield :pipe, *pipe_pair
      yield :unix, *socket_pair
      yield :tcp, *tcp_pair
    end

    # Runs code in a fresh Ruby which sees this lib folder and this driver.
    # @param gems [Boolean] whether it needs RubyGems, which take longer to load than all else
    # @return [Array(String, String, ::Process::Status)] standard output, standard error, status
    def run_ruby(code, *args, timeout: 30, **options)
      start_ruby(code, *args, **options).finish(self, patient(timeout))
    end

    # The same for several at a time, each with options of its own.
    # @param programs [Array<Array(String, Hash)>] code and options
    # @return [Array<Array(String, String, ::Process::Status)>]
    def run_rubies(*programs, timeout: 30)
      programs.map { |code, options| start_ruby(code, **options) }.map { |one| one.finish(self, patient(timeout)) }
    end

    # A process whose output goes into files.
    Started = Struct.new(:pid, :out, :err) do
      # @return [Array(String, String, ::Process::Status)]
      def finish(test, seconds)
        status = test.__send__(:wait_for, pid, seconds)
        [File.read(out.path), File.read(err.path), status]
      ensure
        out.close!
        err.close!
      end
    end

    private

    def start_ruby(code, *args, env: {}, options: [], input: File::NULL, gems: false)
      env = { 'RUBYOPT' => nil, 'RUBYLIB' => nil, 'BUNDLER_SETUP' => nil }.merge(env)
      options = ['--disable-gems', *options] unless gems
      start_command(env, RbConfig.ruby, "-I#{POLYPHONY_LIB}", *options, '-e', code, *args, in: input)
    end

    def start_command(env, *words, **options)
      out, err = Tempfile.new('out'), Tempfile.new('err')
      Started.new(::Process.spawn(env, *words, **options, out: out, err: err), out, err)
    rescue SystemCallError
      [out, err].each(&:close!)
      raise
    end

    # By looking again and again: the waiting must not depend on what is being tested.
    def wait_for(pid, seconds)
      deadline = clock + seconds
      until ::Process.wait(pid, ::Process::WNOHANG)
        if clock > deadline
          ::Process.kill(:KILL, pid)
          ::Process.wait(pid)
          flunk "the Ruby started by this test still ran after #{seconds} seconds"
        end
        sleep 0.005
      end
      $?
    end

    def leave_tests_to_parent(error)
      return if error.is_a?(SystemExit)

      $stderr.write("#{self.class}##{name}: a forked child came back: #{error&.full_message(highlight: false)}\n")
      exit!(1)
    end

    def shut_down_children
      main = Fiber.current
      main.shutdown_all_children unless main.children.empty?
    end

    def clock
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
