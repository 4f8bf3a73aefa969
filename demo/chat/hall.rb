# frozen_string_literal: true

module Demo
  module Chat
    # All rooms and everybody in them. The fibers of the rooms are its children, and are restarted if
    # one fails.
    class Hall
      ROOMS = {
        'lobby' => 'Come in, sit down, say hello',
        'fibers' => 'Thousands of them, one thread',
        'ruby' => 'A programmer\'s best friend',
        'random' => 'Everything else'
      }.freeze
      MOST_ROOMS = 40
      MOST_MEMBERS = 500
      NEWS = 0.25 # seconds between two lists of rooms

      attr_reader :store

      def initialize(store)
        @store = store
        @rooms = {}
        @members = {} # key of the name => Member
        @news = Polyphony::Event.new
      end

      # The loop of the fiber.
      # @yield when the rooms are open
      def run
        @fiber = Fiber.current
        @store.start(@fiber)
        ROOMS.each { |name, topic| add(name, topic) }
        (@store.rooms - ROOMS.keys).first(MOST_ROOMS - ROOMS.size).each { |name| add(name, '') }
        spin(:news) { spread_news }
        yield if block_given?
        supervise(restart: :on_error, max_restarts: 100, within: 60)
      end

      def room?(name)
        @rooms.key?(name)
      end

      # @return [Room] also one that nobody has been in
      def room(name)
        @rooms[name] || begin
          raise Rules::Broken.new('room', 'There are too many rooms already.') if @rooms.size >= MOST_ROOMS

          add(name, '').tap { @news.signal }
        end
      end

      def enter(member)
        key = Rules.key(member.name)
        other = @members[key]
        if other && other.session != member.session
          raise Rules::Broken.new('taken', "Somebody here is called #{other.name} already.")
        end
        raise Rules::Broken.new('full', 'Everybody is here already; try again later.') if @members.size >= MOST_MEMBERS

        @fiber.spin(:farewell) { other.replace } if other
        @members[key] = member
        member.tell(**list)
      end

      def leave(member)
        key = Rules.key(member.name)
        @members.delete(key) if @members[key].equal?(member)
        member.room&.leave(member)
      end

      def move(member, room)
        member.room&.leave(member)
        member.room = room
        room.join(member)
      end

      def size
        @members.size
      end

      def rooms
        @rooms.values
      end

      private

      def add(name, topic)
        @rooms[name] = Room.new(name, topic, @store, @news).start(@fiber)
      end

      def list
        { type: 'rooms', rooms: rooms.map(&:summary) }
      end

      # However much happens: to all of them, a few times a second at most.
      def spread_news
        loop do
          @news.await
          frame = Polyphony::HTTP::WebSocket.frame(JSON.generate(list))
          @members.each_value { |member| member << frame }
          sleep NEWS
        end
      end
    end
  end
end
