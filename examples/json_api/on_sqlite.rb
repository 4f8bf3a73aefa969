# frozen_string_literal: true

require 'fileutils'
require 'sqlite3'
require 'tmpdir'

class Shop
  # A connection to a file that is gone when the program ends.
  class OnSqlite
    FOLDER = Dir.mktmpdir('shop').tap { |folder| at_exit { FileUtils.rm_rf(folder) } }

    def initialize(_url)
      @database = SQLite3::Database.new(File.join(FOLDER, 'shop.db'), results_as_hash: true)
      @database.busy_timeout = 5000
      @database.execute('PRAGMA journal_mode = WAL')
    end

    # What PostgreSQL calls $1 is ?1 here.
    def query(sql, *values)
      @database.execute(sql.tr('$', '?'), values)
    end
  end
end
