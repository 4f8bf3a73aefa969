# frozen_string_literal: true

require 'openssl'
require_relative 'test_case'
require_relative 'child_helpers'

module Polyphony
  # Tests of process pools: pools that are stopped after the test, and blocks for them. No child may be left behind.
  class PoolCase < TestCase
    include ChildHelpers

    # An object that can be sent and called.
    Adder = Struct.new(:number) do
      def call(other, times: 1)
        (number + other) * times
      end

      def add(other)
        number + other
      end
    end

    # An error with what cannot be sent.
    class Unsendable < StandardError
      def initialize(message)
        super
        @block = -> {}
      end
    end

    TASKS = {
      square:  ->(x) { x * x },
      echo:    ->(*args, **options) { options.empty? ? args : [args, options] },
      pid:     -> { ::Process.pid },
      fail:    ->(message) { raise IOError, message },
      nested:  -> { begin; raise KeyError, 'inner'; rescue KeyError; raise IOError, 'outer'; end },
      own:     -> { raise Unsendable, 'with a block' },
      unknown: -> { raise Class.new(StandardError) { def self.name = 'OnlyThere' }, 'far away' },
      block:   -> { -> {} },
      exit:    ->(status) { exit(status) },
      exit!:   ->(status) { exit!(status) },
      kill:    ->(name) { ::Process.kill(name, ::Process.pid); sleep 10 },
      segv:    -> { ::Process.setrlimit(:CORE, 0); $stderr.reopen(File::NULL); ::Process.kill(:SEGV, ::Process.pid); sleep 10 },
      wait:    -> { ProcessPool.progress(:begun); sleep },
      compute: -> { ProcessPool.progress(:begun); loop { 1 + 1 } },
      # Nothing ends this but SIGKILL: a minute or more in C, in which Ruby looks at nothing.
      stuck:   -> { shield { ProcessPool.progress(:begun); OpenSSL::PKCS5.pbkdf2_hmac('x', 'salt', 2**31 - 1, 32, 'sha512') } },
      tidy:    ->(path) { begin; ProcessPool.progress(:begun); sleep; ensure; File.write(path, 'tidy'); end },
      shield:  ->(path) { shield { ProcessPool.progress(:begun); sleep 0.05; File.write(path, 'whole') }; sleep },
      count:   ->(times) { times.times { |i| ProcessPool.progress(i) }; :counted },
      nap:     ->(seconds) { sleep seconds; :rested },
      burn:    ->(seconds) { PoolCase.burn(seconds); ::Process.pid },
      bytes:   ->(count) { 'x' * count },
      size:    ->(bytes) { bytes.bytesize }
    }.freeze

    # Computes that long.
    def self.burn(seconds)
      till = ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID) + seconds
      nil while ::Process.clock_gettime(::Process::CLOCK_PROCESS_CPUTIME_ID) < till
    end

    def after_teardown
      @pools&.each { |pool| pool.stop(timeout: 0) }
      super
    end

    # @return [ProcessPool] stopped after the test
    def pool(size = 2, **options)
      made = ProcessPool.new(size, warmup: false, **TASKS, **options)
      (@pools ||= []) << made
      made
    end

    # A fiber in which a task runs that reports +:begun+.
    # @return [Fiber] when it has begun
    def begun(pool, *task)
      started = Queue.new
      fiber = spin { pool.process(*task) { |news| started << news } }
      assert_equal :begun, started.shift(timeout: patient(20))
      fiber
    end

    # Waits until it holds.
    def eventually(what = 'it', seconds = 20)
      deadline = clock + patient(seconds)
      until yield
        flunk "#{what} did not come" if clock > deadline
        sleep 0.002
      end
    end

    # @return [Exception] that the block raises
    def error_of(kind = Exception, &block)
      assert_raises(kind, &block)
    end
  end
end
