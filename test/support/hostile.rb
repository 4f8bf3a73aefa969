# frozen_string_literal: true

require_relative 'hostile_target'

module Polyphony
  # A test in which a server is attacked; with the conditions that hold after each attack.
  class HostileTest < TestCase
    GROWTH = 8 << 20
    TRIES = 3

    class << self
      # The server of these tests.
      def server(name, **settings)
        @server = [name, settings]
      end

      def target
        name, settings = @server || superclass.instance_variable_get(:@server)
        HostileTarget.start(name, **settings)
      end

      def after_all
        HostileTarget.stop_all
      end

      # A test for each of these lines of the list, with all of its cases.
      # @yield [Check::Case] whether it is tried here
      def lines(*numbers, **options, &choose)
        HTTP::Check::CASES.select { |one| numbers.include?(one.line) && (choose.nil? || choose.call(one)) }
                          .group_by(&:line).each do |number, cases|
          name = cases.first.title[/\A[^:]+/].downcase.gsub(/\W+/, '_')
          define_method(format('test_line_%02d_%s', number, name)) { assert_defended cases, **options }
        end
      end
    end

    # The process has to be there before descriptors are counted. For tests that are skipped none is started: with sanitizers that takes long.
    def before_setup
      keep_to_budget
      skip 'without libnghttp2' if name.match?(/line_(2[4-9]|3[0-6])/) && !HTTP.http2?
      target
      super
    end

    def target
      self.class.target
    end

    # Each of these attacks gets the answer it should, and nothing is left of it. What is slow may be the machine's mood; and
    # what malloc keeps for the next time is not grown by it again, but a leak is.
    def assert_defended(cases, **options)
      check = check_with(**options)
      failed = cases.flat_map do |one|
        problems = nil
        TRIES.times do
          problems = problems_of(check, one)
          break unless problems.any? { |problem| problem.match?(/slow|memory/) }
        end
        problems.map { |problem| "#{one.id} #{one.title}: #{problem}" }
      end
      assert_empty failed
      refute_empty cases
    end

    # The conditions around an attack of any kind.
    # @return [Array<String>] which ones do not hold
    def conditions(lines: nil)
      left_behind({ fibers: 1_000, open: 1, descriptors: 1_000, operations: 1_000, running: 1 }) # by the test before this one
      target.fresh
      before = target.control
      memory = target.memory
      yield
      [left_behind(before), grown(memory), *logged(lines)].compact
    end

    # @return [Check::Wire] on which that was sent
    def wire_with(bytes = '', target = self.target)
      wire = HTTP::Check::Target.new(target.url).connect_plain
      track(wire.socket)
      wire.send(bytes)
      wire
    end

    # Less than a tenth of a processor.
    def assert_idle(target, seconds = 1.0)
      before = target.cpu
      sleep seconds
      assert_operator target.cpu - before, :<=, seconds * 0.1
    end

    private

    def check_with(url: target.url, **options)
      url = target.urls.last if url == :tls
      HTTP::Check.new(url, insecure: true, wait: patient(5), drip: 0.05, quiet: 0.1, prompt: patient(0.1), sink: '/sink', large: '/large', websocket: '/websocket',
                           files: '/files/a.txt', **options).tap(&:explore)
    end

    def problems_of(check, one)
      result = nil
      problems = conditions(lines: -> { lines_of(one, result) }) { result = check.attempt(one) }
      problems << "expected #{result.expected}, got #{result.got}" unless result.verdict == :pass
      problems
    end

    # How many lines an attack is worth: one if it was refused.
    def lines_of(one, result)
      return 0..5 if LINES.include?(one.id)

      refused = result.got.match?(/\b4(?!04)\d\d\b|\b50[15]\b|GOAWAY (?!NO_ERROR)|RST (?!NO_ERROR)|close 1/)
      return 1..1 if refused || SILENT.include?(one.id)

      result.got.include?('closed') ? 0..1 : 0..0
    end

    # Several connections, of which all may be refused.
    LINES = %w[23c 42e].freeze
    # Refused without a word.
    SILENT = %w[19a 24a 41c 42a 42b 42d 43a 43b].freeze

    # Within 2 seconds everything is as it was.
    def left_behind(before, target = self.target)
      finish = clock + patient(2)
      names = %i[fibers open descriptors operations running]
      loop do
        now = target.control
        left = names.reject { |name| now[name] <= before[name] }
        return if left.empty?
        return left.map { |name| "#{name}: #{before[name]} before, #{now[name]} after" }.join(', ') if clock > finish

        sleep 0.02
      end
    end

    # Garbage is not what is asked about: Ruby lets some 16 MB of it gather before it looks.
    def grown(memory)
      target.ask('/tidy') if target.memory - memory > GROWTH
      growth = target.memory - memory
      "memory grew by #{growth >> 10} KB" if growth > GROWTH && size_tells?
    end

    # A line may come a little later, when it is clear what there is to tell.
    def logged(lines)
      lines = lines.call if lines.respond_to?(:call)
      finish = clock + patient(0.5)
      sleep 0.02 until lines.nil? || lines.cover?(refusals.size) || clock > finish
      found = []
      found << "#{refusals.size} lines in the log, not #{lines}: #{refusals.first(3).join(' / ')}" unless lines.nil? || lines.cover?(refusals.size)
      found << "in the log: #{(target.log - refusals).first(5).join(' / ')}" if target.log != refusals
      found << "on standard error: #{target.complaints[0, 500]}" unless target.complaints.empty?
      found
    end

    def refusals
      target.log.grep(/\] refused 127\.0\.0\.1:\d+: \S/)
    end
  end
end
