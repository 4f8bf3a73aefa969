# frozen_string_literal: true

# PostgreSQL: twenty fibers at once on three connections, one of them too slow; a transfer that is cancelled half-way; news from another
# fiber. Needs the gem pg and a server; makes temporary tables only.
#   DATABASE_URL=postgresql://localhost/test ruby -Ilib examples/postgres.rb

require 'polyphony'
begin
  require 'polyphony/adapters/pg'
rescue LoadError => e
  puts "skipped: #{e.message} (gem install pg)"
  exit
end

pool = Polyphony::Adapters::PG::Pool.new(limit: 3) { PG.connect(ENV.fetch('DATABASE_URL', '')) }
begin
  pool.exec('select 1')
rescue PG::ConnectionBad => e
  puts "skipped: no PostgreSQL: #{e.message.lines.first.chomp}"
  exit
end

squares = Fiber.map(1..20) { |n| pool.exec_params('select $1::int * $1::int', [n]).getvalue(0, 0).to_i }
puts "squares: #{squares.last(3).join(' ')}, connections: #{pool.size}"

slow = move_on_after(0.05, with_value: :given_up) { pool.exec('select pg_sleep(60)') }
puts "slow: #{slow}, and then: #{pool.exec("select 'at once'").getvalue(0, 0)}"

# The fiber is stopped between two statements; nothing of it remains.
pool.acquire do |connection|
  connection.exec("create temp table accounts as select * from (values ('ann', 10), ('bob', 0)) as a(name, money)")
  transfer = spin do
    connection.transaction do
      connection.exec("update accounts set money = money - 5 where name = 'ann'")
      sleep
    end
  end
  sleep 0.05
  transfer.stop
  transfer.await
  puts "accounts: #{connection.exec('select name, money from accounts order by name').values.join(' ')}"
end

listener = spin do
  pool.acquire do |connection|
    connection.exec('listen polyphony_example')
    Fiber.current.parent << :listening
    connection.wait_for_notify(5) { |_channel, _pid, news| puts "heard: #{news}" }
    connection.exec('unlisten *')
  end
end
receive
pool.exec("notify polyphony_example, 'tea is ready'")
listener.await
pool.close
