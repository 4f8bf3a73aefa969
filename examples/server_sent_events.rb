# frozen_string_literal: true

# News for three readers, one of whom loses its connection and comes back: it says the last number that it has got, and
# hears what it has missed.
#   ruby -Ilib examples/server_sent_events.rb
require 'net/http'
require 'polyphony/http'

# Keeps what was said, and tells whoever waits that there is more.
class News
  def initialize
    @items = []
    @readers = Polyphony::WaitList.new
  end

  def <<(text)
    @items << text
    @readers.wake_all
  end

  # All items after that number, and those to come.
  def each_after(number)
    loop do
      @readers.park while number >= @items.size
      yield @items[number], number += 1
    end
  end
end

news = News.new
server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  request.event_stream { |events| news.each_after(events.last_id.to_i) { |text, id| events.send(text, id: id) } }
end
server.start

# What EventSource does in a browser, until that many have come.
def listen(port, count, last_id = nil)
  heard = +''
  Net::HTTP.start('127.0.0.1', port) do |http|
    http.request_get('/', last_id ? { 'Last-Event-ID' => last_id } : {}) do |answer|
      answer.read_body do |text|
        heard << text
        return heard.scan(/^data: (.*)/).flatten, heard.scan(/^id: (.*)/).last[0] if heard.scan(/\n\n/).size >= count
      end
    end
  end
end

steady = Array.new(2) { spin { listen(server.port, 4).first } }
fickle = spin { listen(server.port, 2) }
news << 'sun'
news << 'rain'
heard, last_id = fickle.await
puts "fickle heard #{heard.join(', ')} up to number #{last_id}"
news << 'wind'
news << 'snow'
puts "later it heard #{listen(server.port, 2, last_id).first.join(', ')}"
steady.each { |reader| puts "a steady one heard #{reader.await.join(', ')}" }
server.stop(within: 0)
