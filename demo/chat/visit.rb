# frozen_string_literal: true

require 'json'

module Demo
  module Chat
    # A WebSocket from its first message to its last: who it is, then what they want. It runs in the fiber of the
    # request, and reads as if there were nobody else.
    class Visit
      HELLO = 10          # seconds until somebody has to say who they are
      MESSAGES = [10, 2]  # at once, and a second
      SIGNS = [40, 10]    # all that is sent: typing, moving, reading the history
      OPENINGS = [3, 0.1] # of new rooms
      IDS = (1..(2**53))  # what JavaScript can count to
      PATIENCE = 30       # broken rules until the connection is closed

      def initialize(hall, socket)
        @hall = hall
        @socket = socket
        @messages = Allowance.new(*MESSAGES)
        @signs = Allowance.new(*SIGNS)
        @openings = Allowance.new(*OPENINGS)
        @broken = 0
      end

      def run
        first = move_on_after(HELLO) { @socket.receive } or return @socket.close(1008, 'nobody said hello')
        attempt { enter(parse(first)) }
        return @socket.close(1008, 'not welcome') unless @entered

        @socket.each { |text| attend(text) }
      ensure
        @hall.leave(@member) if @entered
      end

      private

      def enter(hello)
        raise Rules::Broken.new('format', 'The first message has to be hello.') unless hello['type'] == 'hello'

        @member = Member.new(@socket, Rules.name(hello['name']), Rules.session(hello['session']))
        room = find(Rules.room(hello.fetch('room', 'lobby')))
        @hall.enter(@member)
        @entered = true
        @member.tell(type: 'welcome', name: @member.name)
        @hall.move(@member, room)
      end

      def attend(text)
        attempt do
          event = parse(text)
          nonce = event['nonce'].to_s[0, 40]
          attempt(nonce) { obey(event, nonce) }
        end
        @socket.close(1008, 'too many mistakes') if @broken > PATIENCE
      end

      def obey(event, nonce)
        limit(@signs)
        case event['type']
        when 'say' then say(event, nonce)
        when 'join' then join(Rules.room(event['room']))
        when 'typing' then @member.room.typing(@member)
        when 'history' then history(event['before'])
        else raise Rules::Broken.new('format', 'That was not understood.')
        end
      end

      def say(event, nonce)
        text = Rules.text(event['text'])
        limit(@messages)
        @member.room.say(@member, text, nonce)
      end

      def join(name)
        @hall.move(@member, find(name)) unless @member.room.name == name
      end

      # One that is not there is opened.
      def find(name)
        limit(@openings) unless @hall.room?(name)
        @hall.room(name)
      end

      # Read in this fiber: the room does not wait for the disk because somebody scrolls.
      def history(before)
        raise Rules::Broken.new('format', 'That was not understood.') unless before.is_a?(Integer) && IDS.cover?(before)

        room = @member.room.name
        messages = @hall.store.latest(room, before: before)
        @member.tell(type: 'history', room: room, messages: messages.map(&:to_event))
      end

      def limit(allowance)
        return if allowance.take

        raise Rules::Broken.new('rate', "Not so fast: wait #{allowance.wait.ceil} s.")
      end

      def parse(text)
        event = JSON.parse(text, max_nesting: 3)
        return event if event.is_a?(Hash)

        raise Rules::Broken.new('format', 'That was not understood.')
      rescue JSON::ParserError
        raise Rules::Broken.new('format', 'That was not understood.')
      end

      # Whoever breaks a rule is told so.
      def attempt(nonce = nil)
        yield
      rescue Rules::Broken => e
        @broken += 1
        @socket.post(JSON.generate(type: 'error', code: e.code, text: e.message, nonce: nonce))
      end
    end
  end
end
