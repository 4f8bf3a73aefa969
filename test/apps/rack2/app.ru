# frozen_string_literal: true

# What was usual with Rack 2: names in mixed case, several cookies in one String, an input that is read twice,
# a socket in the header rack.hijack.
require 'rack/lint'
require 'sinatra/base'

class OldApp < Sinatra::Base
  set :environment, :production
  set :logging, false

  get('/') { "rack #{Rack.release[/\A\d+/]}" }
  get('/cookies') { response.set_cookie('a', '1'); response.set_cookie('b', '2'); 'cookies' }
  post('/form') { params['name'].to_s * 2 }
end

twice = lambda do |env|
  input = env['rack.input']
  first = input.read
  input.rewind
  [200, { 'Content-Type' => 'text/plain', 'X-Lines' => "one\ntwo" }, [first, input.read]]
end

env_page = lambda do |env|
  keys = %w[rack.version rack.multithread rack.multiprocess rack.run_once rack.hijack? SERVER_PROTOCOL]
  [200, { 'Content-Type' => 'text/plain' }, [env.values_at(*keys).inspect]]
end

hijack = lambda do |_env|
  write = lambda do |io|
    io.write("5\r\nhello\r\n0\r\n\r\n")
    io.close
  end
  [200, { 'Content-Type' => 'text/plain', 'Transfer-Encoding' => 'chunked', 'rack.hijack' => write }, []]
end

map('/twice') { use Rack::Lint; run twice }
map('/env') { use Rack::Lint; run env_page }
map('/hijack') { run hijack }
map('/') { run OldApp }
