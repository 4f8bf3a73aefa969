# frozen_string_literal: true

require 'json'
require 'optparse'
require 'polyphony/http/check'

module Polyphony
  class CLI
    # +polyphony check+: attacks a server, and prints a table of what it did.
    # @api private
    class Check
      # The order in which they are counted.
      VERDICTS = { pass: 'passed', differs: 'differ', fail: 'failed', skip: 'skipped' }.freeze
      # Of a column of the table, at most.
      WIDTH = 48
      NOTICE = <<~TEXT
        pass: as it should be. differs: another choice, that harms nobody by itself. FAIL: it does harm.
      TEXT

      # @param words [Array<String>] behind +check+
      # @param input [IO] where answers to questions come from
      def initialize(words, out: $stdout, err: $stderr, input: $stdin)
        @out = out
        @err = err
        @input = input
        @settings = {}
        @words = parser.parse(words)
      rescue OptionParser::ParseError => e
        @complaint = e.message
      end

      # @return [Integer] exit status: 0, 1 if a case failed, 64 for a wrong command line
      def run
        return complain(@complaint) if @complaint
        return tell(parser.help) if @help
        return list if @list
        return complain('say one URL, as in http://127.0.0.1:8080/') unless @words.size == 1

        check = HTTP::Check.new(@words.first, **@settings)
        allowed?(check.target) ? attack(check) : 1
      rescue ArgumentError => e
        complain(e.message)
      rescue Errno::ECONNREFUSED, SocketError => e
        @err.puts "polyphony check: #{@words.first} cannot be reached: #{e.message}. Is the server running, and is that its address?"
        1
      rescue SystemCallError, OpenSSL::SSL::SSLError, RuntimeError => e
        @err.puts "polyphony check: #{e.message}", *('--insecure takes any certificate' if e.message.include?('certificate'))
        1
      end

      private

      def parser
        @parser ||= OptionParser.new do |options|
          options.banner = "usage: polyphony check URL [options]\n\n" \
                           "Attacks a web server with what comes from the open internet, and tells what it makes of it. For\n" \
                           "servers of your own: it asks before it touches anything but this machine.\n\n"
          volume_options(options)
          server_options(options)
          other_options(options)
        end
      end

      def volume_options(options)
        options.on('--only LIST', 'lines, cases or groups: 7,9b,http2') { |list| @settings[:only] = list.split(',').map(&:strip) }
        options.on('--full', 'with full volumes: 100,000 resets, bytes 9 s apart …; takes minutes') { @settings[:full] = true }
        options.on('--wait SECONDS', Float, "how long the server's time limits may take") { |seconds| @settings[:wait] = seconds }
      end

      def server_options(options)
        options.on('--insecure', 'takes any certificate') { @settings[:insecure] = true }
        options.on('--websocket PATH', 'where a WebSocket is') { |path| @settings[:websocket] = path }
        options.on('--files PATH', 'a file that is served from a folder') { |path| @settings[:files] = path }
        options.on('--large PATH', 'an answer of 1 GB or more') { |path| @settings[:large] = path }
        options.on('--sink PATH', 'reads the body of a POST, then answers') { |path| @settings[:sink] = path }
      end

      def other_options(options)
        options.on('--yes-i-own-it', 'does not ask') { @sure = true }
        options.on('--json', 'results as JSON') { @json = true }
        options.on('--list', 'the cases, without doing anything') { @list = true }
        options.on('-h', '--help', 'this text') { @help = true }
      end

      def complain(text)
        @err.puts "polyphony check: #{text}", parser.help
        USAGE_ERROR
      end

      def tell(text)
        @out.puts text
        0
      end

      def list
        HTTP::Check::CASES.each { |one| @out.puts format('%-4s %-10s %s -> %s', one.id, one.group, one.title, one.expect.text) }
        0
      end

      # Attacks on others are a crime in many places, and no help anywhere.
      def allowed?(target)
        return true if @sure || target.loopback?

        @err.print "#{target} is another machine. This attacks it. Is it yours, and may it fail? (yes/no) "
        return true if @input.gets.to_s.strip == 'yes'

        @err.puts 'nothing was done; --yes-i-own-it answers beforehand'
        false
      end

      def attack(check)
        check.explore
        @err.puts "#{check.target}: a good request gets #{check.options.good}" unless @json
        total = check.cases.size
        done = 0
        results = check.run { |result| progress(done += 1, total, result) }
        clear
        report(check, results.sort_by { |result| [result.id.to_i, result.id.size, result.id] })
        results.any? { |result| result.verdict == :fail } ? 1 : 0
      end

      def progress(done, total, result)
        return unless @err.respond_to?(:tty?) && @err.tty?

        @err.print "\r\e[K#{done}/#{total} #{result.id} #{result.title[0, 60]}"
      end

      def clear
        @err.print "\r\e[K" if @err.respond_to?(:tty?) && @err.tty?
      end

      def report(check, results)
        return @out.puts(JSON.pretty_generate(url: check.target.to_s, results: results.map(&:to_h))) if @json

        table(results)
        skipped(results.select { |result| result.verdict == :skip })
        counts = results.group_by(&:verdict).transform_values(&:size)
        @out.puts '', VERDICTS.filter_map { |verdict, word| "#{counts[verdict]} #{word}" if counts[verdict] }.join(', '), NOTICE
      end

      def table(results)
        rows = [['case', 'what was sent', 'expected', 'got', 'verdict']]
        rows += results.reject { |result| result.verdict == :skip }.map do |result|
          [result.id, result.title, result.expected, result.got, result.verdict == :fail ? 'FAIL' : result.verdict.to_s]
            .map { |text| printable(text) }
        end
        widths = rows.transpose.map { |column| [column.map(&:size).max, WIDTH].min }
        rows.each do |row|
          cells = row.last == 'FAIL' ? row : row.zip(widths).map { |text, width| cut(text, width) } # a failure is told in full
          @out.puts cells.zip(widths).map { |text, width| text.ljust(width) }.join('  ').rstrip
        end
      end

      # Often a whole group, for one and the same reason.
      def skipped(results)
        results.group_by(&:got).each do |reason, same|
          @out.puts "not tried: #{same.map { |result| result.id.to_i }.uniq.join(', ')} (#{same.size} cases): #{reason}"
        end
      end

      def cut(text, width)
        text.size > width ? "#{text[0, width - 1]}…" : text
      end

      # What a server sends may be meant for a terminal.
      def printable(text)
        text.dup.force_encoding(Encoding::UTF_8).scrub('?').gsub(/[[:cntrl:]]/) { |char| char.inspect[1..-2] }
      end
    end

    private_constant :Check
  end
end
