# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/app_process'
require_relative '../support/rack_client'
require 'json'
require 'net/http'

# Applications that others write, under rackup -s polyphony, in a process of their own.
class TestRackApps < Polyphony::TestCase
  on_every_driver
  time_limit 120

  def start(*command, **options)
    gemfile = options.fetch(:gemfile, 'Gemfile')
    refusal = Polyphony::AppProcess.refusal(gemfile)
    skip refusal if refusal
    @app = Polyphony::AppProcess.new(*command, **options)
    @port = @app.port
  end

  def rackup(file, *more, **options)
    gem = options.key?(:gemfile) ? 'rack' : 'rackup'
    start('-e', "load Gem.bin_path('#{gem}', 'rackup')", '--', '-s', 'polyphony', '-o', '127.0.0.1', '-p', '0', '-E', 'none',
          *more, file, **options)
  end

  def after_teardown
    @app&.stop unless @app&.status
    super
  end

  def http
    Net::HTTP.start('127.0.0.1', @port) { |http| yield http }
  end

  def get(path, headers = {})
    http { |http| http.get(path, headers) }
  end

  def post(path, body, headers = {})
    http { |http| http.post(path, body, { 'content-type' => 'application/x-www-form-urlencoded' }.merge(headers)) }
  end

  def client
    Polyphony::RackClient.new(track(TCPSocket.new('127.0.0.1', @port)))
  end

  def assert_ends(signal)
    status = @app.stop(signal)
    assert_predicate status, :success?, "#{status.inspect}\n#{@app.output}"
  end

  def test_roda
    rackup('roda.ru')
    assert_equal 'roda at /', get('/').body
    assert_equal({ 'answer' => 42 }, JSON.parse(get('/json').body))
    assert_equal 'hello you', get('/hello/you').body
    assert_equal "piece 0\npiece 1\npiece 2\n", get('/stream').body
    assert_equal 'abab', post('/form', 'name=ab').body
    assert_equal File.read("#{Polyphony::AppProcess::ROOT}/test/apps/roda.ru"), get('/roda.ru').body
    assert_equal '404', get('/nowhere').code
    assert_ends :TERM
  end

  def test_sinatra
    rackup('sinatra.ru')
    assert_equal 'sinatra at /', get('/').body
    assert_equal 'hello you', get('/hello/you').body
    assert_equal "piece 0\npiece 1\npiece 2\n", get('/stream').body
    assert_equal 'kept', get('/open').body
    assert_equal %w[418 teapot], [get('/halt').code, get('/halt').body]
    assert_equal File.binread("#{Polyphony::AppProcess::ROOT}/test/apps/sinatra.ru"), get('/file').body.b
    assert_equal %w[206 frozen], get('/file', 'range' => 'bytes=2-7').then { |answer| [answer.code, answer.body] }
    sinatra_reads_bodies
    sinatra_keeps_sessions
    assert_equal 1, Array.new(20) { spin { get('/slow').body } }.map(&:await).uniq.size
    assert_ends :INT
  end

  def sinatra_reads_bodies
    assert_equal 'abab', post('/form', 'name=ab').body
    assert_equal 'olleh', post('/raw', 'hello', 'content-type' => 'text/plain').body
    file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n#{'y' * 300_000}\r\n--x--\r\n"
    assert_equal '300000', post('/upload', file, 'content-type' => 'multipart/form-data; boundary=x').body
    chunks = "4\r\nname\r\n3\r\n=cd\r\n0\r\n\r\n"
    type = 'application/x-www-form-urlencoded'
    answer = client.request("POST /form HTTP/1.1\nHost: a\nContent-Type: #{type}\nTransfer-Encoding: chunked\n\n#{chunks}")
    assert_equal 'cdcd', answer.body
  end

  def sinatra_keeps_sessions
    first = get('/count')
    assert_equal '1', first.body
    assert_equal '2', get('/count', 'cookie' => first['set-cookie'][/\A[^;]+/]).body
  end

  # Rack::Lint, Rack::ShowExceptions and a log are between us and the application then.
  def test_rackup_in_development
    rackup('roda.ru', '-E', 'development')
    assert_equal 'roda at /', get('/').body
    assert_match(%r{"GET / HTTP/1.1" 200}, @app.output)
    assert_ends :INT
  end

  def test_a_second_signal_does_not_wait
    rackup('sinatra.ru')
    here = client
    here.send("POST /raw HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 9\n\n")
    assert_match(/100/, here.socket.gets) # the application reads
    Process.kill(:TERM, @app.pid)
    sleep 0.01 while outcome { TCPSocket.new('127.0.0.1', @port).close }.nil?
    refute_predicate @app, :ended?
    status = @app.stop(:TERM, within: 5)
    assert_predicate status, :exited?, status.inspect
  end

  def test_rackup_takes_limits_and_addresses
    rackup('mirror.ru', '-O', 'header_time=0.2', '-O', 'body=nil', '-O', 'Bind=http://127.0.0.1:0')
    assert_includes post('/u', 'x' * 17_000_000).body, '[17000000,'
    here = client
    here.socket.write("GET / HTTP/1.1\r\n")
    assert_equal 408, here.answer.status
    assert_ends :TERM
  end

  def test_applications_of_rack_2
    rackup('rack2/app.ru', gemfile: 'rack2/Gemfile')
    assert_equal 'rack 2', get('/').body
    assert_equal 'abab', post('/form', 'name=ab').body
    assert_equal %w[a=1 b=2], get('/cookies').get_fields('set-cookie')
    twice = post('/twice', 'x' * 200_000, 'content-type' => 'text/plain')
    assert_equal [400_000, %w[one two]], [twice.body.bytesize, twice.get_fields('x-lines')]
    assert_equal '[[1, 3], true, false, false, true, "HTTP/1.1"]', get('/env').body
    assert_equal 'hello', get('/hijack').body
    assert_ends :TERM
  end

  def test_the_default_of_rackup_stays_what_it_is
    refusal = Polyphony::AppProcess.refusal
    skip refusal if refusal
    code = "require 'rackup'; require 'polyphony/http'; print Rackup::Handler.default.name"
    assert_equal 'Rackup::Handler::Puma', IO.popen([Polyphony::AppProcess.env('Gemfile'), RbConfig.ruby, '-e', code], err: File::NULL, &:read)
  end
end
