# frozen_string_literal: true

# Words that come one by one, as language models send them, with two limits: one for silence, one for the whole answer. What
# has come is kept in each case. Four answers are asked for at once; three of them have a weakness.
#   ruby -Ilib examples/streaming_client.rb
require 'net/http'
require 'polyphony/http'

WORDS = %w[Many things happen at once and each has its turn].freeze
PAUSES = { '/good' => 0.005, '/endless' => 0.01 }.freeze

server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  sleep if request.path == '/silent'
  words = request.path == '/endless' ? WORDS.cycle : WORDS
  request.event_stream do |events|
    words.each_with_index do |word, i|
      sleep if request.path == '/stuck' && i == 4
      events << word && sleep(PAUSES.fetch(request.path, 0.005))
    end
    events << '[DONE]'
  end
end
server.start

# Not an IOError, after which Net::HTTP tries again.
Late = Class.new(StandardError)

# Yields each word.
def stream(url, silence: 1.5, whole: 3)
  cancel_after(whole, with_exception: [Late, "no end within #{whole} s"]) do
    cancel_after(silence, with_exception: [Late, "silent for #{silence} s"]) do |limit|
      Net::HTTP.get_response(URI(url)) do |answer|
        rest = +''
        answer.read_body do |text|
          limit.reset # it begins anew whenever something comes
          rest << text
          while (event = rest.slice!(/\A.*?\n\n/m))
            word = event[/data: (.*)/, 1]
            word == '[DONE]' ? return : yield(word)
          end
        end
      end
    end
  end
end

answers = Fiber.map(%w[/good /silent /stuck /endless]) do |path|
  words = []
  stream(server.url + path) { |word| words << word }
  "#{path}: #{words.join(' ')}."
rescue Late => e
  "#{path}: #{words.first(4).join(' ')} ... (#{e.message})"
end
puts answers
server.stop(within: 0)
