# frozen_string_literal: true

# A handler for `polyphony serve`: cd examples/serve && polyphony serve app.rb --config config.rb
# Try it with: curl -i http://127.0.0.1:8080/; curl http://127.0.0.1:8080/metrics; kill -USR2 PID

run do |request|
  case request.path
  when '/' then request.respond("Hello from process #{Process.pid}\n", 'content-type' => 'text/plain')
  when '/slow'
    sleep 2 # others are served meanwhile
    request.respond("That took its time\n", 'content-type' => 'text/plain')
  else request.respond("Not here\n", { 'content-type' => 'text/plain' }, status: 404)
  end
end
