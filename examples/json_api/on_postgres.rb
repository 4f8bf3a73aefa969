# frozen_string_literal: true

require 'pg'

class Shop
  # A connection to PostgreSQL, which is opened again when it was lost.
  class OnPostgres
    def initialize(url)
      @url = url
    end

    def query(sql, *values)
      connect unless @pg && !@pg.finished? && @pg.status == PG::CONNECTION_OK
      @pg.exec_params(sql, values).to_a
    end

    private

    def connect
      @pg = PG.connect(@url)
      @pg.type_map_for_results = PG::BasicTypeMapForResults.new(@pg)
    end
  end
end
