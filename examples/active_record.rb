# frozen_string_literal: true

# Active Record in fibers: many share a few connections, a transaction whose fiber is stopped is rolled back, and a pool
# that is exhausted says who has the connections. Needs the gems activerecord and sqlite3.
#   ruby -Ilib examples/active_record.rb
require 'polyphony'
require 'tmpdir'
begin
  require 'active_record'
  require 'sqlite3'
rescue LoadError => e
  puts "skipped: #{e.message} (gem install activerecord sqlite3)"
  exit
end
require 'polyphony/adapters/active_record'

class Order < ActiveRecord::Base
end

Dir.mktmpdir do |folder|
  ActiveRecord::Base.establish_connection(adapter: 'sqlite3', database: File.join(folder, 'shop.db'), pool: 2,
                                          timeout: 5000)
  ActiveRecord::Base.with_connection { |connection| connection.create_table(:orders) { |t| t.integer :amount } }

  20.times { |i| spin { Order.create!(amount: i) } }
  Fiber.current.await_all_children
  pool = ActiveRecord::Base.connection_pool
  puts "orders: #{Order.count}, amount: #{Order.sum(:amount)}, connections: at most #{pool.size}"

  order = spin { Order.transaction { Order.create!(amount: 1_000_000); sleep } }
  snooze until pool.holders.any?
  order.stop
  order.await
  puts "stopped: nothing was written: #{Order.maximum(:amount) < 1_000_000}"

  pool.checkout_timeout = 0.05
  greedy = Array.new(2) { |i| spin(:"report#{i}") { ActiveRecord::Base.lease_connection; sleep } }
  snooze
  begin
    Order.count
  rescue ActiveRecord::ConnectionTimeoutError => e
    puts e.message
  end
  greedy.each(&:stop)
  Fiber.await(greedy)
  puts "and now: #{Order.count}"
  pool.disconnect!
end
