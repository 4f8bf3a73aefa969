# frozen_string_literal: true

# Sequel in fibers: many share a few connections, a transaction whose fiber is stopped is rolled back, and a pool
# that is exhausted says who has the connections. Needs the gems sequel and sqlite3.
#   ruby -Ilib examples/sequel.rb
require 'polyphony'
require 'tmpdir'
begin
  require 'sequel'
  require 'sqlite3'
rescue LoadError => e
  puts "skipped: #{e.message} (gem install sequel sqlite3)"
  exit
end
require 'polyphony/adapters/sequel'

Dir.mktmpdir do |folder|
  path = File.join(folder, 'shop.db')
  db = Sequel.sqlite(path, max_connections: 2, pool_timeout: 5)
  db.create_table(:orders) { primary_key :id; Integer :amount }

  20.times { |i| spin { db[:orders].insert(amount: i) } }
  Fiber.current.await_all_children
  puts "orders: #{db[:orders].count}, amount: #{db[:orders].sum(:amount)}, connections: at most #{db.pool.max_size}"

  order = spin { db.transaction { db[:orders].insert(amount: 1_000_000); sleep } }
  snooze until db.pool.holders.any?
  order.stop
  order.await
  puts "stopped: nothing was written: #{db[:orders].max(:amount) < 1_000_000}"

  hasty = Sequel.sqlite(path, max_connections: 2, pool_timeout: 0.05)
  greedy = Array.new(2) { |i| spin(:"report#{i}") { hasty.synchronize { sleep } } }
  snooze until hasty.pool.holders.size == 2
  begin
    hasty[:orders].count
  rescue Sequel::PoolTimeout => e
    puts e.message
  end
  greedy.each(&:stop)
  Fiber.await(greedy)
  puts "and now: #{hasty[:orders].count}"
  [db, hasty].each(&:disconnect)
end
