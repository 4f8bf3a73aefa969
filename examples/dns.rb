# frozen_string_literal: true

# A small name server, and stock Ruby's Resolv as its client: ten questions at once while the server takes its time for each,
# one that it never answers, and names that the system itself knows.
#   ruby -Ilib examples/dns.rb
require 'polyphony'
require 'resolv'
require 'socket'

NAMES = Hash.new { |_, name| name[/\Ahost-(\d+)\.test\z/] && "10.0.0.#{Regexp.last_match(1)}" }.freeze

$asked = $most = 0

# A fiber for each question, so that a slow one holds up nobody.
def name_server(socket)
  loop do
    packet, sender = socket.recvfrom(512)
    spin do
      $most = [$most, $asked += 1].max
      sleep 0.05
      $asked -= 1
      socket.send(reply(packet), 0, sender[3], sender[1])
    end
  end
end

def reply(packet)
  question = Resolv::DNS::Message.decode(packet)
  answer = Resolv::DNS::Message.new(question.id)
  answer.qr = 1
  question.each_question do |name, type|
    sleep if name.to_s == 'nobody.test'
    address = NAMES[name.to_s]
    answer.add_question(name, type)
    address ? answer.add_answer(name, 60, Resolv::DNS::Resource::IN::A.new(address)) : answer.rcode = Resolv::DNS::RCode::NXDomain
  end
  answer.encode
end

socket = UDPSocket.new
socket.bind('127.0.0.1', 0)
spin { name_server(socket) }

resolver = -> { Resolv::DNS.new(nameserver_port: [['127.0.0.1', socket.local_address.ip_port]], search: [], ndots: 1) }
addresses = Fiber.map(1..10) { |i| resolver.call.getaddress("host-#{i}.test").to_s }
puts "ten names: #{addresses.first} to #{addresses.last}", "asked at a time: #{$most}"

begin
  resolver.call.getaddress('unknown.test')
rescue Resolv::ResolvError => e
  puts "unknown: #{e.message}"
end
puts "no answer: #{move_on_after(0.2, with_value: 'given up') { resolver.call.getaddress('nobody.test') }}"
puts "localhost: #{Addrinfo.tcp('localhost', 80).ip_address.then { |address| %w[127.0.0.1 ::1].include?(address) }}"
