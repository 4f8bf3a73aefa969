# frozen_string_literal: true

require 'fileutils'
require 'sqlite3'

module Demo
  module Chat
    # SQLite blocks its thread, so it has one of its own: all else goes on while the disk works.
    class SqliteStore
      SCHEMA = <<~SQL
        CREATE TABLE IF NOT EXISTS messages (
          id INTEGER PRIMARY KEY AUTOINCREMENT, room TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL
        );
        CREATE INDEX IF NOT EXISTS messages_of_room ON messages (room, id);
      SQL
      INSERT = 'INSERT INTO messages (room, name, text, at) VALUES (?, ?, ?, ?)'
      LATEST = 'SELECT id, room, name, text, at FROM messages WHERE room = ? AND id < ? ORDER BY id DESC LIMIT ?'
      PRUNE = <<~SQL
        DELETE FROM messages WHERE id IN (
          SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY room ORDER BY id DESC) AS age FROM messages) WHERE age > ?
        )
      SQL

      def initialize(path)
        @path = path
        @thread = Polyphony::ThreadPool.new(1)
        @thread.process { open_database }
      end

      def name
        "SQLite #{SQLite3::SQLITE_VERSION}"
      end

      def insert_all(messages)
        @thread.process do
          @database.transaction do
            messages.map do |message|
              @insert.execute(message.room, message.name, message.text, message.at)
              @database.last_insert_row_id
            end
          end
        end
      end

      def latest(room, before, limit)
        rows = @thread.process { @database.execute(LATEST, [room, before, limit]) }
        rows.reverse.map { |row| Store::Message.new(*row) }
      end

      def rooms
        @thread.process { @database.execute('SELECT DISTINCT room FROM messages ORDER BY room').flatten }
      end

      def close
        @thread.process do
          @insert.close
          @database.close
        end
        @thread.stop
      end

      private

      # With a write-ahead log readers of other processes do not wait, and a commit is one append.
      def open_database
        FileUtils.mkdir_p(File.dirname(@path)) unless @path == ':memory:'
        @database = SQLite3::Database.new(@path)
        @database.busy_timeout = 2_000
        @database.execute('PRAGMA journal_mode = WAL')
        @database.execute('PRAGMA synchronous = NORMAL')
        @database.execute_batch(SCHEMA)
        @database.execute(PRUNE, [Store::KEEP])
        @insert = @database.prepare(INSERT)
      end
    end
  end
end
