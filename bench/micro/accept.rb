# frozen_string_literal: true

require 'socket'

# A connection that is accepted, answered by a fiber of its own and closed. Who connects are two processes of bare Ruby.
client = "require 'socket'; Integer(ARGV[1]).times { s = TCPSocket.new('127.0.0.1', ARGV[0]); s.read; s.close }"
serve = lambda do |worker, n, &accept_all|
  port = Addrinfo.tcp('127.0.0.1', 0).bind { |socket| socket.local_address.ip_port } # not every library's TCPServer tells
  server = TCPServer.new('127.0.0.1', port)
  each = n / 2
  clients = Array.new(2) do
    Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, '--disable-gems', '-e', client, port.to_s, each.to_s)
  end
  first = server.accept
  first.write('hello')
  first.close
  figures = worker.measure_both(each * 2 - 1) { accept_all.call(server, each * 2 - 1) }
  clients.each { |pid| Process.wait(pid) }
  { rate: 1e9 / figures[:ns], cpu: figures[:cpu] }
end
answer = ->(socket) { socket.write('hello'); socket.close }

Bench.row 'accept' do
  title 'connections accepted, answered by a new fiber, closed'
  metric :rate, '1/s', better: :higher, peer: 1
  metric :cpu, 'us CPU', peer: 1
  grows 'connections'
  rounds_of 3
  no_warm_up

  limit('bare Ruby, one after the other', 8_000) do |n|
    serve.call(self, n) { |server, all| all.times { answer[server.accept] } }
  end
  fibers = ->(server, all) { Array.new(all) { socket = server.accept; spin { answer[socket] } }.each(&:await) }
  polyphony(8_000) { |n| serve.call(self, n, &fibers) }
  older(4_000) { |n| serve.call(self, n, &fibers) }
  async(8_000) do |n, task|
    serve.call(self, n) { |server, all| Array.new(all) { socket = server.accept; task.async { answer[socket] } }.each(&:wait) }
  end
  beside('Thread', 8_000) do |n|
    serve.call(self, n) { |server, all| Array.new(all) { socket = server.accept; Thread.new { answer[socket] } }.each(&:join) }
  end
end
