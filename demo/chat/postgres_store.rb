# frozen_string_literal: true

require 'pg'

module Demo
  module Chat
    # PostgreSQL waits on a socket, which stops one fiber only: no threads are needed, just some connections.
    class PostgresStore
      SCHEMA = <<~SQL
        CREATE TABLE IF NOT EXISTS polyphony_demo_messages (
          id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          room TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL
        );
        CREATE INDEX IF NOT EXISTS polyphony_demo_messages_of_room ON polyphony_demo_messages (room, id);
      SQL
      LATEST = <<~SQL
        SELECT id, room, name, text, at FROM polyphony_demo_messages WHERE room = $1 AND id < $2 ORDER BY id DESC LIMIT $3
      SQL
      PRUNE = <<~SQL
        DELETE FROM polyphony_demo_messages WHERE id IN (
          SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY room ORDER BY id DESC) AS age FROM polyphony_demo_messages
          ) AS aged WHERE age > $1
        )
      SQL
      CONNECTIONS = 4

      def initialize(url)
        @connections = Polyphony::ResourcePool.new(limit: CONNECTIONS) { connect(url) }
        @connections.acquire do |connection|
          connection.exec(SCHEMA)
          connection.exec_params(PRUNE, [Store::KEEP])
          @version = connection.server_version / 10_000
        end
      end

      def name
        "PostgreSQL #{@version}"
      end

      # One statement for the whole batch; the rows come back in the order in which they were given.
      def insert_all(messages)
        places = messages.each_index.map { |i| "($#{(4 * i) + 1}, $#{(4 * i) + 2}, $#{(4 * i) + 3}, $#{(4 * i) + 4}::float8)" }
        values = messages.flat_map { |message| [message.room, message.name, message.text, message.at] }
        sql = "INSERT INTO polyphony_demo_messages (room, name, text, at) VALUES #{places.join(', ')} RETURNING id"
        query(sql, values).column_values(0).map { |id| Integer(id, 10) }
      end

      def latest(room, before, limit)
        query(LATEST, [room, before, limit]).values.reverse.map do |id, *texts, at|
          Store::Message.new(Integer(id, 10), *texts, Float(at))
        end
      end

      def rooms
        query('SELECT DISTINCT room FROM polyphony_demo_messages ORDER BY room').column_values(0)
      end

      def close
        @connections.close(&:close)
      end

      private

      def connect(url)
        PG.connect(url, client_encoding: 'UTF8').tap do |connection|
          connection.set_notice_receiver { |_notice| nil } # "exists already, skipping"
        end
      end

      # A connection that broke is replaced by the next who asks.
      def query(sql, values = [])
        @connections.acquire do |connection|
          connection.exec_params(sql, values)
        rescue PG::ConnectionBad, PG::UnableToSend
          @connections.discard!.close
          raise
        end
      end
    end
  end
end
