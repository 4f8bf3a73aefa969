# frozen_string_literal: true

module Polyphony
  # A random program of fibers that share generators, which resume each other, wait, set limits and
  # shields across their turns, while exceptions are raised in the fibers. Whatever happens:
  #
  # * a generator gives its values in order, each once;
  # * every exception is seen once, by the fiber it was meant for, or by a generator it was in;
  # * it is not seen within a shield;
  # * a limit ends its own block and no other.
  class GeneratorWorld
    # Meant for one fiber.
    class Boom < StandardError
      attr_reader :number, :target

      def initialize(number, target)
        super("boom #{number}")
        @number = number
        @target = target
      end
    end

    # Runs code, and may be in shields: a fiber, or a generator that is taken by one.
    Generator = Struct.new(:kind, :enum, :user, :shields, :given)
    Base = Struct.new(:fiber, :stack, :shields, :seen, :told)

    DEPTH = 5

    # @return [Array<String>] what went wrong
    attr_reader :faults

    def initialize(seed, raiser: :fiber, main: false)
      @random = Random.new(seed)
      @raiser = raiser
      @main = main
      @faults = []
      @bases = Array.new(2 + seed % 6) { Base.new(nil, [], 0, [], 0) }
      @generators = Array.new(2 + seed % 11) { Generator.new(pick(:enumerator, :fiber, :own), nil, nil, 0, 0) }
      @booms = seed % 20
    end

    def run(patience)
      begin_bases
      sender = @raiser == :thread ? Thread.new { send_booms } : Fiber.current.spin { send_booms }
      run_base(@bases.first) if @main
      fibers = @bases.map(&:fiber) - [Fiber.current]
      ended = CancelScope.move_on_after(patience, false) { sender.join; Fiber.await(*fibers); true }
      fault("still running: #{@bases.map { |base| [base.fiber.state, base.seen.size, base.told] }}") unless ended
      @faults
    end

    private

    def pick(*choices) = choices[@random.rand(choices.size)]

    def fault(text) = @faults << text

    def begin_bases
      begun = 0
      @bases.each_with_index do |base, n|
        base.fiber = @main && n.zero? ? Fiber.current : Fiber.current.spin { begun += 1; run_base(base) }
      end
      snooze until begun == @bases.size - (@main ? 1 : 0)
    end

    def send_booms
      @booms.times do |number|
        @random.rand(6).times { @raiser == :thread ? Thread.pass : snooze }
        base = pick(*@bases)
        base.told += 1
        base.fiber.raise(Boom.new(number, base))
      end
      @sent = true
    end

    def run_base(base)
      rescuing(base) { act(base, 0, nil) } until @sent && base.seen.size == base.told
    rescue Exception => e # rubocop:disable Lint/RescueException -- whatever comes through is a fault
      fault("#{e.class} #{e.message} ended a fiber: #{e.backtrace.first(5)}")
    end

    def act(frame, level, out)
      (1 + @random.rand(4)).times { act_once(frame, level, out) }
    end

    def act_once(frame, level, out)
      case pick(*(level > DEPTH ? %i[snooze sleep give] : %i[snooze sleep give give take take take take limit shield rescue child cancel]))
      when :snooze  then waiting(frame) { snooze }
      when :sleep   then waiting(frame) { sleep @random.rand(3) * 0.0003 }
      when :give    then out ? out.call : waiting(frame) { snooze }
      when :take    then take(frame, level)
      when :limit   then limited(frame, level, out)
      when :shield  then shielded(frame, level, out)
      when :rescue  then rescuing(frame) { act(frame, level + 1, out) }
      when :child   then waiting(frame) { fault('wrong child') unless spin { snooze; 5 }.await == 5 }
      when :cancel  then cancelled(frame, level, out)
      end
    end

    def base_of(frame) = frame.is_a?(Base) ? frame : frame.user

    def waiting(frame)
      base = base_of(frame)
      yield
    rescue Boom => e
      fault("#{e.message} in the wrong fiber") unless e.target.equal?(base)
      fault("#{e.message} within a shield") if base.shields + base.stack.sum(&:shields) > 0
      raise
    end

    def rescuing(frame)
      yield
    rescue Boom => e
      base = base_of(frame)
      fault("#{e.message} rescued in the wrong fiber") unless e.target.equal?(base)
      fault("#{e.message} came twice") if base.seen.include?(e.number)
      base.seen << e.number
    end

    def limited(frame, level, out)
      token = Object.new
      result = move_on_after(@random.rand(8) * 0.0002, with_value: token) { act(frame, level + 1, out); :own }
      fault("a limit returned #{result.inspect}") unless result == :own || result.equal?(token)
    end

    # (Timeout.timeout is not for random programs: it may strike between any two instructions.)
    def cancelled(frame, level, out)
      error = Class.new(StandardError)
      cancel_after(@random.rand(10) * 0.0002, with_exception: error) { act(frame, level + 1, out) }
    rescue error
      nil
    end

    def shielded(frame, level, out)
      shield do
        frame.shields += 1
        act(frame, level + 1, out)
      ensure
        frame.shields -= 1
      end
    end

    def take(frame, level)
      generator = pick(*@generators)
      return if level > DEPTH || generator.user

      base = base_of(frame)
      generator.user = base
      base.stack.push(generator)
      value = advance(generator)
      fault("#{value} came for #{generator.given}") unless value == (generator.given += 1)
    rescue StopIteration
      generator.enum = nil
    rescue Exception # rubocop:disable Lint/RescueException -- it has ended with it
      generator.enum = nil
      raise
    ensure
      if base
        fault('came back in the wrong order') unless base.stack.pop.equal?(generator)
        generator.user = nil
      end
    end

    def advance(generator)
      make(generator) unless generator.enum
      case generator.kind
      when :enumerator then generator.enum.next
      when :fiber      then generator.enum.resume
      else generator.enum.__polyphony_resume
      end
    end

    def make(generator)
      generator.shields = generator.given = 0
      generator.enum =
        if generator.kind == :enumerator then Enumerator.new { |out| give_all(generator) { |n| out << n } }
        else Fiber.new { give_all(generator) { |n| Fiber.yield(n) }; raise StopIteration }
        end
    end

    def give_all(generator)
      n = 0
      out = -> { yield n += 1 }
      while n < 12
        act(generator, 1, out)
        out.call
      end
    end
  end
end
