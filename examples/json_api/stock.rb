# frozen_string_literal: true

# What a new shop begins with: tables, and a thousand customers, things and orders.
module Stock
  TABLES = [
    'CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT)',
    'CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)',
    'CREATE TABLE IF NOT EXISTS orders (customer INTEGER, thing INTEGER, amount INTEGER)',
    'CREATE INDEX IF NOT EXISTS orders_of_customer ON orders (customer)'
  ].freeze

  def self.rows(&block)
    (1..1000).map(&block).join(',')
  end

  ROWS = [
    "INSERT INTO customers VALUES #{rows { |id| "(#{id}, 'customer #{id}')" }}",
    "INSERT INTO things VALUES #{rows { |id| "(#{id}, 'thing #{id}', #{id * 7919 % 1000})" }}",
    "INSERT INTO orders VALUES #{rows { |id| "(#{id}, #{id * 31 % 1000 + 1}, 1)" }}"
  ].freeze
end
