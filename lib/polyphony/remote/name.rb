# frozen_string_literal: true

module Polyphony
  class Remote
    # A mailbox somewhere, by its name. What Remote#[] returns.
    class Name
      # A message that nobody could receive.
      DeadLetter = Struct.new(:id, :message, :deliveries, :reason, keyword_init: true)

      # @return [String]
      attr_reader :name
      alias to_s name

      # @api private
      def initialize(remote, name)
        @remote = remote
        @name = name
      end

      # Sends a message, and waits until Redis has it. If the mailbox is full, its policy says what happens.
      # With more than one argument, or a block, it is Object#send, as of a fiber.
      # @overload send(message, timeout: nil)
      #   @param message [Object] plain data: nil, true, false, numbers, Strings, Symbols (which arrive as Strings), Arrays, Hashes
      #   @param timeout [Numeric, nil] seconds to wait for room
      # @return [self] also when the policy has dropped it
      # @raise [Unserialisable] names what cannot be sent
      # @raise [TooLarge]
      # @raise [Full] by its policy, or if there is no room in time
      # @raise [Unreachable] if Redis does not answer
      # @raise [Closed]
      def send(*args, **options, &block)
        raise ArgumentError, 'send needs a message' if args.empty? && options.empty?
        return super(*args, **options, &block) if block || args.size > 1
        return tell(options, nil) if args.empty?
        return super(*args, **options) unless (options.keys - [:timeout]).empty?

        tell(args.first, options[:timeout])
      end

      # The same.
      # @param message [Object]
      # @return [self]
      def <<(message)
        tell(message, nil)
      end

      # Sends a question, which arrives as a Polyphony::Request, and waits for the answer.
      # @param message [Object] plain data
      # @param timeout [Numeric] seconds; if left out, those of the Remote
      # @return [Object] what was given to Request#reply
      # @raise [Rejected] if it was answered with Request#reject
      # @raise [Request::Timeout] if no answer came in time
      # @raise [Request::Unanswered] if the mailbox dropped it, or nobody could receive it
      # @raise [Unreachable] if Redis does not answer
      def ask(message, timeout: @remote.timeout)
        Remote.__positive(:timeout, timeout)
        @remote.__check
        @remote.__count(:asked)
        @remote.__outbox.ask(self, message, timeout)
      end

      # Has the current fiber told when nobody receives under this name any more: it then receives <tt>[:down, name, reason]</tt>,
      # once. The reason is +:normal+, +:closed+ (its Remote was), +:lost+ (its process does not beat any more), +:absent+ (nobody was there),
      # or a String with the error that its fiber failed with.
      # @return [self]
      # @raise [Unreachable]
      def monitor
        @remote.__check
        @remote.__monitors.add(@name, ::Fiber.current)
        self
      end

      # Takes that back.
      # @return [self]
      # @raise [Unreachable]
      def unmonitor
        @remote.__check
        @remote.__monitors.remove(@name, ::Fiber.current)
        self
      end

      # @return [Hash{Symbol => Object}] what Redis knows: +length+ (messages that are not acknowledged), +pending+ (of these, handed out),
      #   +receivers+ and +waiting_for_room+ (processes), +capacity+, +policy+, +dropped+, +dead+
      # @raise [Unreachable]
      def stats
        @remote.__check
        names = %i[length pending receivers waiting_for_room capacity policy dropped dead]
        names.zip(@remote.__link.run(:stats, @name)).to_h.tap { |all| all[:policy] = all[:policy]&.to_sym }
      end

      # @param limit [Integer] how many
      # @return [Array<DeadLetter>] messages that nobody could receive, the oldest first
      # @raise [Unreachable]
      def dead(limit = 100)
        @remote.__check
        @remote.__link.run(:dead, @name, Integer(limit)).map do |_, flat|
          fields = flat.each_slice(2).to_h
          DeadLetter.new(id: fields['id'], message: readable(fields), deliveries: Integer(fields['deliveries']), reason: fields['reason'])
        end
      end

      # Sends dead letters again.
      # @param ids [Array<String>] which; without any, all
      # @return [Integer] how many
      # @raise [Unreachable]
      def revive(*ids)
        @remote.__check
        @remote.__link.run(:revive, @name, *ids)
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@name} at #{@remote.server}>"
      end

      # @return [Boolean] whether it is the same name of the same Remote
      def ==(other)
        other.is_a?(Name) && other.name == @name && other.remote.equal?(@remote)
      end
      alias eql? ==

      # @return [Integer]
      def hash
        [@name, @remote.__id__].hash
      end

      protected

      attr_reader :remote

      private

      def tell(message, timeout)
        Remote.__positive(:timeout, timeout) if timeout
        @remote.__check
        @remote.__outbox.tell(self, message, timeout)
        self
      end

      def readable(fields)
        Codec.decode(fields['f'], fields['b'].to_s)
      rescue Unreadable
        fields['b']
      end
    end
  end
end
