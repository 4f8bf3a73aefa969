# frozen_string_literal: true

require 'polyphony/tools/attach/client'
require_relative 'command'

module Polyphony
  class CLI
    # +polyphony tree+: the fibers of a running program.
    # @api private
    class Tree < Command
      # What moves the cursor, and what turns the direction of the text behind it.
      UNSEEN = /[[:cntrl:]\u2028\u2029\u202a-\u202e\u2066-\u2069]/.freeze

      # @param words [Array<String>] behind +tree+
      def initialize(words, out: $stdout, err: $stderr)
        @as = 'text'
        @wait = 15
        super
      end

      private

      # @return [Integer] exit status: 0, 1 if it cannot be seen
      def perform
        return complain('say the number of one process') unless @words.size == 1 && @words.first.match?(/\A[1-9]\d{0,9}\z/)

        show(Integer(@words.first, 10))
        0
      rescue Attach::Client::Refused => e
        @err.puts "polyphony #{name}: #{printable(e.message)}"
        1
      end

      def parser
        @parser ||= OptionParser.new do |options|
          options.banner = banner
          options.on('--json', 'as JSON') { @as = 'tree' }
          options.on('--html', 'as a page for the browser, which needs no other file') { @as = 'html' }
          options.on('--wait SECONDS', Float, 'how long to wait for an answer; 15 if not said') { |seconds| @wait = seconds }
          options.on('-h', '--help', 'this text') { @help = true }
        end
      end

      def banner
        "usage: polyphony tree PID [options]\n\n" \
          "Every fiber of a running program: what it waits for, since when, who has it, where it was spun.\n" \
          "The program need not be prepared; it has to be yours. See docs/guide/attaching.md.\n\n"
      end

      def show(pid)
        client = Attach::Client.new(pid, wait: @wait)
        answer = client.ask(@as)
        client.close
        @out.puts({ 'text' => answer[:text]&.lines(chomp: true)&.map { |line| printable(line) }, 'html' => answer[:html] }.fetch(@as) { JSON.pretty_generate(answer, max_nesting: false) })
      end

      # What another program calls its fibers must not steer this terminal.
      def printable(text)
        text.to_s.scrub('?').gsub(UNSEEN) { |char| char.dump[1..-2] }
      end
    end

    private_constant :Tree
  end
end
