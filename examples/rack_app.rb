# frozen_string_literal: true

# A Rack application on the web server: answers in one go, as a stream that reads and writes, and twenty slow ones
# at a time in one thread. The gem rack is not needed for it.
#   ruby -Ilib examples/rack_app.rb
require 'net/http'
require 'polyphony/http'

waiting = 0
most = 0

app = lambda do |env|
  case env['PATH_INFO']
  when '/slow'
    most = [most, waiting += 1].max
    sleep 0.1
    waiting -= 1
    [200, { 'content-type' => 'text/plain' }, ["#{env['QUERY_STRING']} "]]
  when '/shout' # a streaming body: each piece is answered when it has come
    [200, { 'content-type' => 'text/plain' }, lambda do |stream|
      while (piece = stream.read(5))
        stream << piece.upcase
      end
      stream.close
    end]
  else
    [200, { 'content-type' => 'text/plain' }, ["Hello from #{env['PATH_INFO']}\n"]]
  end
end

server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', app: Polyphony::HTTP::RackHandler.new(app)).start
uri = URI(server.url)

puts Net::HTTP.get(uri + '/there')
puts Net::HTTP.start(uri.host, uri.port) { |http| http.post('/shout', 'louder please', 'content-type' => 'text/plain').body }
puts Array.new(20) { |i| spin { Net::HTTP.get(uri + "/slow?#{i}") } }.map(&:await).join
puts "most at a time: #{most}"

server.stop
