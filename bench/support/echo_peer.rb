# frozen_string_literal: true

# The echo server of the echo rows with another library: ruby echo_peer.rb NAME. Prints its port.

require 'socket'

LIMIT = 8192
# Before anything else is loaded: not every library's TCPServer tells its port.
port = Addrinfo.tcp('127.0.0.1', 0).bind { |socket| socket.local_address.ip_port }
listening = -> { TCPServer.new('127.0.0.1', port) }
serving = lambda do |client|
  buffer = +''
  loop { client.write(client.readpartial(LIMIT, buffer)) }
rescue SystemCallError, EOFError
  client.close
end
say_port = lambda do |number = port|
  $stdout.puts number
  $stdout.flush
end

case ARGV.first
when 'Thread'
  server = listening.call
  say_port.call
  loop { Thread.new(server.accept, &serving) }
when 'polyphony'
  require 'polyphony'
  server = listening.call
  say_port.call
  loop do
    client = server.accept
    spin { serving.call(client) }
  end
when 'async'
  require 'async'
  server = listening.call
  say_port.call
  Async do |task|
    loop do
      client = server.accept
      task.async { serving.call(client) }
    end
  end
when 'carbon_fiber'
  require 'carbon_fiber'
  Fiber.set_scheduler(CarbonFiber::Scheduler.new)
  server = listening.call
  say_port.call
  Fiber.schedule do
    loop do
      client = server.accept
      Fiber.schedule { serving.call(client) }
    end
  end
when 'uringmachine'
  require 'uringmachine'
  machine = UringMachine.new
  server = listening.call
  say_port.call
  machine.accept_each(server.fileno) do |client|
    machine.spin do
      buffer = +''
      while (count = machine.recv(client, buffer, LIMIT, 0)).positive? do machine.send(client, buffer, count, 0) end
    rescue SystemCallError
      machine.close(client)
    end
  end
when 'eventmachine'
  require 'eventmachine'
  echo = Module.new { def receive_data(data) = send_data(data) }
  EM.run do
    EM.start_server('127.0.0.1', port, echo)
    say_port.call
  end
when 'nio4r'
  require 'nio'
  server = listening.call
  selector = NIO::Selector.new
  buffer = +''
  selector.register(server, :r).value = lambda do
    client = server.accept_nonblock(exception: false)
    next if client == :wait_readable

    monitor = selector.register(client, :r)
    monitor.value = lambda do
      data = client.read_nonblock(LIMIT, buffer, exception: false)
      if data.nil?
        monitor.close
        client.close
      elsif data != :wait_readable
        client.write_nonblock(data)
      end
    rescue SystemCallError
      monitor.close
      client.close
    end
  end
  say_port.call
  loop { selector.select { |monitor| monitor.value.call } }
end
