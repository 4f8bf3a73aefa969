# frozen_string_literal: true

module Polyphony
  # What runs inside Fiber#supervise.
  # @!visibility private
  class Supervisor
    # A supervised fiber, and the one that takes its place after a restart.
    class Child
      attr_accessor :fiber, :started, :failures, :due
      attr_reader :place

      # @param place [Integer] in the order of starting, which a restart does not change
      def initialize(fiber, place)
        @fiber = fiber
        @place = place
        @failures = 0 # in a row
        @due = nil    # when it is started again, while it is down
      end
    end

    # Who is told of what.
    Handlers = Struct.new(:on_end, :on_error, :on_restart) do
      def ended(fiber)
        on_error&.call(fiber, fiber.result) if fiber.__failed?
        on_end.each { |handler| handler.call(fiber, fiber.result) }
      end

      def any?
        !on_error.nil? || on_end.any?
      end
    end

    # Of a fiber that supervises, or has done so: the others pay nothing for it.
    module Spin
      def spin(*arguments, &block)
        super.tap { |child| __supervisor&.gain(child) }
      end
    end

    # @param policy [RestartPolicy]
    # @param handlers [Handlers]
    # @param grace [Numeric, nil]
    def initialize(policy, handlers, grace)
      @fiber = Fiber.current
      @policy = policy
      @handlers = handlers
      @grace = grace unless grace&.zero?
      @standing = policy.restarts? || handlers.any?
      @wards = Wards.new('a supervised fiber to end')
      @children = {}.compare_by_identity
      @strangers = {}.compare_by_identity
      @places = 0
      @down = [] # those of one group in the order of their places
      @waiting = @idle = false
    end

    # @param fibers [Array<Fiber>] empty: all children
    def run(fibers)
      @fiber.extend(Spin).__supervisor = self
      take_in(fibers)
      step until over?
    rescue Exception => error # rubocop:disable Lint/RescueException -- raised again
      raise
    ensure
      leave(error)
    end

    # A child has come. While a handler runs, the fiber is a parent like any other, and may spin
    # what it awaits itself; who is there afterwards is taken in then.
    def gain(fiber)
      return if !@waiting || settled?(fiber)

      watch(Child.new(fiber, @places += 1))
      @fiber.schedule
    end

    # A child has been given to another fiber.
    def lose(fiber)
      return unless @children.delete(fiber)

      @wards.remove(fiber)
      @fiber.schedule if @waiting
    end

    private

    # --- who is supervised ------------------------------------------------------------------------

    def take_in(fibers)
      (@fiber.children - fibers).each { |fiber| @strangers[fiber] = true } if fibers.any?
      fibers.each { |fiber| watch(Child.new(fiber.attach_to(@fiber), @places += 1)) }
      take_in_newcomers
    end

    # Those that a handler has spun, mostly. They are the last of all children.
    def take_in_newcomers
      children = @fiber.children
      return if children.empty? || settled?(children.last)

      fresh = children.reverse_each.take_while { |fiber| !settled?(fiber) }
      fresh.reverse_each { |fiber| watch(Child.new(fiber, @places += 1)) }
    end

    def settled?(fiber)
      @children.key?(fiber) || @strangers.key?(fiber)
    end

    def watch(child)
      child.started = Clock.now
      @children[child.fiber] = child
      @wards.add(child.fiber)
    end

    def in_order
      @children.values.sort_by(&:place)
    end

    # --- the loop ---------------------------------------------------------------------------------

    def over?
      @children.empty? && (!@standing || @idle)
    end

    def step
      start_those_due
      fiber = @wards.shift
      return answer(@children[fiber]) if fiber

      wait
      take_in_newcomers if @wards.none_ended? # it was woken for another reason, by an interjection say
    end

    # A main fiber that has nobody left waits as in suspend: when nothing can happen any more, the
    # program is over, which is no deadlock.
    def wait
      @waiting = true
      @idle = @children.empty? && @fiber.main?
      @idle ? suspend : @wards.park(time_to_start)
    ensure
      @waiting = false
    end

    # --- an end -----------------------------------------------------------------------------------

    def answer(child)
      tell(child.fiber)
      return @children.delete(child.fiber) unless restart?(child.fiber)

      @policy.count(child.fiber, Clock.now)
      others = @policy.others(child) { in_order }
      bring_down(others)
      restart_later(child, others)
    end

    def restart?(fiber)
      @policy.restart?(fiber) && !ends_program?(fiber)
    end

    def ends_program?(fiber)
      fiber.__failed? && Wards.ends_program?(fiber.result)
    end

    def tell(fiber)
      return if ends_program?(fiber)

      raise fiber.result if fiber.__failed? && !@standing
      return unless @handlers.any?

      @handlers.ended(fiber)
      take_in_newcomers
    end

    # --- restarting -------------------------------------------------------------------------------

    # Those that go down with another one, the last to be started first. One that had ended by
    # itself is dealt with as if it had been its turn.
    def bring_down(children)
      children.reverse_each do |child|
        by_itself = child.fiber.dead?
        end_fiber(child.fiber)
        @wards.remove(child.fiber)
        next if child.due

        tell(child.fiber) if by_itself || child.fiber.__failed?
        @children.delete(child.fiber) if by_itself && !restart?(child.fiber)
      end
    end

    # @param others [Array<Child>] that have gone down with it
    def restart_later(child, others)
      due = Clock.now + delay_after(child)
      plan(child, due)
      return if others.empty?

      others.each { |other| plan(other, due) if @children.key?(other.fiber) }
      @down.sort_by!(&:place)
    end

    def delay_after(child)
      backoff = @policy.backoff
      child.failures = 0 if Clock.now - child.started >= backoff.to
      child.failures += 1
      backoff.delay(child.failures - 1)
    end

    def plan(child, due)
      unless child.due
        report(child.fiber) unless @handlers.any?
        @down << child
      end
      child.due = due
    end

    # Nobody else is told of this error.
    def report(fiber)
      return unless fiber.__failed?

      warn "#{fiber.inspect} failed and is restarted: #{fiber.result.full_message(highlight: false)}"
    end

    def time_to_start
      return if @down.empty?

      [@down.map(&:due).min - Clock.now, 0].max
    end

    def start_those_due
      return if @down.empty?

      now = Clock.now
      while (index = @down.index { |child| child.due <= now })
        start(@down.delete_at(index))
      end
    end

    def start(child)
      former = child.fiber
      @children.delete(former)
      child.fiber = former.restart
      child.due = nil
      watch(child)
      return unless @handlers.on_restart

      @handlers.on_restart.call(child.fiber, former)
      take_in_newcomers
    end

    # --- leaving ----------------------------------------------------------------------------------

    # Whoever leaves, in whatever way, takes all along.
    def leave(error)
      @wards.finish(error) { end_all until @children.empty? }
    ensure
      @fiber.__supervisor = nil
    end

    def end_all
      in_order.reverse_each do |child|
        end_fiber(child.fiber) if @children.key?(child.fiber) # it may have been given away meanwhile
        @children.delete(child.fiber)
      end
    end

    # A clean-up that takes longer than it may is interrupted, at whatever it waits for.
    def end_fiber(fiber)
      @waiting = true
      fiber.__end(graceful: !@grace.nil?)
      fiber.terminate until @wards.ended_within?(fiber, @grace)
    ensure
      @waiting = false
    end
  end

  private_constant :Supervisor
end
