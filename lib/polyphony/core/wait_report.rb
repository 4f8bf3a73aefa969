# frozen_string_literal: true

module Polyphony
  # What fibers wait for, in words: for deadlocks, time limits, and exhausted pools.
  # @!visibility private
  module WaitReport
    # What moves a terminal's cursor, and what turns the direction of the text behind it.
    UNSEEN = /[[:cntrl:]\u2028\u2029\u202a-\u202e\u2066-\u2069]/.freeze
    METHOD, TO_S = %i[method to_s].map { |name| ::Kernel.instance_method(name) }
    # What somebody's +inspect+ or +to_s+ may raise: an abstract one, or one that goes round in circles, no StandardError.
    FAULTS = [::StandardError, ::ScriptError, ::SystemStackError].freeze
    private_constant :UNSEEN, :METHOD, :TO_S

    class << self
      # @param reason [String] completes "waits for ..."
      # @param subject [Object] the queue, lock, io, fiber it waits for
      # @return [String]
      def describe(reason, subject)
        subject = named(subject)
        case subject
        when NilClass then reason
        when ::SizedQueue then "#{subject.size < subject.max ? 'an item' : 'room'} in a queue (#{title(subject)})"
        else "#{reason} (#{title(subject)})"
        end
      end

      # Who has what others wait for: +[fiber, since]+ each.
      def holders(subject)
        subject = named(subject) unless StockLocks::Waiters === subject # a BasicObject has no is_a?
        subject.respond_to?(:holders) ? Array(subject.holders) : []
      rescue *FAULTS # a report is worth more than a line of it
        []
      end

      # @param since [Float, nil] on the monotonic clock
      # @return [String]
      def ago(since)
        since ? " for #{format('%.1f', Clock.now - since)} s" : ''
      end

      # One line for one fiber, and one for each that has what it waits for.
      def lines(fiber)
        reason, subject, since = fiber.__wait
        wait = describe(reason || 'being scheduled', subject)
        ["#{title(fiber)} waits for #{wait}#{ago(since)}#{origin(fiber)}",
         *holders(subject).map { |holder, held| "  held by #{title(holder)}#{ago(held)}" }]
      end

      # The same as data.
      # @return [Hash]
      def data(fiber)
        reason, subject, since = fiber.__wait
        now = Clock.now
        { id: fiber.__timeline.first, fiber: title(fiber), tag: title_of_tag(fiber.tag), reason: reason || 'being scheduled',
          waits_for: describe(reason || 'being scheduled', subject), seconds: since && (now - since).round(3),
          held_by: holders(subject).map { |holder, held| { fiber: title(holder), seconds: held && (now - held).round(3) } },
          spun_at: origin(fiber)&.delete_prefix(', spun at ') }
      end

      # One line for a fiber that has what others wait for.
      # @return [String]
      def holding(fiber, since)
        "#{title(fiber)} has one#{ago(since)}#{origin(fiber)}"
      end

      # A fiber without its state: the one that polls would be called running.
      def title(object)
        in_line(shown(object)).sub(/\A(#<Fiber.*) \(\w+\)>\z/, '\1>')
      rescue *FAULTS => e
        "one that cannot be shown (#{e.class})"
      end

      # @return [String, nil] file and line
      def spun_at(fiber)
        fiber.__origin&.then { |line| utf8(line)[/\A.*?:\d+/] }
      end

      # Anything may be a tag.
      # @return [String, nil]
      def title_of_tag(tag)
        utf8(tag.to_s) unless nil.equal?(tag)
      rescue *FAULTS
        nil
      end

      # A name may be what a client sent, and must neither steer a terminal nor look like another line of a log.
      # @param text [String]
      def in_line(text)
        text = utf8(text)
        UNSEEN.match?(text) ? text.gsub(UNSEEN) { |char| char.dump[1..-2] } : text
      end

      # Tags, paths and what inspect returns may be in any encoding, and must go together, and into JSON.
      # @param text [String]
      def utf8(text)
        return text if text.encoding == Encoding::UTF_8 && text.valid_encoding?
        return text.dup.force_encoding(Encoding::UTF_8).scrub('?') if [Encoding::UTF_8, Encoding::BINARY, Encoding::US_ASCII].include?(text.encoding)

        text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace, replace: '?')
      end

      private

      # Ruby's own inspect goes through all that is inside, which another thread may be changing at that moment: who puts something into a
      # Hash that is gone through gets an error.
      def shown(object)
        return object.inspect if ::Fiber === object # as most are

        plain = METHOD.bind_call(object, :inspect).owner.equal?(::Kernel)
        plain ? TO_S.bind_call(object) : object.inspect
      end

      # Only ours are asked: a proxy may answer to anything, and a BasicObject to nothing.
      def named(subject)
        case subject
        when Queue then subject.__owner || subject.owner || subject
        when ThreadLife then subject.instance_variable_get(:@thread)
        when StockLocks::Waiters then subject.lock
        when Event then subject.__owner || subject
        when WaitList then subject.owner || subject
        else subject
        end
      end

      # What Fiber.map spins stands in the loop over its elements, which may be anybody's: its block tells more.
      def origin(fiber)
        return if fiber.respond_to?(:__block) && fiber.__block&.source_location&.first&.start_with?(Backtrace::DIR)

        place = spun_at(fiber)
        place && ", spun at #{place}"
      end
    end
  end

  private_constant :WaitReport
end
