# frozen_string_literal: true

require_relative 'version'

module Polyphony
  # The command `polyphony`. Loads the extension only for the commands that need it, so that
  # `--version` and `help` answer even when it does not load.
  class CLI
    # What a shell expects for a wrong command line (sysexits.h, EX_USAGE).
    USAGE_ERROR = 64

    # What +polyphony help+ says.
    HELP = <<~TEXT
      usage: polyphony COMMAND

        serve        a web server for a Rack application or a handler in a file: polyphony serve config.ru
        run          runs a Ruby script in a fiber, with Polyphony loaded: polyphony run script.rb
        trace        runs a script and shows what its fibers did: polyphony trace script.rb -o out.html
        tree         the fibers of a running program: polyphony tree PID
        top          the same, live in the terminal: polyphony top PID
        check        attacks a web server of yours with bad input: polyphony check http://127.0.0.1:8080/
        doctor       what Polyphony stands on here, what is missing, and what mends it
        help         this text; polyphony COMMAND --help tells more
        --version    the version

      environment:
        POLYPHONY_BACKEND=io_uring|libev|auto    the driver to use; auto takes the first that works
        POLYPHONY_TRACE=out.html                 writes there what fibers did; out.json is for Perfetto
        POLYPHONY_ATTACH=off                     polyphony tree and top cannot look at this program
        POLYPHONY_DEADLOCK=5                     tells of fibers that have waited for each other for so many seconds
        POLYPHONY_STALL=100                      tells who keeps a thread for longer than so many milliseconds
        POLYPHONY_FAULTS=short_read:0.1,seed:7   short reads and other answers of the kernel, by chance
        POLYPHONY_SEED=7                         repeats what polyphony/testing drew by lot
    TEXT

    # @param argv [Array<String>] the words after the command's name
    # @param out [IO] where answers go
    # @param err [IO] where complaints go
    def initialize(argv, out: $stdout, err: $stderr)
      @argv = argv
      @out = out
      @err = err
    end

    # @return [Integer] the exit status
    def run
      case @argv.first
      when 'serve'                     then serve
      when 'run'                       then run_script
      when 'trace'                     then trace
      when 'tree', 'top'               then look
      when 'check'                     then check
      when 'doctor'                    then doctor
      when '--version', '-v'           then tell("polyphony #{VERSION}")
      when nil, 'help', '--help', '-h' then tell(HELP)
      else
        @err.puts "polyphony: no such command: #{@argv.first}", *hint, HELP
        USAGE_ERROR
      end
    end

    private

    def tell(text)
      @out.puts text
      0
    end

    # Somebody may have left out a word.
    def hint
      "to run a script: polyphony run #{@argv.join(' ')}" if File.file?(@argv.first)
    end

    # Does not come back.
    def run_script
      require_relative 'cli/run'
      run = Run.new(@argv.drop(1))
      return tell(Run::HELP) if run.help?

      exec(*run.command)
    end

    def trace
      require_relative 'cli/trace'
      Trace.new(@argv.drop(1), out: @out, err: @err).run
    end

    def look
      word, *words = @argv
      require_relative "cli/#{word}"
      (word == 'top' ? Top : Tree).new(words, out: @out, err: @err).run
    end

    def serve
      require_relative 'cli/serve'
      Serve.new(@argv.drop(1), out: @out, err: @err).run
    end

    def check
      require_relative 'cli/check'
      Check.new(@argv.drop(1), out: @out, err: @err).run
    end

    def doctor
      require_relative 'cli/doctor'
      Doctor.new(@argv.drop(1), out: @out, err: @err).run
    end
  end
end
