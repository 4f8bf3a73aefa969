# frozen_string_literal: true

module RandomPrograms
  # What programs raise themselves.
  class Boom < StandardError; end

  # Carries out a program, which is an Array of statements such as [:sleep, 3] or [:limit, 5, [...]], by the words of a
  # world: the real one or the model. What happens is written down.
  class Program
    STEPS = 400 # a program that restarts itself would go on for ever
    LIMIT = 1 << 28 # units: whoever waits for nothing is stopped then

    # @return [Array<Array(Integer, Symbol)>] the channels that a program uses, each once
    def self.places(body)
      body.grep(Array).flat_map { |part| %i[read write].include?(part.first) ? [part[1, 2]] : places(part) }.uniq
    end

    attr_reader :log

    def initialize(world, body)
      @world = world
      @body = body
      @log = []
      @fibers = []
      @names = {}.compare_by_identity
      @steps = 0
      @queues = [world.queue(nil), world.queue(1), world.queue(2)]
      @locks = Array.new(2) { world.mutex }
      @gate = world.semaphore(2)
      @events = Array.new(2) { world.event }
      @channels = Program.places(body).to_h { |place| [place, world.channel(place.last)] }
      @threads = []
    end

    # @return [Array<String>] what happened
    def run
      @world.run do
        top = @world.spin { |_| @world.limit(LIMIT, :late) { block(@body, 'top').call(nil) } }
        note('main', describe { top.await })
        @threads.each(&:join)
        settle
      end
      @log
    ensure
      @channels.each_value(&:close)
    end

    # @return [Hash] what each fiber saw, when the order among them is nobody's to say
    def stories = @log.group_by { |line| line[/\A\S+/] }

    private

    # Errors that have lost their way come to the main fiber, one at a time.
    def settle
      until (late = describe { @world.snooze }) == 'nil'
        note('main', late)
      end
    end

    def note(name, *words) = @log << [name, *words].join(' ')

    def text(value)
      case value
      when Exception then error_text(value)
      when Array then "[#{value.map { |one| text(one) }.join(',')}]"
      else @names[value] || value.inspect
      end
    end

    def error_text(error)
      name = error.class.name.split('::').last
      return "#{name}(#{error.errors.map { |one| error_text(one) }.join(',')})" if name == 'MultipleErrors'

      error.is_a?(Boom) ? "boom#{error.message}" : name
    end

    def describe
      text(yield)
    rescue StandardError, @world.cancel_class => e
      text(e)
    end

    # The block of a fiber.
    def block(body, name)
      lambda do |given|
        note(name, 'begins', text(given))
        count = 0
        act = Actor.new(name, -> { count += 1 })
        body.each { |statement| step(act, statement) }
        note(name, 'ends')
        name
      rescue Exception => e # rubocop:disable Lint/RescueException -- raised again
        note(name, 'ends by', text(e))
        raise
      end
    end

    Actor = Struct.new(:name, :counter) do
      def next_name = "#{name}.#{counter.call}"
    end

    def register(name, fiber)
      @names[fiber] = name
      @fibers << fiber
      fiber
    end

    def spin(act, body)
      name = act.next_name
      register(name, @world.spin(&block(body, name)))
    end

    def named(name) = @fibers.find { |fiber| @names[fiber] == name }

    # One that has been begun, by number, but not the one that asks.
    def other(number)
      fiber = @fibers[number % @fibers.size] unless @fibers.empty?
      fiber unless fiber.equal?(@world.current)
    end

    def run_all(act, body) = body.each { |statement| step(act, statement) }

    def step(act, statement)
      return if (@steps += 1) > STEPS

      word, *rest = statement
      __send__(:"do_#{word}", act, *rest)
    end

    # --- statements -------------------------------------------------------------------------------

    def do_note(act, number) = note(act.name, number)
    def do_snooze(act) = note(act.name, 'snoozed', text(@world.snooze))
    def do_sleep(act, units) = note(act.name, 'slept', text(@world.sleep(units)))
    def do_suspend(act) = note(act.name, 'suspended', text(@world.suspend))
    def do_spin(act, body) = note(act.name, 'spins', text(spin(act, body)))
    def do_boom(_act, number) = raise(Boom, number.to_s)
    def do_time(act) = note(act.name, 'at', @world.now)

    def do_await(act, number)
      fiber = other(number)
      note(act.name, 'awaited', text(fiber), text(fiber.await)) if fiber
    end

    def do_tell(act, number, word, value)
      fiber = other(number) or return
      note(act.name, word, text(fiber))
      case word
      when :stop then fiber.stop(value)
      when :cancel then fiber.cancel
      when :raise then fiber.raise_in(Boom.new(value.to_s))
      when :terminate then fiber.terminate
      when :schedule then fiber.schedule(value)
      when :schedule_first then fiber.schedule_first(value)
      when :send then fiber << value
      end
    end

    def do_restart(act, number, value)
      fiber = other(number) or return
      again = refusable(act) { fiber.restart(value) }
      register("#{@names[fiber]}'", again) if again && !again.equal?(fiber)
    end

    def refusable(act)
      yield
    rescue FiberError, RuntimeError
      note(act.name, 'is refused')
      nil
    end

    def do_receive(act) = note(act.name, 'received', text(@world.receive))

    def do_push(act, number, value)
      @queues[number].push(value)
      note(act.name, 'pushed', value)
    end

    def do_shift(act, number) = note(act.name, 'shifted', text(@queues[number].shift))

    def do_lock(act, number, body)
      @locks[number].synchronize do
        note(act.name, 'has lock', number)
        run_all(act, body)
      end
    end

    def do_enter(act, body)
      @gate.synchronize do
        note(act.name, 'has entered')
        run_all(act, body)
      end
    end

    def do_signal(_act, number, value) = @events[number].signal(value)

    def do_wait(act, number)
      refusable(act) { note(act.name, 'heard', text(@events[number].await)) }
    end

    def do_limit(act, units, body)
      result = @world.limit(units, :late) { run_all(act, body); :done }
      note(act.name, 'limit', result)
    end

    def do_cancel_after(act, units, body)
      @world.cancel_after(units) { run_all(act, body) }
    end

    def do_shield(act, body)
      @world.shield { run_all(act, body) }
      note(act.name, 'shielded')
    end

    def do_rescue(act, body)
      run_all(act, body)
    rescue StandardError, @world.cancel_class => e
      note(act.name, 'rescued', text(e))
    end

    def do_ensure(act, body, cleanup)
      run_all(act, body)
    ensure
      run_all(act, cleanup)
      note(act.name, 'cleaned up')
    end

    def do_await_children(act)
      @world.await_children
      note(act.name, 'awaited children')
    end

    def do_shut_down_children(act)
      @world.shut_down_children
      note(act.name, 'shut down children')
    end

    def do_several(act, word, bodies)
      fibers = bodies.map { |body| spin(act, body) }
      note(act.name, word, text(@world.public_send(word, fibers)))
    end

    def do_map(act, limit, bodies)
      result = @world.map(bodies, limit) do |body|
        name = act.next_name
        register(name, @world.current)
        block(body, name).call(nil)
      end
      note(act.name, 'mapped', text(result))
    end

    # how: what is done with the scope after all have been spun
    def do_scope(act, how, bodies, body)
      result = @world.scope do |scope|
        bodies.each { |one| name = act.next_name; register(name, scope.spin(&block(one, name))) }
        run_all(act, body)
        how == :cancel ? scope.cancel : how == :stop && scope.stop(:stopped)
        :scoped
      end
      note(act.name, 'scope', text(result))
    end

    # --- statements of programs whose fibers are apart: see apart.rb --------------------------------

    # It comes to an end by itself, and before the others.
    def do_thread(act, body)
      name = act.next_name
      @threads << @world.thread do
        register(name, @world.current)
        @world.limit(LIMIT / 2, :late) { block(body, name).call(nil) }
      rescue Exception => e # rubocop:disable Lint/RescueException -- not to be reported
        note(name, 'ended by', text(e))
      end
    end

    def do_write(act, number, kind, value)
      @channels[[number, kind]].write(value)
      note(act.name, 'wrote', value)
    end

    def do_read(act, number, kind) = note(act.name, 'read', number, @channels[[number, kind]].read)

    def do_nap(act, units)
      @world.sleep(units)
      note(act.name, 'napped until', @world.now)
    end

    def do_stop_after(act, units, name, rest)
      do_nap(act, units)
      fiber = named(name)
      fiber.stop(units) if fiber && !fiber.equal?(@world.current)
      do_nap(act, rest)
    end

    def do_sleep_boom(act, units, number)
      do_nap(act, units)
      raise Boom, number.to_s
    end

    def do_keep(act, body)
      run_all(act, body)
    rescue Boom => e
      note(act.name, 'keeps', text(e))
    end

    def do_await_quietly(act)
      @world.await_children
      note(act.name, 'alone at', @world.now)
    rescue Boom => e
      note(act.name, 'hears', text(e))
      retry
    end
  end
end
