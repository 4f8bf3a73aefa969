# frozen_string_literal: true

module Polyphony
  class Remote
    # Waits for everything that comes for this process: its inbox, and the mailboxes in which there is room. The only one that waits on
    # the server, on a connection of its own. Whoever wants it to look again sends it something: it is not cancelled, since
    # what is on its way then would have to be found again.
    # @api private
    class Reader
      # Seconds that a read waits on the server. A connection that is dead without a word is noticed after it.
      WAIT = 5
      GROUP = 'polyphony'
      # How long others wait for the next round.
      PATIENCE = 1
      # How many letters are read at once, if no mailbox sets a limit.
      LETTERS = 100
      private_constant :WAIT, :GROUP, :PATIENCE, :LETTERS

      def initialize(remote)
        @remote = remote
        @link = remote.__link
        @waiting = WaitList.new(self, 'the next round of a reader')
        @round = 0
        @behind = @stopping = false
      end

      def run
        @client = @link.new_client
        failures = 0
        until @stopping
          failures = attempt { round } ? 0 : failures + 1
          sleep Link::BACKOFF.delay(failures - 1) if failures.positive? && !@stopping
        end
      ensure
        @stopped = true
        @waiting.wake_all
        @client&.close
      end

      # Ends after the present round.
      def finish
        @stopping = true
      end

      # Waits until what it reads is what should be read now.
      def settle
        return if @stopped || @stopping

        before = @round
        @link.run(:reply, @link.process, 'k', 'wake', within: nil)
        limit = Clock.now + PATIENCE
        @waiting.park(PATIENCE) while @round == before && !@stopped && Clock.now < limit
      end

      private

      # @return [Boolean] whether it went well
      def attempt
        yield
        true
      rescue ::RedisClient::ConnectionError, Unreachable
        lose_touch
        false
      rescue ::RedisClient::CommandError => e
        raise unless e.message.match?(/\A(NOGROUP|UNBLOCKED)/) || @link.later?(e)

        lose_touch
        @forgotten = true
        false
      end

      def lose_touch
        @client.close
        @link.unsteady
        @behind = true
        @remote.__count(:reconnects)
      end

      def round
        catch_up if @behind
        subscriptions = @remote.__subscriptions.select(&:hungry?)
        @round += 1
        @waiting.wake_all
        read(subscriptions) unless @stopping
      end

      def catch_up
        @forgotten ? @remote.__rejoin(reading: false) : @remote.__sync(reading: false)
        @behind = @forgotten = false
      end

      def read(subscriptions)
        by_key = subscriptions.to_h { |subscription| [subscription.key, subscription] }
        keys = ["#{@link.prefix}inbox:#{@link.process}", *by_key.keys]
        found = @client.blocking_call(WAIT + @client.read_timeout, 'XREADGROUP', 'GROUP', GROUP, @link.process,
                                      'COUNT', (subscriptions.map(&:room) << LETTERS).min, 'BLOCK', WAIT * 1000,
                                      'STREAMS', *keys, *(['>'] * keys.size))
        found&.each { |key, entries| deliver(by_key[key], entries) }
      end

      # What was deleted meanwhile has no fields.
      def deliver(subscription, entries)
        entries.each do |id, fields|
          if subscription then fields && subscription.deliver(id, 1, fields)
          else @remote.__letter(id, (fields || []).each_slice(2).to_h)
          end
        end
      end
    end
  end
end
