# frozen_string_literal: true

# A JSON API with a database and a cache, on the web server:
#
#   polyphony serve examples/json_api/config.ru
#   curl http://127.0.0.1:9292/customers/7
#   curl -d '{"thing": 3, "amount": 2}' http://127.0.0.1:9292/customers/7/orders
#
# DATABASE_URL=postgresql://…   PostgreSQL; SQLite in a temporary file without it
# REDIS_URL=redis://…           a cache in Redis; none without it

require 'polyphony/adapters/auto'
require_relative 'shop'
require_relative 'api'

run Api.new(Shop.open(ENV['DATABASE_URL']), Cache.open(ENV['REDIS_URL']))
