# frozen_string_literal: true

# SQLite beside other fibers: a long statement lets them run and can be ended, writers wait for each other's locks,
# and a transaction that is cut short leaves nothing behind.
#   ruby -Ilib examples/sqlite.rb
require 'polyphony'
require 'tmpdir'
begin
  require 'polyphony/adapters/sqlite3'
rescue LoadError
  puts 'this example needs the gem sqlite3: gem install sqlite3'
  exit
end

LONG = 'with recursive c (x) as (select 1 union all select x + 1 from c where x < %d) select count(*) from c'

Dir.mktmpdir do |folder|
  path = File.join(folder, 'shop.db')
  db = SQLite3::Database.new(path)
  db.execute_batch('pragma journal_mode = wal; create table orders (id integer primary key, item text)')

  turns = 0
  other = spin(:other) { loop { turns += 1; snooze } }
  counted = db.get_first_value(format(LONG, 300_000))
  other.stop
  puts "counted #{counted}, others ran meanwhile: #{turns > 5}"

  given_up = move_on_after(0.05, with_value: 'given up') { db.get_first_value(format(LONG, 1_000_000_000)) }
  puts "with a limit: #{given_up}"

  # Each has a connection of its own. The one whose turn it is has the file locked for writing; the others wait.
  writers = Array.new(5) do |i|
    spin do
      connection = SQLite3::Database.new(path)
      4.times { |n| connection.transaction(:immediate) { connection.execute('insert into orders (item) values (?)', ["#{i}.#{n}"]); snooze } }
    ensure
      connection&.close
    end
  end
  Fiber.await(writers)
  puts "orders: #{db.get_first_value('select count(*) from orders')}"

  clerk = spin do
    db.transaction do
      db.execute('delete from orders')
      sleep # interrupted here
    end
  end
  snooze
  clerk.stop
  clerk.await
  puts "after a delete that was cut short: #{db.get_first_value('select count(*) from orders')}"
  db.close
end
