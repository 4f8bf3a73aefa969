# frozen_string_literal: true

# What the store of the demo costs, for docs/decisions/065-the-demo.md:
#   bundle exec ruby -Ilib bench/demo_store.rb
# The same messages into the same table, in turns: through the store from one room and from fifty, and straight into SQLite in
# this thread. A clock of one millisecond runs beside; what it misses is how long nobody else could run.

require 'polyphony'
require 'tmpdir'
require_relative '../demo/chat/store'
require_relative '../demo/chat/sqlite_store'

MESSAGES = 5_000
ROUNDS = 5

def message(room)
  Demo::Chat::Store::Message.new(nil, "room-#{room}", 'Ann', 'hello there, how are you', Time.now.to_f)
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# @return [Array(Float, Float)] messages a second, and the part of the ticks that came
def measure
  ticks = 0
  clock = spin { every(0.001) { ticks += 1 } }
  snooze
  began = now
  yield
  seconds = now - began
  clock.stop
  clock.await
  [MESSAGES / seconds, ticks / (seconds * 1000)]
end

def through_the_store(folder, rooms)
  store = Demo::Chat::Store.open(File.join(folder, 'store.sqlite3')).start(Fiber.current)
  measure do
    Fiber.await(*(1..rooms).map { |room| spin { (MESSAGES / rooms).times { store.append([message(room)]) } } })
  end
ensure
  store.close
end

def straight(folder)
  database = SQLite3::Database.new(File.join(folder, 'straight.sqlite3'))
  database.execute('PRAGMA journal_mode = WAL')
  database.execute('PRAGMA synchronous = NORMAL')
  database.execute_batch(Demo::Chat::SqliteStore::SCHEMA)
  insert = database.prepare(Demo::Chat::SqliteStore::INSERT)
  measure { MESSAGES.times { |i| insert.execute(*message(i % 50).to_a[1..]) } }
ensure
  insert.close
  database.close
end

ways = { 'store, one room' => ->(folder) { through_the_store(folder, 1) },
         'store, fifty rooms' => ->(folder) { through_the_store(folder, 50) },
         'straight, in this thread' => ->(folder) { straight(folder) } }
results = ways.transform_values { [] }
ROUNDS.times { ways.each { |name, way| Dir.mktmpdir { |folder| results[name] << way.call(folder) } } }

puts "#{Thread.current.backend.kind}, #{RUBY_DESCRIPTION}, SQLite #{SQLite3::SQLITE_VERSION}, #{ROUNDS} rounds of #{MESSAGES}"
results.each do |name, rounds|
  rates, ticks = rounds.transpose.map(&:sort)
  puts format('%-26s %6d messages/s (%d to %d), %3d%% of the ticks (worst %d%%)', name, rates[ROUNDS / 2], rates.first,
              rates.last, ticks[ROUNDS / 2] * 100, ticks.first * 100)
end
exit
