# frozen_string_literal: true

module RandomPrograms
  # What the words mean, in plain Ruby and as slowly as may be: a queue of fibers, a clock that jumps to the next
  # deadline when nobody can run, lists of those who wait. Nothing of the library is used, so that it can be compared
  # with it. Time is counted in whole units.
  class Model
    class Control < Exception # rubocop:disable Lint/InheritException -- as theirs
      attr_reader :value

      def initialize(value = nil)
        super(self.class.name)
        @value = value
      end
    end

    class MoveOn < Control; end
    class Cancel < Control; end
    class Terminate < Control; end
    class Restart < Control; end
    class Stuck < StandardError; end

    class MultipleErrors < StandardError
      attr_reader :errors

      def initialize(errors)
        super('several')
        @errors = errors
      end
    end

    Timer = Struct.new(:deadline, :serial, :fire)
    # exception: what it has struck with; false until then
    Limit = Struct.new(:owner, :period, :make, :shield, :timer, :exception, :superseded)

    # Somebody's turn that has not come yet.
    Entry = Struct.new(:fiber, :value, :raising)

    # One of the model's fibers, with the words that are said to it.
    class Task
      attr_reader :model, :block, :children, :pending, :limits, :held_back, :awaiters, :monitors
      attr_accessor :stack, :parent, :former, :entry, :started, :ended, :failed, :result, :told_to_end, :shields,
                    :waits_in, :woken_with, :wait_subject, :timer

      def initialize(model, block)
        @model = model
        @block = block
        @children, @pending, @limits, @held_back, @monitors = [], [], [], [], []
        @awaiters = WaitList.new(model, self)
        @shields = 0
      end

      def mailbox = @mailbox ||= Queue.new(@model)

      def await
        raise 'a fiber cannot await itself' if equal?(@model.current)

        @model.await_end(self) unless @ended
        raise @model.take_failure(self) if @failed

        @result
      end

      def alive(exception)
        return if @ended

        @model.schedule(self, exception, true)
        self
      end

      def stop(value = nil) = alive(MoveOn.new(value))
      def cancel(exception = nil) = alive(exception || Cancel.new)
      def raise_in(exception) = alive(exception)
      def terminate = alive(Terminate.new)

      def schedule(value)
        @model.schedule(self, value, value.is_a?(Exception))
        self
      end

      def schedule_first(value)
        @model.schedule(self, value, value.is_a?(Exception), :head)
        self
      end

      def restart(value)
        if alive(Restart.new(value))
          mailbox.clear
          return self
        end
        raise 'its parent has ended' if (@former || @model.root).ended

        @model.spin(@former || @model.root, @block).tap do |again|
          @model.schedule(again, value, false)
          @monitors.grep(Task).each { |monitor| again.tell_at_end(monitor) }
        end
      end

      def tell_at_end(monitor)
        if @ended then monitor << [self, @result]
        elsif @monitors.none? { |other| other.equal?(monitor) } then @monitors << monitor
        end
      end

      def await_children
        @children.first.await until @children.empty?
      end

      def shut_down_children
        error, order = @model.shut_down_children(self)
        @model.schedule(self, order, true) if error && order
        raise error || order if error || order
      end

      def dead? = @ended
      def failed? = @failed
      def <<(message) = mailbox.push(message)
    end

    # Those who wait, in order of arrival; a wake that an exception has overtaken goes to the next.
    class WaitList
      attr_reader :woken

      def initialize(model, owner = nil)
        @model = model
        @owner = owner
        @parked = []
        @woken = 0
      end

      def park
        task = @model.current
        task.waits_in = self
        @parked << task
        value, raising = @model.wait(@owner)
        woken = !@parked.include?(task)
        settle(task, woken, raising)
        raise value if raising

        woken ? task.woken_with : value
      end

      def wake(value = nil)
        task = @parked.shift or return false
        @woken += 1
        task.woken_with = value
        @model.schedule(task, value, false)
        true
      end

      def wake_all = (nil while wake)
      def empty? = @parked.empty?

      private

      def settle(task, woken, raising)
        task.waits_in = nil
        return @parked.delete(task) unless woken

        @woken -= 1
        wake(task.woken_with) if raising
      end
    end

    class Queue
      def initialize(model, cap = nil)
        @model = model
        @cap = cap
        @items = []
        @shifters, @pushers = WaitList.new(model, self), WaitList.new(model, self)
      end

      def push(item)
        wait_for_room if @cap && !@closed
        raise ClosedQueueError, 'queue closed' if @closed

        @items << item
        @shifters.wake if @items.size > @shifters.woken
        self
      end

      def shift
        @model.snooze
        return take if @items.size > @shifters.woken
        raise ClosedQueueError, 'queue closed' if @closed && @items.empty?

        until @closed
          @shifters.park
          return take unless @items.empty?
        end
      end

      def close
        @closed = true
        @shifters.wake_all
        @pushers.wake_all
      end

      def shift_all = Array.new(@items.size) { take }
      alias clear shift_all

      private

      def take
        @items.shift.tap do
          @pushers.wake
          @shifters.wake_all if @items.empty? && @closed
        end
      end

      def wait_for_room
        waited = false
        @model.snooze
        until @closed || @items.size + (waited ? 0 : @pushers.woken) < @cap
          @pushers.park
          waited = true
        end
      end
    end

    class Mutex
      def initialize(model)
        @model = model
        @waiting = WaitList.new(model, self)
      end

      def synchronize
        return yield if @holder.equal?(@model.current)

        @waiting.park until @holder.nil? && @waiting.woken.zero?
        @holder = @model.current
        begin
          yield
        ensure
          @holder = nil
          @waiting.wake(true)
        end
      end
    end

    class Semaphore
      def initialize(model, limit)
        @model = model
        @limit = limit
        @taken = 0
        @waiting = WaitList.new(model, self)
      end

      def synchronize
        @waiting.park until @taken + @waiting.woken < @limit
        @taken += 1
        begin
          yield
        ensure
          @taken -= 1
          @waiting.wake(true)
        end
      end
    end

    class Event
      def initialize(model)
        @waiter = WaitList.new(model, self)
      end

      def signal(value)
        @value = value
        @signalled = true
        @waiter.wake
      end

      def await
        raise 'another fiber waits for this event already' unless @waiter.empty?

        @waiter.park until @signalled
        value, @value, @signalled = @value, nil, false
        value
      end
    end

    # Several fibers' ends, for one that waits for them.
    class Watch < Queue
      def self.on(model, fibers)
        watch = new(model)
        fibers.each { |fiber| watch.add(fiber) }
        yield watch
      rescue Exception => e # rubocop:disable Lint/RescueException
        watch.shift_all if watch.told_of?(e)
        raise
      ensure
        watch.leave
      end

      attr_reader :watcher

      def initialize(model)
        super
        @watcher = model.current
        @watched = {}.compare_by_identity
      end

      def add(fiber)
        @watched[fiber] = true
        fiber.tell_at_end(self)
      end

      def <<(report) = push(report)

      def next_ended
        @last, = shift
        @watched.delete(@last)
        @last
      end

      def told_of?(error) = @last&.failed? && @last.result.equal?(error)
      def pending = @watched.size

      def leave
        @watched.each_key { |fiber| fiber.monitors.delete_if { |one| one.equal?(self) } }
        shift_all.each { |fiber, result| @model.schedule(@watcher, result, true) if fiber.failed? && fiber.former.equal?(@watcher) }
      end
    end

    # Fibers that belong together.
    class Scope
      attr_reader :watcher

      def initialize(model)
        @model = model
        @watcher = model.current
        @running = {}.compare_by_identity
        @ended = []
        @list = WaitList.new(model, self)
      end

      def spin(&block)
        raise 'the scope has ended' if @closed

        fiber = @model.spin(@watcher, block)
        @running[fiber] = true
        fiber.tell_at_end(self)
        @model.stop_child(fiber) unless active?
        fiber
      end

      def stop(value) = end_with(value, nil)
      def cancel = end_with(nil, Cancel.new)

      def <<(report)
        fiber, = report
        @running.delete(fiber)
        if fiber.failed?
          @ended << fiber
          strike
        end
        @list.wake(true)
      end

      def run(block)
        value = @model.limit(nil, nil) { |limit| complete(limit, block) }
        raise @error if @error

        @stopped ? @value : value
      rescue Exception => error # rubocop:disable Lint/RescueException
        raise
      ensure
        finish(error)
      end

      private

      def active? = !@limit.exception
      def strike = @model.strike(@limit)

      def complete(limit, block)
        @limit = limit
        value = block.call(self)
        park until @running.empty? || !active?
        value
      end

      def park
        @list.park
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise unless @late

        @late << e
      end

      def end_with(value, error)
        return self if @closed || !active?

        @stopped, @value, @error = true, value, error
        strike
        self
      end

      def finish(error)
        @late = []
        @running.keys.reverse_each { |fiber| @model.stop_child(fiber) }
        park until @running.empty?
        stops, failures = @late.partition { |late| Model.order?(late) }
        stops.each { |stop| @watcher.schedule(stop) }
        failures = @ended.select(&:failed?).map(&:result) | failures
        error = nil if error && Model.order?(error)
        @model.raise_all([*error] | failures) unless failures.empty?
      ensure
        @closed = true
      end
    end

    def self.order?(error) = [MoveOn, Terminate, Restart].any? { |order| order === error }

    attr_reader :current, :root, :now

    def initialize
      @queue, @timers = [], []
      @now = @serial = 0
      @sources, @of_limits = {}.compare_by_identity, {}.compare_by_identity
    end

    # Runs the block in the main fiber, until that one ends.
    # @return [Object] what it returns
    def run(&block)
      @root = Task.new(self, nil)
      @root.stack = ::Fiber.new { [:over, block.call] }
      @root.started = true
      enqueue(@root, nil, false)
      @idle = nil
      loop do
        entry = next_entry
        @current = entry.fiber
        over, value = @current.stack.resume(entry.value, entry.raising)
        return value if over == :over
      end
    end

    # --- turns ------------------------------------------------------------------------------------

    def switch(idle: false)
      task = @current
      @idle = idle ? task : nil
      value, raising = ::Fiber.yield
      queue_pending(task)
      [value, raising]
    end

    def wait(subject)
      task = @current
      task.wait_subject = subject
      switch
    ensure
      task.wait_subject = nil
    end

    def snooze
      enqueue(@current, nil, false)
      given(*switch)
    end

    def suspend = given(*switch(idle: true))

    def sleep(units)
      task = @current
      arm(task.timer = Timer.new(nil, nil, -> { schedule(task, nil, false) }), units)
      value, raising = wait(nil)
      disarm(task.timer)
      given(value, raising)
    end

    def spin(parent, block)
      task = Task.new(self, block)
      task.stack = ::Fiber.new { |value, raising| live(task, value, raising) }
      adopt(parent, task)
      schedule(task, nil, false)
      task
    end

    # The merge rule: an exception is never replaced.
    def schedule(task, value, raising, place = :tail)
      return if raising && hold(task, value)
      return if task.ended

      enqueue(task, value, raising)
      return unless place == :head

      @queue.delete(task.entry)
      @queue.unshift(task.entry)
    end

    def limit(units, value = nil, make = -> { MoveOn.new })
      limit = enter(units, make)
      begin
        result = yield limit
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise unless leave(limit).equal?(e)

        order = order_behind(e)
        raise order if order
        raise unless e.is_a?(MoveOn)

        return value
      end
      leave(limit)
      result
    end

    def cancel_after(units, &block) = limit(units, nil, -> { Cancel.new }, &block)

    def shield
      shield = enter(nil, nil)
      task = shield.owner
      shield.shield = true
      task.shields += 1
      sort(task)
      begin
        result = yield
      ensure
        came = lower(shield)
      end
      snooze if came
      result
    end

    def scope(&block) = Scope.new(self).run(block)

    # --- several ------------------------------------------------------------------------------------

    def await_all(fibers)
      ours = fibers.all? { |fiber| fiber.parent.equal?(@current) || fiber.dead? }
      Watch.on(self, fibers.uniq) { |watch| each_end(watch, &:await) } unless ours
      fibers.map(&:await)
    rescue Exception # rubocop:disable Lint/RescueException
      end_all(fibers)
      raise
    end

    def select(fibers)
      fiber = fibers.find(&:dead?) || Watch.on(self, fibers, &:next_ended)
      [fiber, fiber.await]
    end

    def race(fibers)
      winner = Watch.on(self, fibers) { |watch| first_success(watch) }
      return winner.result if winner

      raise_all(fibers.map(&:result))
    ensure
      end_all(fibers.reject(&:dead?))
    end

    def map(elements, limit)
      fibers = []
      Watch.on(self, []) do |watch|
        elements.each do |element|
          watch.next_ended.await while limit && watch.pending >= limit
          fibers << spin(@current, ->(_) { yield element })
          watch.add(fibers.last)
        end
        each_end(watch, &:await)
      end
      fibers.map(&:result)
    ensure
      end_all(fibers.reject(&:dead?))
    end

    def raise_all(errors)
      return if errors.empty?

      grave = errors.find { |error| !error.is_a?(StandardError) }
      raise grave || (errors.size == 1 ? errors.first : MultipleErrors.new(errors))
    end

    # --- ends ---------------------------------------------------------------------------------------

    def await_end(task)
      task.awaiters.park until task.ended
    rescue Exception => e # rubocop:disable Lint/RescueException
      schedule(@current, take_failure(task), true) if owed?(task) && !e.equal?(task.result)
      raise
    end

    def take_failure(task)
      withdraw(@current, task.result)
      task.result
    end

    # @return [Array(Exception, Exception)] the first error, and what the task was told meanwhile
    def shut_down_children(task)
      errors = []
      order = nil
      task.children.reverse_each { |child| stop_child(child) }
      until task.children.empty?
        child = task.children.last
        stop_child(child) unless child.told_to_end
        error = park_until_ended(child)
        errors << take_failure(child) if child.ended && child.failed
        next unless error

        Model.order?(error) ? order = error : errors << error
      end
      first = errors.shift
      errors.each { |error| schedule(@current, error, true) }
      [first, order]
    end

    # For good: no restart makes it begin again.
    def stop_child(child)
      child.told_to_end = true
      schedule(child, Terminate.new, true)
    end

    def strike(limit)
      return if limit.exception || limit.superseded

      disarm(limit.timer)
      limit.exception = limit.make.call
      @of_limits[limit.exception] = true
      deliver(limit.owner, limit.exception)
    end

    private

    def given(value, raising)
      raise value if raising

      value
    end

    def enqueue(task, value, raising)
      if task.entry then merge(task, task.entry, value, raising)
      else @queue << (task.entry = Entry.new(task, value, raising))
      end
    end

    def merge(task, entry, value, raising)
      if !entry.raising then entry.value, entry.raising = value, raising
      elsif raising && !entry.value.equal?(value) then task.pending << value
      end
    end

    def queue_pending(task)
      enqueue(task, task.pending.shift, true) unless task.pending.empty?
    end

    def next_entry
      find_runnable while @queue.empty?
      @queue.shift.tap { |entry| entry.fiber.entry = nil }
    end

    def find_runnable
      if @timers.empty?
        raise Stuck unless @idle

        return enqueue(@idle, nil, false)
      end
      @now = first_timer.deadline
      while !@timers.empty? && first_timer.deadline <= @now
        timer = first_timer
        disarm(timer)
        timer.fire.call
      end
    end

    def first_timer = @timers.min_by { |timer| [timer.deadline, timer.serial] }

    def arm(timer, units)
      timer.deadline = @now + units
      timer.serial = @serial += 1
      @timers << timer
    end

    def disarm(timer) = @timers.delete_if { |other| other.equal?(timer) }

    # --- exceptions that wait for their turn

    def raising?(task) = task.entry&.raising

    def withdraw(task, exception)
      if raising?(task) && task.entry.value.equal?(exception)
        if task.pending.empty? then remove(task)
        else task.entry.value = task.pending.shift
        end
        return true
      end
      delete_one(task.held_back, exception) || delete_one(task.pending, exception)
    end

    def delete_one(list, exception)
      index = list.index { |other| other.equal?(exception) } or return false
      list.delete_at(index)
      true
    end

    def remove(task)
      @queue.delete_if { |entry| entry.equal?(task.entry) }
      task.entry = nil
    end

    def shift_exception(task)
      return unless raising?(task)

      task.entry.value.tap { |exception| withdraw(task, exception) }
    end

    def shift_instance(task, kind)
      return unless raising?(task)

      [task.entry.value, *task.pending].find { |exception| exception.is_a?(kind) }&.tap { |found| withdraw(task, found) }
    end

    # --- limits and shields

    def enter(units, make)
      limit = Limit.new(@current, units, make, false, nil, false, false)
      limit.timer = Timer.new(nil, nil, -> { strike(limit) })
      @current.limits.unshift(limit)
      arm(limit.timer, units) if units
      limit
    end

    def dispose(limit)
      disarm(limit.timer)
      limit.owner.limits.delete_if { |other| other.equal?(limit) }
    end

    # @return [Exception, nil] with what it struck, if that was delivered
    def leave(limit)
      exception = limit.exception
      exception = nil if exception && withdraw(limit.owner, exception)
      dispose(limit)
      exception
    end

    # It struck while the fiber, which had been told to end, was still cleaning up.
    def order_behind(error)
      nil while (error = error.cause) && !(Model.order?(error) && !@of_limits.key?(error))
      error
    end

    def of(task, exception) = task.limits.find { |limit| exception.equal?(limit.exception) }

    def inner(limit) = limit.owner.limits.take_while { |other| !other.equal?(limit) }
    def within_shield?(limit) = inner(limit).any?(&:shield)

    def supersede_inner(limit)
      inner(limit).each do |other|
        other.superseded = true
        disarm(other.timer)
        other.exception = false if other.exception && withdraw(limit.owner, other.exception)
      end
    end

    def deliver(task, exception)
      limit = of(task, exception)
      if limit
        return limit.exception = false if limit.superseded

        supersede_inner(limit) unless within_shield?(limit)
      end
      schedule(task, exception, true)
    end

    def hold(task, exception)
      return false if task.shields.zero?

      limit = of(task, exception)
      return false if limit && !within_shield?(limit)

      task.held_back << exception
      true
    end

    def sort(task)
      held = task.held_back.dup
      undelivered = []
      while (exception = shift_exception(task))
        undelivered << exception
      end
      task.held_back.clear
      held.each { |one| deliver(task, one) }
      undelivered.each { |one| schedule(task, one, true) }
    end

    def lower(shield)
      task = shield.owner
      any = !task.held_back.empty?
      task.shields -= 1
      dispose(shield)
      sort(task) if any
      any && raising?(task)
    end

    # --- several

    def each_end(watch) = (yield watch.next_ended while watch.pending.positive?)

    def first_success(watch)
      each_end(watch) { |fiber| return fiber unless fiber.failed? }
      nil
    end

    def end_all(fibers)
      fibers.each { |fiber| stop_child(fiber) unless fiber.ended }
      fibers.each do |fiber|
        fiber.await
      rescue Exception => e # rubocop:disable Lint/RescueException
        raise unless fibers.any? { |other| other.failed? && other.result.equal?(e) }

        retry unless fiber.dead?
      end
    end

    # --- the life of a fiber

    def adopt(parent, child)
      child.parent&.children&.delete_if { |other| other.equal?(child) }
      child.parent = parent
      parent&.children&.push(child)
    end

    def live(task, value, raising)
      task.started = true
      queue_pending(task)
      run_to_the_end(task, value, raising)
      end_children(task)
      late = late_errors(task)
      conclude(task)
      late.each { |error| schedule(task.former || @root, error, true) }
      :ended
    end

    def run_to_the_end(task, value, raising)
      loop do
        restart = run_once(task, value, raising) || late_restart(task)
        return unless restart && (restart = begins_again(task, restart))

        value, raising = restart.value, false
      end
    end

    def run_once(task, value, raising)
      raise value if raising

      task.result = task.block.call(value)
      task.failed = false
      nil
    rescue Restart => e
      e
    rescue MoveOn, Terminate => e
      task.result, task.failed = e.value, false
      nil
    rescue Exception => e # rubocop:disable Lint/RescueException
      fail_with(task, e)
      nil
    end

    def fail_with(task, error)
      task.result, task.failed = error, true
      @sources[error] ||= task
    end

    def late_restart(task)
      restart = shift_instance(task, Restart) || end_children(task)
      return if restart.nil? || stop?(restart)

      pass_error_on(task) if task.failed
      restart
    end

    def stop?(error) = error.is_a?(MoveOn) || error.is_a?(Terminate)

    def begins_again(task, restart)
      error, order = shut_down_children(task)
      restart = order if order
      task.result, task.failed = restart.value, false if stop?(restart)
      fail_with(task, error) if error
      restart unless error || stop?(restart) || task.told_to_end
    end

    def end_children(task)
      return if task.children.empty?

      error, order = shut_down_children(task)
      fail_with(task, error) if error
      order
    end

    def park_until_ended(child)
      child.awaiters.park
      nil
    rescue Exception => e # rubocop:disable Lint/RescueException
      e
    end

    def late_errors(task)
      more = []
      while (error = shift_exception(task))
        next if @sources[error].nil? || error.equal?(task.result)

        task.failed ? more << error : fail_with(task, error)
      end
      more
    end

    def conclude(task)
      task.ended = true
      remove(task) if task.entry
      task.monitors.dup.each { |monitor| monitor << [task, task.result] }
      pass_error_on(task) if task.failed
      task.awaiters.wake_all
      task.former = task.parent
      adopt(nil, task)
    end

    def pass_error_on(task)
      parent = task.parent || @root
      return if (task.ended && awaited_by?(task, parent)) || monitored_by?(task, parent)

      schedule(parent, task.result, true, :head)
    end

    def awaited_by?(task, who) = who.wait_subject.equal?(task) && !raising?(who)

    def monitored_by?(task, who)
      task.monitors.any? { |monitor| monitor.equal?(who) || (!monitor.is_a?(Task) && monitor.watcher.equal?(who)) }
    end

    def owed?(task)
      task.ended && task.failed && task.former.equal?(@current) && !monitored_by?(task, @current)
    end
  end
end
