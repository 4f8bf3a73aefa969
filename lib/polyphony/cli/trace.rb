# frozen_string_literal: true

require_relative 'run'

module Polyphony
  class CLI
    # +polyphony trace+: +polyphony run+ with POLYPHONY_TRACE set.
    # @api private
    class Trace
      # What +polyphony trace --help+ says.
      HELP = <<~TEXT
        usage: polyphony trace [-o FILE] [--events N] [ruby's options] script.rb [arguments] [-o FILE]

        Runs a Ruby script as polyphony run does, and writes down which fiber ran when, what the others waited for and
        who woke them.

          -o FILE       where to: FILE.html is a page for the browser, FILE.json is for ui.perfetto.dev and
                        chrome://tracing; trace.html if not said. At the end of the line it is taken from the
                        script's arguments, if FILE ends so and there is none in front.
          --events N    how many events are kept, the last ones; 262144 if not said, in 8 MB

        Children that the script forks write files of their own, with their number in the name. The same for a program that
        is started otherwise: POLYPHONY_TRACE=out.html POLYPHONY_TRACE_EVENTS=1000000 ruby app.rb
      TEXT
      FORMATS = /\.(html?|json)\z/i.freeze

      # @param words [Array<String>] behind +trace+
      def initialize(words, out: $stdout, err: $stderr)
        @words = words.dup
        @out = out
        @err = err
      end

      # @return [Integer] the exit status; does not come back if there is something to run
      def run
        take_own
        return help if @help
        return complain(@complaint) if @complaint

        @path ||= take_last || 'trace.html'
        return complain("#{@path}: must end in .html or .json") unless @path.match?(FORMATS)

        start
      end

      private

      def take_own
        loop do
          case @words.first
          when '-o' then @path = value('-o')
          when '--events' then @events = number(value('--events'))
          when '-h', '--help' then return @help = true
          else break
          end
        end
        @complaint ||= 'say which script' if @words.empty?
      end

      def value(option)
        @words.shift
        @words.shift || (@complaint = "#{option} needs a word behind it") && nil
      end

      def number(text)
        return text if text.nil? || text.match?(/\A[1-9]\d{0,8}\z/)

        @complaint = "--events takes a number, as in 1000000, got #{text}"
        nil
      end

      def take_last
        return unless @words.size > 2 && @words[-2] == '-o' && @words.last.match?(FORMATS)

        @words.pop(2).last
      end

      def start
        environment, *command = Run.new(@words).command
        set = { 'POLYPHONY_TRACE' => File.expand_path(@path), 'POLYPHONY_TRACE_EVENTS' => @events }
        @err.puts "polyphony trace: into #{@path}"
        exec(environment.merge(set.compact), *command)
      end

      def help
        @out.puts HELP
        0
      end

      def complain(text)
        @err.puts "polyphony trace: #{text}", HELP
        USAGE_ERROR
      end
    end

    private_constant :Trace
  end
end
