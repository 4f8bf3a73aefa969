# frozen_string_literal: true

require 'optparse'

module Polyphony
  class CLI
    # A command with options of its own: +parser+ makes them, +perform+ does the work.
    # @api private
    class Command
      # @param words [Array<String>] behind the command's name
      def initialize(words, out: $stdout, err: $stderr)
        @out = out
        @err = err
        @words = parser.parse(words)
      rescue OptionParser::ParseError => e
        @complaint = e.message
      end

      # @return [Integer] exit status, 64 for a wrong command line
      def run
        return complain(@complaint) if @complaint

        @help ? tell(parser.help) : perform
      end

      private

      def name
        self.class.name[/\w+\z/].downcase
      end

      def tell(text)
        @out.puts text
        0
      end

      def complain(text)
        @err.puts "polyphony #{name}: #{text}", parser.help
        USAGE_ERROR
      end
    end

    private_constant :Command
  end
end
