# frozen_string_literal: true

# HTTP/2: twenty requests on one connection, each answered in a fiber of its own, the first one last, since it waits for all others;
# trailers behind an answer. The client is nghttp.
#   ruby -Ilib examples/http2.rb
require 'open3'
require 'polyphony/http'

peers = Hash.new(0)
$order = []
server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  number = request.path[/\d+/].to_i
  peers[request.peer] += 1
  snooze until number != 1 || $order.size == 19
  $order << number
  request.send_headers('content-type' => 'text/plain')
  request.send_chunk("#{request.version} answer #{number}\n")
  request.finish(trailers: { 'x-number' => number.to_s })
end
server.start

# Without TLS a client has to know that the server speaks it; with TLS they agree on it (ALPN).
begin
  out, status = Open3.capture2('nghttp', *(1..20).map { |number| "#{server.url}/#{number}" })
  puts "answers: #{out.scan(/answer (\d+)/).flatten.map(&:to_i).sort == (1..20).to_a}, version #{out.lines.first.split.first}"
  puts "connections: #{peers.size}", "last: #{$order.last}", "nghttp: #{status.exitstatus}"
rescue Errno::ENOENT
  puts 'skipped: there is no nghttp, of the package nghttp2-client'
end
server.stop(within: 0)
