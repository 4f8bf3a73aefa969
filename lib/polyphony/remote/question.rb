# frozen_string_literal: true

module Polyphony
  class Remote
    # A question that came from another process: what Name#ask sends. Is used like every Request. An answer that comes after the
    # asker's deadline is dropped.
    class Question < Request
      # @api private
      # @param fields [Hash{String => String}] c: what the answer is to carry, s: who asks, t: milliseconds that it waits
      def self.received(remote, delivery, message, fields)
        new(message, fields['s'].to_s, remote: remote, delivery: delivery, number: fields['c'], milliseconds: fields['t'].to_i)
      end

      # @api private
      def initialize(message, sender, remote: nil, delivery: nil, number: nil, milliseconds: 0) # rubocop:disable Lint/MissingSuper -- shares its words only
        @message = message
        @sender = sender
        @remote = remote
        @delivery = delivery
        @number = number
        @milliseconds = milliseconds
        @answered = false
      end

      # @!method sender
      #   @return [String] the process that asks

      # Answers. The first answer counts.
      # @param value [Object] plain data
      # @return [Boolean] false if nobody waits for it any more
      # @raise [Unserialisable]
      # @raise [Unreachable]
      def reply(value = nil)
        answer('k', 'reply', value)
      end

      # Answers with an error; the asker gets a Rejected that names it. Arguments as for Kernel#raise.
      # @return [Boolean] false if nobody waits for it any more
      # @raise [TypeError] for what is no exception
      # @raise [Unreachable]
      def reject(*args, **options)
        error = FiberControl.exception(*args, **options)
        answer('k', 'reject', [error.class.name.to_s, error.message.to_s.dup.force_encoding(Encoding::UTF_8).scrub])
      end

      # @return [Boolean] whether the asker still waits, as far as one knows here
      def pending?
        !@answered && !expired?
      end

      # @api private
      def expired?
        @milliseconds.positive? && @remote.__redis_time > Integer(@delivery.id[/\A\d+/]) + @milliseconds
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{quote} from #{@sender}>"
      end

      # @api private
      def holders
        []
      end

      # @!visibility private
      def __dropped
        nil # its delivery goes back
      end

      private

      def answer(key, kind, value)
        return false if @answered

        mark, body = @remote.__codec.encode(value)
        @answered = true
        begin
          done = @remote.__link.run(:reply, @sender, key, kind, 'c', @number, 'f', mark, 'b', body)
        ensure
          @answered = !done.nil?
        end
        done == 1
      end
    end
  end
end
