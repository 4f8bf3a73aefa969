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
        check        attacks a web server of yours with bad input: polyphony check http://127.0.0.1:8080/
        doctor       which drivers are compiled in, which one is used here, and why not another
        help         this text; polyphony COMMAND --help tells more
        --version    the version

      environment:
        POLYPHONY_BACKEND=io_uring|libev|auto    the driver to use; auto takes the first that works
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

    def serve
      require_relative 'cli/serve'
      Serve.new(@argv.drop(1), out: @out, err: @err).run
    end

    def check
      require_relative 'cli/check'
      Check.new(@argv.drop(1), out: @out, err: @err).run
    end

    def doctor
      @out.puts "polyphony #{VERSION}, #{RUBY_DESCRIPTION}"
      begin
        require 'polyphony'
      rescue LoadError => e
        @err.puts "the extension does not load: #{e.message}"
        return 1
      end
      show_drivers
      show_choice
    end

    def show_drivers
      @out.puts 'drivers:'
      Backend.available.each do |driver|
        answer = driver[:available] ? 'works' : "refused: #{driver[:reason]}"
        @out.puts format('  %-10s %s', driver[:name], answer)
      end
    end

    def show_choice
      order = ENV['POLYPHONY_BACKEND'].to_s
      @out.puts "POLYPHONY_BACKEND: #{order.empty? ? '(unset, same as auto)' : order}"
      @out.puts "used: #{Thread.current.backend.kind}"
      0
    rescue StandardError => e
      @err.puts "used: none (#{e.message})"
      1
    end
  end
end
