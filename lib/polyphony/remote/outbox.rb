# frozen_string_literal: true

module Polyphony
  class Remote
    # What this process sends, and the answers that it waits for.
    # @api private
    class Outbox
      # Seconds after which one who waits for room asks by himself.
      POLL = 1
      # How many messages that are known to have arrived are told of at once.
      ARRIVED = 100
      private_constant :POLL, :ARRIVED

      # Those who wait for room in a mailbox. One asks for all, in order of arrival.
      Line = Struct.new(:entrance, :news, :length, :capacity)
      # A question, and where its answer is waited for.
      Ask = Struct.new(:name, :answers)
      private_constant :Line, :Ask

      def initialize(remote, capacity, policy)
        @remote = remote
        @link = remote.__link
        @capacity = capacity
        @policy = policy
        @lines = {}
        @asks = {}
        @arrived = []
        @number = 0
      end

      # @raise [Full]
      # @raise [Unreachable]
      def tell(name, message, timeout)
        number = next_number
        post(name, fields('tell', message), number, timeout)
        @arrived << number
      end

      # @return [Object] the answer
      def ask(name, message, timeout)
        number = next_number
        fields = fields('ask', message, 'c', number, 't', (timeout * 1000).ceil)
        ask = @asks[number] = Ask.new(name.to_s, Queue.new.__for_ourselves)
        answer = nil
        CancelScope.move_on_after(timeout, nil) do
          post(name, fields, number, nil)
          answer = ask.answers.shift
        end
        open_answer(name, message, answer, timeout)
      ensure
        @asks.delete(number)
        if answer then @arrived << number
        elsif fields then @remote.__clerk.do { @link.run(:withdraw, name.to_s, number, within: nil) }
        end
      end

      # @param letter [Hash{String => String}] with k: reply, reject, dropped
      def answer(letter)
        ask = @asks[letter['c']]
        ask ? ask.answers << letter : @remote.__count(:late_replies)
      end

      # There may be room in the mailbox.
      def room(name)
        @lines[name]&.news&.push(true)
      end

      # Takes back what is waited for.
      # @raise [Unreachable]
      def leave(**limit)
        @lines.keys.each { |name| @link.run(:unwait, name, **limit) }
        @asks.to_a.each { |number, ask| @link.run(:withdraw, ask.name, number, **limit) }
      end

      # Nobody waits any more.
      def close
        @asks.each_value { |ask| ask.answers << { 'k' => 'closed' } }
        @lines.each_value { |line| line.news << true }
      end

      # @return [Hash{Symbol => Integer}]
      def stats
        { asking: @asks.size, waiting_for_room: @lines.each_value.sum(&:length) }
      end

      private

      def next_number
        @number += 1
        "#{@link.process}-#{@number}"
      end

      def fields(kind, message, *more)
        mark, body = @remote.__codec.encode(message)
        headers = Telemetry.__headers
        more.push('h', ::JSON.generate(headers)) if headers
        ['k', kind, 'f', mark, 'b', body, 's', @link.process, *more]
      end

      # @param name [Name]
      def post(name, fields, number, timeout)
        full = nil
        done = CancelScope.move_on_after(timeout, false) do
          full = @lines[name.to_s]&.capacity || try(name, fields, number)
          line_up(name, fields, number, full) if full
          true
        end
        return if done
        raise Full.new(name, full) if full

        raise Unreachable, @link.too_late(timeout)
      ensure
        give_up_place(name.to_s) unless done
      end

      # Also if the answer that there is no room is still on its way.
      def give_up_place(name)
        @remote.__clerk.do { @link.run(:unwait, name, within: nil) unless @lines.key?(name) }
      end

      # @return [nil, Integer] if there is no room to be had: the capacity
      # @raise [Full]
      def try(name, fields, number)
        arrived = @arrived.shift(ARRIVED)
        outcome, detail = @link.run(:send, name.to_s, number, @capacity, @policy, fields.size, *fields, *arrived)
        case outcome
        when 'wait' then return detail
        when 'full' then raise Full.new(name, detail)
        when 'dropped' then @remote.__count(:dropped)
        else @remote.__count(:sent)
        end
        nil
      end

      def line_up(name, fields, number, capacity)
        line = @lines[name.to_s] ||= Line.new(Polyphony::Mutex.new, Queue.new.__for_ourselves, 0, capacity)
        line.length += 1
        line.entrance.synchronize { wait_for_room(line, name, fields, number) }
      ensure
        line.length -= 1
        @lines.delete(name.to_s) if line.length.zero?
      end

      def wait_for_room(line, name, fields, number)
        while (capacity = try(name, fields, number))
          line.capacity = capacity
          line.news.shift(timeout: POLL)
          line.news.clear
        end
      end

      def open_answer(name, message, answer, timeout)
        question = Question.new(message, @link.process)
        case answer && answer['k']
        when 'reply' then Codec.decode(answer['f'], answer['b'])
        when 'reject' then raise Rejected.new(name.to_s, *Codec.decode(answer['f'], answer['b']))
        when 'closed' then raise Closed, "the Remote was closed while #{name.inspect} was asked #{Codec.brief(message)}"
        when nil then raise Request::Timeout.new(question, "#{name.inspect} did not answer #{Codec.brief(message)} within #{timeout} seconds")
        else raise Request::Unanswered.new(question, "#{Codec.brief(message)} was dropped from the mailbox of #{name.inspect}")
        end
      end
    end
  end
end
