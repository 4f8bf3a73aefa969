# frozen_string_literal: true

require 'json'

module Demo
  module Chat
    # A room is a fiber: what happens in it comes to its mailbox and happens in that order, so nothing here
    # needs a lock. Members are never waited for; see Member.
    class Room
      # Those who talk faster than the disk writes wait here, at the door.
      MAILBOX = 1_000
      RECENT = 50

      attr_reader :name, :topic, :count

      # @param news [Polyphony::Event] is signalled when the summary has changed
      def initialize(name, topic, store, news)
        @name = name
        @topic = topic
        @store = store
        @news = news
        @members = []
        @count = 0
        @recent = nil
      end

      # @param parent [Fiber] answers for the room's fiber
      def start(parent)
        @fiber = parent.spin(:"room #{@name}") { run }
        self
      end

      # The loop of the fiber. If it is restarted after an error, the members are still here.
      def run
        @fiber = Fiber.current
        @fiber.mailbox.cap(MAILBOX, policy: :wait)
        @recent ||= @store.latest(@name, limit: RECENT)
        receive_loop { |first| handle([first, *receive_all_pending]) }
      end

      # --- for the fibers of members: each leaves a message and goes on ---------------------------

      def join(member)
        @fiber << [:join, member]
      end

      def leave(member)
        @fiber << [:leave, member]
      end

      def say(member, text, nonce)
        @fiber << [:say, member, text, nonce]
      end

      def typing(member)
        @fiber << [:typing, member]
      end

      def size
        @members.size
      end

      def summary
        { name: @name, topic: @topic, online: size, count: @count }
      end

      private

      # What was said in a row is stored in one go.
      def handle(events)
        events.chunk_while { |one, next_one| one.first == :say && next_one.first == :say }.each do |chunk|
          case chunk.first
          in [:say, *] then said(chunk)
          in [:join, member] then joined(member)
          in [:leave, member] then left(member)
          in [:typing, member] then tell({ type: 'typing', room: @name, name: member.name }, but: member)
          end
        end
      end

      def joined(member)
        member.tell(type: 'room', **summary, members: @members.map(&:name), messages: @recent.map(&:to_event))
        @members << member
        @news.signal
        tell({ type: 'joined', room: @name, name: member.name })
      end

      def left(member)
        return unless @members.delete(member)

        @news.signal
        tell({ type: 'left', room: @name, name: member.name })
      end

      def said(events)
        at = Time.now.to_f.round(3)
        messages = events.map { |_, member, text, _| Store::Message.new(nil, @name, member.name, text, at) }
        @store.append(messages)
        @news.signal
        messages.zip(events) { |message, (_, member, _, nonce)| show(message, member, nonce) }
      rescue StandardError => e
        warn "demo: #{@name} could not store #{events.size} message(s): #{e.message} (#{e.class})"
        events.each { |_, member, _, nonce| member.complain('store', 'The message could not be stored.', nonce) }
      end

      def show(message, author, nonce)
        @count += 1
        @recent << message
        @recent.shift if @recent.size > RECENT
        tell(message.to_event, but: author)
        author.tell(**message.to_event, nonce: nonce) # its own page knows the message by this number
      end

      # Framed and compressed once for all of them.
      def tell(event, but: nil)
        frame = Polyphony::HTTP::WebSocket.frame(JSON.generate(event))
        @members.each { |member| member << frame unless member.equal?(but) }
      end
    end
  end
end
