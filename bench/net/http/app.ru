# frozen_string_literal: true

# The application that every server of the benchmark runs.

text = { 'content-type' => 'text/plain' }
hello = 'Hello, world!'
big = ('0123456789abcdef' * 65_536).freeze # 1 MiB

database = lambda do
  require 'sqlite3'
  require 'json'
  SQLite3::Database.new(ENV.fetch('BENCH_DATABASE')).tap(&:itself)
end
databases = Hash.new { |known, thread| known[thread] = database.call }

# WebSocket, as Iodine offers it.
echo = Class.new { def on_message(client, message) = client.write(message) }.new

run(lambda do |env|
  case env['PATH_INFO']
  when '/'
    [200, text.dup, [hello]]
  when '/big'
    [200, text.dup, [big]]
  when '/upload'
    size = 0
    while (piece = env['rack.input'].read(65_536))
      size += piece.bytesize
    end
    [200, text.dup, [size.to_s]]
  when '/json'
    rows = databases[Thread.current].execute('SELECT id, name, price FROM things ORDER BY price LIMIT 20')
    [200, { 'content-type' => 'application/json' }, [JSON.generate(rows)]]
  when '/echo'
    if env['rack.upgrade?'] then env['rack.upgrade'] = echo
    else env['polyphony.request'].upgrade_to_websocket { |socket| socket.each { |message| socket << message } }
    end
    [101, {}, []]
  else
    [404, text.dup, ['not here']]
  end
end)
