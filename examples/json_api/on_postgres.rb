# frozen_string_literal: true

require 'pg'

class Shop
  # A connection to PostgreSQL, which is opened again when it was lost.
  class OnPostgres
    # To ask the server for the names of its types takes longer than to connect: one connection does it for all.
    def self.types(connection)
      @types ||= PG::BasicTypeMapForResults.new(connection)
    end

    def initialize(url)
      @url = url
    end

    def query(sql, *values)
      connect unless @pg && !@pg.finished? && @pg.status == PG::CONNECTION_OK
      @pg.exec_params(sql, values).to_a
    end

    private

    # A fiber that is ended here leaves no connection that is half ready.
    def connect
      pg = PG.connect(@url)
      pg.type_map_for_results = OnPostgres.types(pg)
      @pg = pg
    end
  end
end
