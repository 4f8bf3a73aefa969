# frozen_string_literal: true

module Demo
  module Chat
    # Messages on disk. A database brings +insert_all+, +latest+, +rooms+ and +close+; what is here is the same
    # for all: one fiber writes, and takes whatever has come together meanwhile into one transaction.
    # A room that waits for its message to be safe costs the other rooms nothing.
    class Store
      # A message that is stored has an id, and they grow.
      Message = Struct.new(:id, :room, :name, :text, :at) do
        def to_event
          { type: 'message', id: id, room: room, name: name, text: text, at: at }
        end
      end

      PAGE = 50
      KEEP = 5_000 # messages a room

      # There is no database, or none that can be used.
      class Unavailable < StandardError; end

      # @param place [String] a URL of PostgreSQL, or a file
      def self.open(place)
        postgres = place.match?(/\Apostgres(?:ql)?:/)
        require_relative(postgres ? 'postgres_store' : 'sqlite_store')
        new((postgres ? PostgresStore : SqliteStore).new(place))
      rescue StandardError, LoadError => e
        place = 'PostgreSQL' if postgres # the URL may have a password
        raise Unavailable, "#{place} cannot be used: #{e.message.lines.first.chomp}"
      end

      attr_reader :written, :batches

      def initialize(database)
        @database = database
        @written = 0
        @batches = 0
      end

      def name
        @database.name
      end

      # @param parent [Fiber] answers for the fiber that writes
      def start(parent)
        @writer = parent.spin(:store) { run }
        self
      end

      # The loop of that fiber.
      def run
        @writer = Fiber.current
        receive_loop { |first| write([first, *receive_all_pending]) }
      end

      # Waits until the messages are stored.
      # @return [Array<Message>] with their ids
      def append(messages)
        @writer.ask(messages)
      end

      # @return [Array<Message>] the last ones before an id, oldest first
      def latest(room, before: nil, limit: PAGE)
        @database.latest(room, before || (2**62), limit)
      end

      # @return [Array<String>] rooms that somebody has written in
      def rooms
        @database.rooms
      end

      def close
        @database.close
      end

      private

      def write(requests)
        messages = requests.flat_map(&:message)
        ids = @database.insert_all(messages)
        messages.zip(ids) { |message, id| message.id = id }
        @batches += 1
        @written += messages.size
        requests.each { |request| request.reply(request.message) }
      rescue StandardError => e
        requests.each { |request| request.reject(e) } # each room tells those who have spoken
      end
    end
  end
end
