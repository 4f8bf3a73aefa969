# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/app_process'
require_relative '../support/rack_client'
require 'fileutils'
require 'json'
require 'net/http'
require 'open3'
require 'tmpdir'

# A small application of Rails under `rails server -u polyphony`, in a process of its own: test/apps/rails.
class TestRails < Polyphony::TestCase
  on_every_driver
  time_limit 120

  PYTHON = '/usr/bin/python3'

  def start(environment, *command, env: {})
    refusal = Polyphony::AppProcess.refusal
    skip refusal if refusal
    @dir = Dir.mktmpdir # Rails makes folders in its own
    FileUtils.cp_r("#{Polyphony::AppProcess::ROOT}/test/apps/rails/.", @dir)
    Dir["#{@dir}/**/*.rb"].each { |file| File.utime(Time.now, Time.now - 60, file) } # so that a change is seen
    command = ['bin/rails', 'server', '-u', 'polyphony', '-b', '127.0.0.1', '-p', '0', '-e', environment] if command.empty?
    @app = Polyphony::AppProcess.new(*command, dir: @dir, env: env, said: %r{listen\S* +(?:at )?https?://127\.0\.0\.1:(\d+)})
    @port = @app.port
  end

  def after_teardown
    @app&.stop unless @app&.status
    FileUtils.rm_rf([@dir, *@others].compact)
    super
  end

  def http
    Net::HTTP.start('127.0.0.1', @port) { |http| yield http }
  end

  def get(path, headers = {})
    http { |http| http.get(path, headers) }
  end

  # One process for all of it: Rails takes long to start.
  def test_rails_in_production
    start('production')
    assert_match(/isolation level of Active Support is :fiber now/, @app.output)
    pages
    files_and_errors
    api
    streamed_pages
    live_streams
    requests_beside_each_other
    action_cable
    status = @app.stop(:TERM)
    assert_predicate status, :success?, "#{status.inspect}\n#{@app.output}"
    refute_match(/error in/, @app.output)
  end

  def test_rails_in_development_reloads
    start('development', env: { 'ISOLATION' => 'fiber' })
    refute_match(/isolation level/, @app.output)
    assert_equal '<h1>Hello you</h1>', get('/').body[/<h1>.*<.h1>/]
    file = "#{@dir}/app/controllers/pages_controller.rb"
    File.write(file, File.read(file).sub("'you'", "'reloaded'"))
    assert_equal '<h1>Hello reloaded</h1>', get('/').body[/<h1>.*<.h1>/]
    assert_match(/Booting Polyphony/, @app.output)
    status = @app.stop(:INT)
    assert_predicate status, :success?, "#{status.inspect}\n#{@app.output}"
  end

  # The sockets that Action Cable gets are not those of its clients then.
  def test_action_cable_behind_tls
    start('production', "#{Polyphony::AppProcess::ROOT}/exe/polyphony", 'serve', '-b', 'https://127.0.0.1:0', '--tls', 'self-signed',
          '-e', 'production', env: { 'RAILS_ENV' => 'production', 'XDG_STATE_HOME' => Dir.mktmpdir.tap { |dir| (@others ||= []) << dir } })
    action_cable('wss')
    http2 = ['curl', '-skS', '--http2', '-w', '%{http_version}', '-o', File::NULL, "https://127.0.0.1:#{@port}/live"]
    assert_equal '2', Open3.capture2(*http2).first
    assert_predicate @app.stop(:TERM), :success?, @app.output
  end

  private

  def pages
    page = get('/?name=Ann')
    assert_equal ['200', '<h1>Hello Ann</h1>'], [page.code, page.body[/<h1>.*<.h1>/]]
    assert_equal %w[other=too seen=yes], page.get_fields('set-cookie').map { |cookie| cookie[/\A[^;]+/] }.sort
    assert_equal '304', get('/?name=Ann', 'if-none-match' => page['etag']).code
    head = http { |http| http.head('/') }
    assert_equal ['200', nil], [head.code, head.body]
  end

  def files_and_errors
    assert_equal File.read("#{@dir}/app/controllers/pages_controller.rb"), get('/file').body
    error = get('/boom')
    assert_equal '500', error.code
    refute_match(/secret/, error.body)
    assert_equal '404', get('/nowhere').code
  end

  def api
    assert_equal 'x', JSON.parse(get('/api/hello?name=x').body)['hello']
    body = '{"a":"1","b":["2"]}'
    echo = http { |http| http.post('/api/echo', body, 'content-type' => 'application/json') }
    assert_equal [{ 'a' => '1', 'b' => ['2'] }, body], JSON.parse(echo.body).values_at('params', 'raw')
    file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n#{'y' * 300_000}\r\n--x--\r\n"
    upload = http { |http| http.post('/api/upload', file, 'content-type' => 'multipart/form-data; boundary=x') }
    assert_equal '300000', upload.body
    out, status = Open3.capture2('curl', '-sS', '-H', 'transfer-encoding: chunked', '-H', 'content-type: application/json',
                                 '-d', body, "http://127.0.0.1:#{@port}/api/echo")
    assert_predicate status, :success?
    assert_equal body, JSON.parse(out)['raw']
  end

  # Rails makes the chunks of these itself.
  def streamed_pages
    page = get('/streamed')
    assert_equal ['chunked', '<h1>Hello stream</h1>'], [page['transfer-encoding'], page.body[/<h1>.*<.h1>/]]
    refute_match(/\r\n/, page.body)
  end

  # The pieces come while the action runs, in a thread of its own.
  def live_streams
    times = []
    text = +''
    http do |http|
      http.request_get('/live') do |answer|
        answer.read_body do |piece|
          times << clock
          text << piece
        end
      end
    end
    assert_equal [0, 1, 2], text.scan(/data: (.*)/).map { |json,| JSON.parse(json)['number'] }
    assert_operator times.last - times.first, :>=, 0.04
  end

  # All of them are inside at the same time, in one thread, and none sees what belongs to another.
  def requests_beside_each_other
    answers = Array.new(20) { |i| spin { JSON.parse(get("/api/who?name=n#{i}&together=20").body) } }.map(&:await)
    assert_equal(Array.new(20) { |i| ["n#{i}", "n#{i}"] }, answers.map { |name, local, _| [name, local] })
    assert_equal 1, answers.map(&:last).uniq.size
  end

  def action_cable(scheme = 'ws')
    return unless File.executable?(PYTHON) && system(PYTHON, '-c', 'import websockets', err: File::NULL)

    script = "#{Polyphony::AppProcess::ROOT}/test/support/cable_client.py"
    out, err, status = Open3.capture3(PYTHON, script, "#{scheme}://127.0.0.1:#{@port}/cable")
    assert_predicate status, :success?, "#{err}\n#{@app.output}"
    assert_equal [*['actioncable-v1-json HELLO 5'] * 2, *['actioncable-v1-json XXXXX 300000'] * 2], out.lines(chomp: true)
  end
end
