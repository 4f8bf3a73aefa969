# frozen_string_literal: true

require 'fileutils'
require 'tmpdir'

module Polyphony
  # Runs code in a Ruby whose resolver hangs until it is told to go on; see slow_names.c. No name
  # server is needed, and none is asked.
  module SlowNames
    SOURCE = File.expand_path('slow_names.c', __dir__)

    # began(n) waits until that many lookups hang, let_go(n) ends that many; beats(n) lets that many turns
    # pass, each with a wait; meanwhile { } runs the block when the first lookup hangs, and then ends it.
    # new_gate is for a forked child, whose lookups are its own.
    PRELUDE = <<~'RUBY'
      require 'polyphony'
      $VERBOSE = nil

      def new_gate
        @began, began = IO.pipe
        gate, @gate = IO.pipe
        @kept = [began, gate]
        ENV['SLOW_NAMES'] = "#{began.fileno},#{gate.fileno}"
      end

      def began(count = 1)
        count.times { Polyphony.backend_read(@began, nil, 1, false, 0) }
      end

      def let_go(count = 1)
        @gate.syswrite('.' * count)
      end

      def beats(count = 20)
        count.times { sleep 0.0002 }
      end

      def meanwhile
        spin { began; beats; yield if block_given?; let_go }
      end

      new_gate
    RUBY

    class << self
      # Compiled once for all tests; nil where that is not possible.
      def library
        return @library if defined?(@library)

        folder = Dir.mktmpdir('slow_names')
        Minitest.after_run { FileUtils.rm_rf(folder) }
        path = File.join(folder, 'slow_names.so')
        built = system('cc', '-shared', '-fPIC', '-o', path, SOURCE, '-ldl', out: File::NULL, err: File::NULL)
        @library = built ? path : nil
      end
    end

    # @return [String] what the code printed; it must end well
    def with_slow_names(code, *args, **options)
      library = SlowNames.library or skip 'slow_names.c cannot be compiled here'
      env = { 'LD_PRELOAD' => [ENV['LD_PRELOAD'], library].compact.join(':') }
      out, err, status = run_ruby(PRELUDE + code, *args, env: env, **options)
      assert status.success?, "#{status}\n#{out}\n#{err}"
      assert_empty err
      out
    end
  end
end
