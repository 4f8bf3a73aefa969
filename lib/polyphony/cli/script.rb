# frozen_string_literal: true

# The program of `polyphony run`: runs the script that ARGV names. What cannot be read or compiled is left to a plain Ruby,
# which says so.

require 'polyphony'

module Polyphony
  class CLI
    # The script, in a fiber that is non-blocking and the main one of its thread: signals, exit and Thread#raise go there.
    # @api private
    class Script
      # What Ruby calls a script from standard input.
      STDIN = '-'
      # Ruby's parser since 3.4.
      PRISM = ::RUBY_DESCRIPTION.include?('+PRISM')
      private_constant :STDIN, :PRISM

      # @param code [String, nil] of -e
      # @param plain [Array<String>] the words for a Ruby that runs it by itself, up to the script
      def initialize(code, plain)
        @code = code
        @plain = plain
      end

      def run
        $0 = ARGV.shift || STDIN unless @code
        code = prepare
        code ? in_a_fiber(&code) : exec(*@plain, *($0 unless @code), *ARGV)
      end

      private

      # @return [Proc, nil] nil: Ruby is to read it
      def prepare
        return evaluation('-e', @code) if @code
        return evaluation(STDIN, read_stdin) if $0 == STDIN

        file if plain_first_line?
      rescue SyntaxError => e
        say(e) if $0 == STDIN && !@code
      rescue SystemCallError
        nil
      end

      # Options there are Ruby's to understand, and so is a script of another language.
      def plain_first_line?
        line = File.open($0, 'rb', &:gets).to_s
        !line.start_with?('#!') || line.match?(/ruby[\d.]*\s*\Z/)
      end

      def file
        compiled = RubyVM::InstructionSequence.compile_file($0)
        give_data
        show_binding(compiled)
        -> { compiled.eval }
      end

      # It has been read: Ruby would find nothing. Each has its own way to say it.
      def say(error)
        first, *rest = error.message.lines(chomp: true)
        if PRISM then warn(["#{$0}: #{first} (SyntaxError)", *rest, '', ''].join("\n"))
        else warn error.message, *("#{$0}: compile error (SyntaxError)" if ::RUBY_VERSION >= '3.3')
        end
        exit false
      end

      # Only what is compiled from a file can be called <main>, so this is evaluated, where a return is not
      # allowed.
      def evaluation(name, code)
        verbose, $VERBOSE = $VERBOSE, nil
        RubyVM::InstructionSequence.compile(code, name)
        lambda do
          TOPLEVEL_BINDING.eval(code, name, 1)
        rescue LocalJumpError => e
          raise unless e.reason == :return && e.backtrace_locations&.first&.path == name
        end
      ensure
        $VERBOSE = verbose
      end

      # Up to __END__; what follows is there to be read.
      def read_stdin
        code = +''
        while (line = $stdin.gets)
          break Object.const_set(:DATA, $stdin) if line.chomp == '__END__'

          code << line
        end
        code
      end

      # As the main script of a program has it. In a heredoc, the word means nothing.
      def give_data
        return unless File.binread($0).match?(/^__END__\r?$/)

        require 'ripper'
        file = File.open($0)
        token = Ripper.lex(File.read($0)).last
        return file.close unless token[1] == :on___end__

        token[0][0].times { file.gets }
        file.lineno = 0 if PRISM
        Object.const_set(:DATA, file)
      end

      # The script's own, in which its variables are: it can be had from the first line on.
      def show_binding(compiled)
        point = TracePoint.new(:line) do |here|
          point.disable
          Object.__send__(:remove_const, :TOPLEVEL_BINDING)
          Object.const_set(:TOPLEVEL_BINDING, here.binding)
        end
        point.enable(target: compiled)
      rescue ArgumentError
        nil # not a line in it
      end

      # Ruby ends the program in the thread's first fiber, with whatever is left of others.
      def in_a_fiber
        first = Fiber.current
        script = Fiber.new do
          Fiber.current.setup_main_fiber
          yield
        end
        script.resume
      ensure
        first.setup_main_fiber
        first.tag = :at_exit # in a trace there would be two mains
        script.attach_all_children_to(first)
      end
    end

    private_constant :Script
  end
end

if (set = ENV.delete('POLYPHONY_RUN'))
  set.split.each { |name| ENV.delete(name) }
  plain = ENV.delete('POLYPHONY_RUN_PLAIN').split.map { |word| word.unpack1('m0') }
  Polyphony::CLI.const_get(:Script).new(ENV.delete('POLYPHONY_RUN_CODE'), plain).run
end
