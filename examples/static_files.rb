# frozen_string_literal: true

# Serves a folder, and tells web pages what happens, in one server; the client is stock Net::HTTP.
#   ruby -Ilib examples/static_files.rb
require 'net/http'
require 'polyphony/http'
require 'tmpdir'
require 'zlib'

folder = Dir.mktmpdir
File.write("#{folder}/index.html", '<h1>Hello</h1>')
File.write("#{folder}/numbers.txt", (1..10_000).to_a.join(' '))
Zlib::GzipWriter.open("#{folder}/numbers.txt.gz") { |gz| gz.write(File.read("#{folder}/numbers.txt")) }

files = Polyphony::HTTP::Static.new(folder, cache_control: 'max-age=60')
server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  if request.path == '/ticks'
    request.event_stream { |events| 3.times { |i| events.send("tick #{i}", id: i) && sleep(0.01) } }
  else
    files.call(request)
  end
end
server.start

Net::HTTP.start('127.0.0.1', server.port) do |http|
  get = ->(path, headers = {}) { http.get(path, { 'accept-encoding' => 'identity' }.merge(headers)) }
  page = get.('/')
  puts "#{page.code} #{page['content-type']}: #{page.body}"
  puts "again: #{get.('/', 'if-none-match' => page['etag']).code}"
  part = get.('/numbers.txt', 'range' => 'bytes=-5')
  puts "a part: #{part.code} #{part['content-range']}: #{part.body}"
  packed = get.('/numbers.txt', 'accept-encoding' => 'gzip')
  puts "compressed: #{packed['content-length']} of #{Zlib.gunzip(packed.body).bytesize} bytes"
  puts "a way out: #{get.('/%2e%2e/etc/passwd').code}"
  puts get.('/ticks').body.scan(/data: (.*)/).join(', ')
end
server.stop
FileUtils.rm_r(folder)
