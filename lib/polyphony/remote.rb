# frozen_string_literal: true

require 'polyphony'
require 'securerandom'
require 'socket'

begin
  require 'redis-client'
rescue LoadError => e
  raise LoadError, "Polyphony::Remote needs the gem redis-client: add it to the Gemfile (#{e.message})"
end
require 'polyphony/adapters/redis_client'

module Polyphony
  # Mailboxes that other processes, on other machines, can send to, by name. They are streams in Redis (6.2 or later): a message
  # stays there until whoever received it has acknowledged it, and goes to another one if its receiver is gone.
  #
  # What has to be done in the background is done by children of the fiber that opened the Remote. It ends with that fiber.
  #
  # @example
  #   Polyphony::Remote.open(url: ENV['REDIS_URL'], namespace: 'shop') do |remote|
  #     remote.register('printer')
  #     receive_loop { |job| print(job) }        # each is acknowledged when the next one is received
  #   end
  #
  #   remote['printer'] << { 'order' => 17 }     # in another process
  #   remote['printer'].ask('ready?', timeout: 5)
  class Remote
    NAME = %r{\A[A-Za-z0-9_.@/+-]{1,200}\z}.freeze
    POLICIES = %i[wait drop_oldest drop_newest error].freeze
    # Seconds that a Remote which is closed waits for Redis, at most.
    GOODBYE = 2
    private_constant :NAME, :POLICIES, :GOODBYE

    class << self
      # As new. The Remote is closed at the end of the block; if that is reached without an exception, what the fiber has received is
      # acknowledged first.
      # @param options [Hash] see #initialize
      # @yield [Remote]
      # @return [Object] what the block returns
      def open(**options)
        raise ArgumentError, 'open needs a block to run' unless block_given?

        remote = new(**options)
        begin
          result = yield remote
          remote.acknowledge
          result
        ensure
          remote.close
        end
      end

      # @!visibility private
      def __positive(what, value, kind = ::Numeric)
        good = value.is_a?(kind) && value.real? && value.to_f.finite? && value.positive?
        raise ArgumentError, "#{what} must be a positive #{kind}, got #{value.inspect}" unless good

        value
      end
    end

    # @return [String] what its names belong to
    attr_reader :namespace
    # @return [Numeric] seconds that a call waits for Redis, and +ask+ for an answer, unless told otherwise
    attr_reader :timeout

    # Connects.
    # @param namespace [String] names of different namespaces have nothing to do with each other
    # @param timeout [Numeric] seconds that a call waits for Redis, and +ask+ for an answer, unless told otherwise
    # @param lost_after [Numeric] seconds of silence after which a process counts as gone. What it has received is then delivered to others.
    # @param format [Symbol] how messages are written: +:json+, or +:msgpack+ (with the gem of that name). All formats are read.
    # @param max_bytes [Integer] how large a message may be
    # @param capacity [Integer] of mailboxes that nobody has been registered for yet: how many messages, 0 for any number
    # @param policy [Symbol] of the same mailboxes, when they are full
    # @param config [RedisClient::Config, RedisClient::SentinelConfig, nil] instead of +redis+
    # @param redis [Hash] as for RedisClient.config: +url+, +host+, +port+, +path+, +username+, +password+, +ssl+, +ssl_params+ ...
    # @raise [Unreachable]
    # @raise [ArgumentError]
    def initialize(namespace: 'polyphony', timeout: 10, lost_after: 15, format: :json, max_bytes: 1_048_576, capacity: 10_000, policy: :wait,
                   config: nil, **redis)
      @namespace = checked_name('a namespace', namespace)
      @timeout = Remote.__positive(:timeout, timeout)
      @lost_after = Remote.__positive(:lost_after, lost_after).to_f
      @codec = Codec.new(format, Remote.__positive(:max_bytes, max_bytes, ::Integer))
      check_limit(capacity, policy)
      config ||= ::RedisClient.config(driver: :ruby, timeout: [timeout, 5].min, **redis)
      @pid = ::Process.pid
      @counts = Hash.new(0)
      @subscriptions = {}
      @link = Link.new(config, "polyphony:{#{namespace}}:", ::SecureRandom.hex(8), timeout)
      @clerk = Clerk.new(@link)
      @outbox = Outbox.new(self, capacity, policy)
      @monitors = Monitors.new(self)
      @reader = Reader.new(self)
      start
    end

    # @param name [String, Symbol]
    # @return [Name] to send to, to ask, to monitor
    # @raise [ArgumentError] for what is no name
    def [](name)
      Name.new(self, checked_name('a name', name))
    end

    # From now on the current fiber receives what is sent to that name. It may have several names, and a name may have several
    # receivers, here or in other processes: each message goes to one of them.
    #
    # A message is acknowledged when the fiber comes to receive the next one, or calls #acknowledge. If it ends before, the message goes to
    # another receiver. If the fiber ends, its names are given up.
    # @param name [String, Symbol]
    # @param capacity [Integer] how many messages that are not acknowledged the mailbox holds; 0: any number
    # @param policy [Symbol] what a send does when it is full: +:wait+, +:drop_oldest+ (of those nobody has got), +:drop_newest+, +:error+
    # @param prefetch [Integer] how many messages are fetched in advance; 1 shares them out most evenly among receivers
    # @param max_deliveries [Integer] a message that was delivered so often, and never acknowledged, becomes a dead letter
    # @return [Name]
    # @raise [ArgumentError]
    # @raise [Unreachable]
    def register(name, capacity: 10_000, policy: :wait, prefetch: 16, max_deliveries: 5)
      __check
      name = checked_name('a name', name)
      check_limit(capacity, policy)
      Remote.__positive(:prefetch, prefetch, ::Integer)
      Remote.__positive(:max_deliveries, max_deliveries, ::Integer)
      fiber = ::Fiber.current
      raise ArgumentError, "#{fiber.inspect} is registered as #{name} already" if @subscriptions[name]&.of(fiber)

      settings = { capacity: capacity, policy: policy, prefetch: prefetch, max_deliveries: max_deliveries }
      begin
        @clerk.call(@timeout) { join(fiber, name, settings) }
        done = true
      ensure
        @clerk.do { quit(fiber, name) } unless done
      end
      Name.new(self, name)
    end

    # The current fiber does not receive what is sent to that name any more. What it has not acknowledged goes to others, also
    # what it has received.
    # @param name [String, Symbol]
    # @return [Boolean] whether it did
    # @raise [Unreachable]
    def unregister(name)
      __check
      fiber = ::Fiber.current
      subscription = @subscriptions[checked_name('a name', name)]
      return false unless subscription&.of(fiber)

      mine = Courier.taken(fiber).select { |delivery| delivery.subscription.equal?(subscription) }
      Courier.take_off(fiber, mine)
      mine.each(&:__give_back)
      @clerk.call(@timeout) { quit(fiber, subscription.name) }
      true
    end

    # Acknowledges now what the current fiber has received. When it returns, Redis knows.
    # @return [Integer] how many messages
    # @raise [Unreachable]
    def acknowledge
      __check
      mine = Courier.taken(::Fiber.current).select { |delivery| delivery.remote.equal?(self) }
      # By the clerk, after what was acknowledged before. If it is cancelled meanwhile, the fiber has them still.
      @clerk.call(@timeout) { @clerk.acknowledge_all(mine, within: @timeout) }
      mine.each(&:__acknowledged)
      Courier.take_off(::Fiber.current, mine)
      mine.size
    end

    # @return [Delivery, nil] of the message that the current fiber received last and has not acknowledged: its id, whether it may
    #   have been worked on before
    def delivery
      Courier.taken(::Fiber.current).reverse_each.find { |delivery| delivery.remote.equal?(self) }
    end

    # Leaves: what was not acknowledged goes to others at once, names are given up, connections closed.
    # @return [self]
    def close
      return self if @pid != ::Process.pid || @closed

      @crew&.stop
      @crew&.await
      self
    ensure
      hang_up if @pid == ::Process.pid
    end

    # @return [Boolean] also in a forked child
    def closed?
      !!@closed || @pid != ::Process.pid
    end

    # @return [Hash{Symbol => Object}] since it was opened: +sent+, +dropped+, +asked+, +late_replies+, +received+, +redelivered+, +acknowledged+, +returned+,
    #   +expired+ (questions that came too late), +unreadable+, +downs+, +reconnects+; now: +asking+, +waiting_for_room+, +names+
    def stats
      counts = %i[sent dropped asked late_replies received redelivered acknowledged returned expired unreadable downs reconnects]
      counts.to_h { |name| [name, @counts[name]] }.merge(@outbox.stats, names: @subscriptions.transform_values(&:stats))
    end

    # @return [String] the address of Redis
    def server
      @link.server
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{@namespace} at #{server}#{', closed' if closed?}, names: #{@subscriptions.keys.join(', ')}>"
    end

    # @!visibility private
    # For the parts of it.
    { __link: :@link, __clerk: :@clerk, __codec: :@codec, __outbox: :@outbox, __monitors: :@monitors }.each do |name, variable|
      define_method(name) { instance_variable_get(variable) }
    end

    # @!visibility private
    def __check
      raise Closed, "#{inspect} belongs to process #{@pid}: open another one after a fork" if @pid != ::Process.pid
      raise Closed, "#{inspect} was closed" if @closed
    end

    # @!visibility private
    def __count(what, by = 1)
      @counts[what] += by
    end

    # @!visibility private
    def __subscriptions
      @subscriptions.values
    end

    # @!visibility private
    # @return [Integer] milliseconds, by the clock of Redis, as far as one knows
    def __redis_time
      (Clock.now * 1000 + @offset).to_i
    end

    # @!visibility private
    # Redis has forgotten this process, because it was silent for too long or because Redis has lost its data.
    # @param reading [Boolean] whether the reader has a connection
    def __rejoin(reading:)
      beat
      __subscriptions.each(&:join)
      @monitors.rejoin
      __sync(reading: reading)
    end

    # @!visibility private
    def __sync(reading:)
      __subscriptions.each { |subscription| subscription.sync(reading: reading, within: @lost_after) }
      return if reading

      @link.run(:letters, within: @lost_after).each { |id, fields| __letter(id, fields.each_slice(2).to_h) }
    end

    # @!visibility private
    # News for this process. May come twice.
    def __letter(id, letter)
      case letter['k']
      when 'reply', 'reject', 'dropped' then @outbox.answer(letter)
      when 'room' then @outbox.room(letter['n'])
      when 'down' then @monitors.down(letter['n'], letter['r'])
      when 'claim' then @clerk.do { @subscriptions[letter['n']]&.claim }
      end
      @clerk.read(id)
    end

    # @!visibility private
    # Its last receiver has gone. In the fiber of the clerk.
    def __leave(subscription, reason)
      name = subscription.name
      @subscriptions.delete(name) if @subscriptions[name].equal?(subscription)
      @reader.settle
      @subscriptions.key?(name) ? subscription.hand_over : subscription.leave(reason, within: nil)
    end

    private

    def start
      @link.run(:beat, lifetime, who)
      @link.check_version
      beat
      ready = Event.new
      @crew = ::Fiber.current.spin(:remote) { work(ready) }
      ready.await
    rescue ::Exception # rubocop:disable Lint/RescueException -- nothing may be left, whatever it is
      close
      raise
    end

    def work(ready)
      ready.signal
      @reading = spin(:remote_reader) { @reader.run }
      @writing = spin(:remote_clerk) { @clerk.run }
      keep_beating
    ensure
      @closed = true
      __subscriptions.each(&:empty)
      shield { CancelScope.move_on_after(GOODBYE, nil) { leave } }
      hang_up
    end

    def hang_up
      @closed = true
      Courier.forget(self)
      @subscriptions.clear
      @link.close
      @outbox.close
    end

    def keep_beating
      last = Clock.now
      loop do
        sleep @lost_after / 3
        @link.unsteady if Clock.now - last > @lost_after # stood still, and perhaps so did others
        last = Clock.now
        tick
      rescue Unreachable
        next # it goes on trying
      end
    end

    def tick
      known = beat
      return __rejoin(reading: true) if known.zero?

      lost = @link.steady_for?(@lost_after)
      __subscriptions.each do |subscription|
        subscription.claim(lost: lost, within: @lost_after)
        subscription.sync(reading: true, within: @lost_after)
      end
      @monitors.look(within: @lost_after) if lost
    end

    def beat
      known, time = @link.run(:beat, lifetime, who, within: @lost_after)
      @offset = time - Clock.now * 1000
      known
    end

    def lifetime
      (@lost_after * 1000).ceil
    end

    def who
      "#{::Socket.gethostname} #{@pid}"
    end

    def leave
      @reader.finish
      @clerk.nudge
      @clerk.finish
      [@writing, @reading].each { |fiber| fiber.await unless fiber.nil? || fiber.dead? }
      @outbox.leave(within: GOODBYE)
      __subscriptions.each { |subscription| subscription.leave('closed', within: GOODBYE) }
      @link.run(:part, within: GOODBYE)
    rescue Unreachable, ::RedisClient::Error
      nil # others find out
    end

    # These two in the fiber of the clerk, one after the other.
    def join(fiber, name, settings)
      subscription = @subscriptions[name] ||= Subscription.new(self, name, **settings)
      subscription.join
      subscription.add(fiber)
      @clerk.nudge
      @clerk.do { subscription.claim }
    end

    def quit(fiber, name)
      subscription = @subscriptions[name] or return
      registration = subscription.of(fiber)
      if registration then subscription.remove(registration, 'normal')
      elsif subscription.receivers.empty? then __leave(subscription, 'normal')
      end
    end

    def checked_name(what, name)
      text = name.is_a?(::Symbol) ? name.name : name
      return text if text.is_a?(::String) && text.match?(NAME)

      raise ArgumentError, "#{what} has 1 to 200 letters, digits and _ . @ / + -, got #{name.inspect}"
    end

    def check_limit(capacity, policy)
      unless capacity.is_a?(::Integer) && !capacity.negative?
        raise ArgumentError, "capacity must be an Integer, 0 for any number, got #{capacity.inspect}"
      end
      return if POLICIES.include?(policy)

      raise ArgumentError, "policy is :wait, :drop_oldest, :drop_newest or :error, got #{policy.inspect}"
    end
  end
end

require 'polyphony/remote/errors'
require 'polyphony/remote/codec'
require 'polyphony/remote/link'
require 'polyphony/remote/courier'
require 'polyphony/remote/delivery'
require 'polyphony/remote/question'
require 'polyphony/remote/registration'
require 'polyphony/remote/subscription'
require 'polyphony/remote/clerk'
require 'polyphony/remote/reader'
require 'polyphony/remote/outbox'
require 'polyphony/remote/monitors'
require 'polyphony/remote/name'

class Polyphony::Remote
  private_constant :Codec, :Link, :Courier, :Registration, :Subscription, :Clerk, :Reader, :Outbox, :Monitors
end
