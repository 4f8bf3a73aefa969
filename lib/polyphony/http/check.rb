# frozen_string_literal: true

require 'openssl'
require 'socket'
require 'polyphony/http'

module Polyphony
  module HTTP
    # Attacks a server with what servers on the open internet meet, and judges what it does: the list of
    # docs/guide/hostile-input.md, line by line. For machines of your own.
    #
    # @example
    #   check = Polyphony::HTTP::Check.new('http://127.0.0.1:8080/', only: ['7', '9b'])
    #   check.run { |result| puts "#{result.id} #{result.verdict}: #{result.got}" }
    class Check
      # What is asked for, and what was found out about the server. +wait+ is how long a time limit of the
      # server's may take to strike, +drip+ the pause between the bytes of a slow client, +quiet+ how long a connection is looked
      # at for more after an answer, +prompt+ how fast a good request has to be answered meanwhile; +websocket+, +files+,
      # +large+ and +sink+ are paths: of a WebSocket, of a file in a folder, of an answer of 1 GB, and of a handler that
      # reads the body of a POST to its end. +good+ is the status of a good request.
      Options = Struct.new(:full, :wait, :drip, :quiet, :prompt, :websocket, :files, :large, :sink, :good, keyword_init: true)

      # What came out of a case. +verdict+ is :pass, :differs, :fail or :skip; +probes+ is how long good requests
      # on fresh connections took meanwhile, in seconds.
      Result = Struct.new(:id, :title, :expected, :got, :verdict, :seconds, :probes, keyword_init: true)

      # What no client should see of a server's inside.
      INSIDE = /\.rb:\d+|undefined (?:local variable|method)|\b(?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception)\b|Traceback/n.freeze
    end
  end
end

require 'polyphony/http/check/wire'
require 'polyphony/http/check/answers'
require 'polyphony/http/check/outcome'
require 'polyphony/http/check/expect'
require 'polyphony/http/check/catalogue'
require 'polyphony/http/check/h2_client'
require 'polyphony/http/check/ws_client'
require 'polyphony/http/check/tls12_client'
require 'polyphony/http/check/target'
require 'polyphony/http/check/attack'
require 'polyphony/http/check/http1'
require 'polyphony/http/check/http2'
require 'polyphony/http/check/websocket'
require 'polyphony/http/check/transport'
require 'polyphony/http/check/static'

module Polyphony
  module HTTP
    class Check
      # Every attack, in the order of the list.
      CASES = [HTTP1, HTTP2, WebSocket, Transport, Static].flat_map(&:cases).sort_by.with_index { |one, i| [one.line, i] }.freeze
      # Why a case cannot be tried.
      MISSING = {
        http2: 'speaks no HTTP/2 here', websocket: 'no WebSocket: say --websocket PATH', tls: 'needs an https URL',
        plain: 'needs an http URL', large: 'needs --large PATH, an answer of 1 GB', files: 'needs --files PATH, a file in a folder',
        h2_large: 'needs HTTP/2 and --large PATH', h2_sink: 'needs HTTP/2 and --sink PATH, which reads the body of a POST'
      }.freeze
      # How long one case may take, in seconds, beyond the time limits of the server.
      LONGEST = 120
      private_constant :LONGEST

      # @return [Target]
      attr_reader :target
      # @return [Options]
      attr_reader :options

      # @param url [String] http or https, with a path that answers to GET
      # @param only [Array<String>, nil] lines or ids: +7+, +9b+
      # @param full [Boolean] with the volumes of the list; else with smaller ones
      # @param insecure [Boolean] whether any certificate will do
      # @param options [Hash] see Options
      # @raise [ArgumentError] for a URL that is none, or a line that is none
      def initialize(url, only: nil, full: false, insecure: false, **options)
        @target = Target.new(url, insecure: insecure)
        @only = only&.map(&:to_s)
        @options = Options.new(full: full, wait: full ? 80 : 15, drip: full ? 9 : 1, quiet: 0.4, prompt: 0.1, sink: @target.path, good: 200,
                               **options)
        unknown = @only.to_a.reject { |word| CASES.any? { |one| chosen?(one, word) } }
        raise ArgumentError, "no such case: #{unknown.first}; there are 1 to 45, and 7b for one alone" if unknown.any?
      end

      # @return [Array<Case>] those that were asked for
      def cases
        @only ? CASES.select { |one| @only.any? { |word| chosen?(one, word) } } : CASES
      end

      # Looks at what the server can do. Called by #run.
      # @return [self]
      # @raise [RuntimeError] if it does not answer to a good request
      # @raise [SystemCallError, OpenSSL::SSL::SSLError] if it cannot be reached
      def explore
        @target.connect.close
        status, = @target.probe
        raise "#{@target} does not answer to a good request" unless status

        @options.good = status
        @http2 = @target.http2?
        @explored = true
        self
      end

      # Runs the cases, those that wait for a time limit of the server's beside each other.
      # @yield [Result] when it is there
      # @return [Array<Result>]
      def run(&block)
        explore unless @explored
        slow, quick = cases.partition(&:slow)
        results = quick.map { |one| attempt(one).tap { |result| block&.call(result) } }
        results + Fiber.map(slow, limit: 8) { |one| attempt(one).tap { |result| block&.call(result) } }
      end

      # Runs one case.
      # @param one [Case]
      # @return [Result]
      def attempt(one)
        missing = missing_for(one)
        return result(one, MISSING.fetch(missing), :skip, 0, []) if missing

        began = Clock.now
        outcome, probes = beside_probes { attack(one) }
        verdict = judge(one, outcome, probes)
        result(one, outcome.to_s, verdict, Clock.now - began, probes.map(&:last))
      end

      private

      def chosen?(one, word)
        one.id == word || one.line.to_s == word || one.group == word
      end

      # @return [Symbol, nil] what the server or we lack for it
      def missing_for(one)
        case one.needs
        when :http2 then :http2 unless @http2
        when :tls then :tls unless @target.tls
        when :plain then :plain if @target.tls
        when :h2_large then :h2_large unless @http2 && @options.large
        when :h2_sink then :h2_sink if !@http2 || @options.sink == @target.path
        when :websocket, :large, :files then one.needs unless @options[one.needs]
        end
      end

      def result(one, got, verdict, seconds, probes)
        Result.new(id: one.id, title: one.title, expected: one.expect.text, got: got, verdict: verdict, seconds: seconds.round(3),
                   probes: probes.map { |time| time.round(4) })
      end

      def attack(one)
        attack = Attack.new(@target, @options)
        done = Polyphony.backend_timeout(LONGEST + @options.wait, nil, nil) { attack.instance_exec(&one.action) }
        done || Outcome.new(problem: 'the attack did not come to its end')
      rescue ::SystemCallError, ::OpenSSL::SSL::SSLError, ::RuntimeError => e
        Outcome.new(problem: "#{e.message} (#{e.class})")
      ensure
        attack&.close
      end

      # Good requests from time to time while the block runs, one at least.
      # @return [Array(Outcome, Array<Array(Integer, Float)>)]
      def beside_probes
        probes = []
        prober = spin { loop { probes << @target.probe and sleep(0.05) } }
        outcome = yield
        prober.stop
        probes << @target.probe if probes.empty?
        [outcome, probes]
      ensure
        prober&.stop
      end

      def judge(one, outcome, probes)
        failed = probes.find { |status, _| status != @options.good }
        outcome.problem ||= "a good request got #{failed.first || 'no answer'} meanwhile" if failed
        outcome.problem ||= "shows its inside: #{outcome.bytes[INSIDE]}" if outcome.bytes.b.match?(INSIDE)
        verdict = one.expect.judge(outcome, @options.good)
        verdict == :pass && median(probes) > @options.prompt ? slow(outcome) : verdict
      end

      def median(probes)
        probes.map(&:last).sort[probes.size / 2]
      end

      def slow(outcome)
        outcome.note = [outcome.note, 'good requests were slow meanwhile'].compact.join(', ')
        :differs
      end
    end
  end
end
