# frozen_string_literal: true

require_relative 'stock'

# Customers, things and orders in a database: PostgreSQL or SQLite, behind a pool of connections.
class Shop
  Refused = Class.new(StandardError)
  Unknown = Class.new(Refused)

  # @return [Shop] with a thousand customers if it is new
  def self.open(url, connections: 10)
    require_relative url ? 'on_postgres' : 'on_sqlite'
    kind = url ? OnPostgres : OnSqlite
    new(Polyphony::ResourcePool.new(limit: connections) { kind.new(url) }).tap(&:prepare)
  end

  # @param pool [#acquire] of connections with query(sql, *values), which returns rows as hashes
  def initialize(pool)
    @pool = pool
  end

  def prepare
    Stock::TABLES.each { |sql| query(sql) }
    Stock::ROWS.each { |sql| query(sql) } if query('SELECT count(*) AS n FROM customers').first['n'].to_i.zero?
  end

  def customer(id)
    query('SELECT id, name FROM customers WHERE id = $1', id).first or raise Unknown, "there is no customer #{id}"
  end

  def orders(id)
    query('SELECT t.name, o.amount, t.price FROM orders o JOIN things t ON t.id = o.thing WHERE o.customer = $1', id)
  end

  def recommended(id)
    query('SELECT name, price FROM things WHERE price BETWEEN $1 AND $1 + 20 ORDER BY price LIMIT 5', id % 1000)
  end

  def order(id, thing: nil, amount: 1)
    raise Refused, "thing and amount must be numbers, got #{thing.inspect} and #{amount.inspect}" unless [thing, amount].all?(Integer)

    query('INSERT INTO orders VALUES ($1, $2, $3)', customer(id)['id'], thing, amount)
    { ordered: thing, amount: amount }
  end

  private

  def query(sql, *values)
    @pool.acquire { |connection| connection.query(sql, *values) }
  end
end
