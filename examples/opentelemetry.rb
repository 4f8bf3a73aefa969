# frozen_string_literal: true

# One trace through a web server: a page asks for three prices at once and leaves a message for the bookkeeper, who works on it
# later. All spans are printed as a tree; with opentelemetry-exporter-otlp in the place of the memory they go to a collector.
#   ruby -Ilib examples/opentelemetry.rb

require 'polyphony/http'
require 'net/http'
begin
  require 'opentelemetry/sdk'
  require 'polyphony/adapters/opentelemetry'
rescue LoadError
  puts 'skipped: this example needs the gem opentelemetry-sdk: gem install opentelemetry-sdk'
  exit
end

memory = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
OpenTelemetry::SDK.configure do |config|
  config.logger = Logger.new(IO::NULL)
  config.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(memory))
end
Tracing = Polyphony::OpenTelemetry.start

bookkeeper = spin(:bookkeeper) do
  receive_loop { |order| Tracing.in_span("book #{order}") { sleep 0.01 } }
end

server = Polyphony::HTTP::Server.new('http://127.0.0.1:0') do |request|
  prices = Fiber.map(%w[tea milk cake]) { |name| Tracing.in_span("price of #{name}") { sleep 0.01; name.size } }
  late = spin { Tracing.in_span('recommendations') { sleep } }
  sleep 0.01
  late.stop # nobody waits for these
  bookkeeper << request.path
  request.respond(prices.sum.to_s)
end
server.start

Tracing.in_span('a customer') { puts "to pay: #{Net::HTTP.get(URI("#{server.url}/order-17"))}" }
sleep 0.001 until memory.finished_spans.any? { |span| span.name.start_with?('book') }
server.stop
bookkeeper.stop

show = lambda do |parent, indent|
  memory.finished_spans.select { |span| span.parent_span_id == parent }.sort_by(&:start_timestamp).each do |span|
    puts "#{indent}#{span.name} (#{span.kind})#{", stopped: #{span.attributes['polyphony.stopped']}" if span.attributes.key?('polyphony.stopped')}"
    show.call(span.span_id, "#{indent}  ")
  end
end
show.call(OpenTelemetry::Trace::INVALID_SPAN_ID, '')
