# frozen_string_literal: true

# Ten fibers share three connections to a MySQL or MariaDB server. A slow query is given up, and its connection goes on to serve.
#   ruby -Ilib examples/mysql.rb                (gem install mysql2)
# The server is looked for on 127.0.0.1:3306; MYSQL_SOCKET or MYSQL_HOST and MYSQL_PORT, MYSQL_USER, MYSQL_PASSWORD, MYSQL_DATABASE name another.
require 'polyphony'

begin
  require 'polyphony/adapters/mysql2'
rescue LoadError
  puts 'nothing to show: the gem mysql2 is not installed'
  exit
end

place = { host: ENV.fetch('MYSQL_HOST', '127.0.0.1'), port: ENV.fetch('MYSQL_PORT', 3306) }
place = { socket: ENV['MYSQL_SOCKET'] } if ENV.key?('MYSQL_SOCKET')
settings = { **place, username: ENV.fetch('MYSQL_USER', 'root'), password: ENV['MYSQL_PASSWORD'],
             database: ENV.fetch('MYSQL_DATABASE', 'test'), connect_timeout: 2 }
pool = Polyphony::ResourcePool.new(limit: 3) { Mysql2::Client.new(settings) }

def pool.with # broken connections do not go back
  acquire do |client|
    yield client
  ensure
    discard! if client.closed?
  end
end

begin
  pool.with(&:ping)
rescue Mysql2::Error => e
  puts "nothing to show: no server (#{e.message})"
  exit
end
began = Time.now
sums = Fiber.map(1..9) { |i| pool.with { |client| client.query("SELECT #{i} * #{i} AS sum, SLEEP(0.1)").first['sum'] } }
puts "squares: #{sums.join(' ')}, with #{pool.size} connections"
puts "nine times 0.1 s took less than 0.9 s: #{Time.now - began < 0.9}"

pool.with do |client|
  gone = move_on_after(0.1, with_value: 'given up') { client.query('SELECT SLEEP(60)') }
  puts "slow query: #{gone}, and then: #{client.query('SELECT 42 AS answer').first['answer']}"
end

pool.with do |client|
  client.query('CREATE TEMPORARY TABLE accounts (balance INT) ENGINE=InnoDB')
  transfer = spin do
    client.query('BEGIN')
    client.query('INSERT INTO accounts VALUES (100)')
    client.query('SELECT SLEEP(60)') # stopped here
  ensure
    client.query('ROLLBACK')
  end
  sleep 0.1
  transfer.stop
  transfer.await
  puts "rows after a rollback: #{client.query('SELECT COUNT(*) AS n FROM accounts').first['n']}"
end
pool.close(&:close)
