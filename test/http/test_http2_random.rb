# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/http2_client'
require 'polyphony/http'
require 'stringio'

# Random conversations: requests of all kinds, cancelled or not, windows that open late, clients that leave. What is answered
# is right, and afterwards nothing is left. The seed is in the message of a failure.
class TestHTTP2Random < Polyphony::TestCase
  on_every_driver
  time_limit 60

  ROUNDS = 25
  KINDS = %w[/plain /large /pieces /echo /ignore /slow /fail /late].freeze

  def setup
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    super
    @log = StringIO.new
    limits = { h2_resets: 10_000, h2_stall: 20, body_grace: 20 }
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: @log, limits: limits) { |request| answer(request) }.start
  end

  def teardown
    @server&.stop(within: 0)
    super
  end

  def answer(request)
    case request.path
    when '/large' then request.respond('l' * 200_000)
    when '/pieces' then 20.times { |i| request.send_chunk(i.to_s * 5_000) }
    when '/echo' then request.respond(request.read)
    when '/slow' then sleep(0.002) and request.respond('slow')
    when '/late' then request.send_headers and sleep(0.002) and request.send_chunk('late')
    when '/fail' then raise 'as it should'
    else request.respond('plain')
    end
  end

  EXPECTED = { '/plain' => 'plain', '/large' => 'l' * 200_000, '/pieces' => (0...20).map { |i| i.to_s * 5_000 }.join,
               '/ignore' => 'plain', '/slow' => 'slow', '/late' => 'late', '/fail' => "Internal Server Error\n" }.freeze

  def test_conversations
    heavy
    seed = Integer(ENV['SEED'] || Random.new_seed % 100_000)
    ROUNDS.times do |round|
      random = Random.new(seed + round)
      converse(random, "SEED=#{seed}, round #{round}")
    end
    await_rest("SEED=#{seed}")
    assert_empty(@log.string.lines.grep_v(/as it should|test_http2_random|\A    /), "SEED=#{seed}")
  end

  private

  def converse(random, name)
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    http = HTTP2Client.new(io, settings: { 4 => random.rand < 0.3 ? random.rand(2_000..5_000) : 65_535 })
    asked = {}
    reader = spin { http.until_frame { false } }
    random.rand(1..40).times { |i| ask(http, asked, 2 * i + 1, random) }
    finish(http, asked, reader, name) if random.rand > 0.3 # else we leave in the middle of everything
  ensure
    reader&.stop
    reader&.await
    io&.close
  end

  def ask(http, asked, id, random)
    path = KINDS.sample(random: random)
    body = %w[/echo /ignore].include?(path) ? 'b' * random.rand(1..30_000) : nil
    http.write(http.headers(id, http.fields(body ? 'POST' : 'GET', path), flags: body ? 4 : 5))
    send_body(http, id, body, random) if body
    asked[id] = [path, body]
    return snooze if random.rand > 0.15

    http.write(http.reset(id))
    asked.delete(id)
  end

  # Within the window that every stream begins with, and mostly within the connection's.
  def send_body(http, id, body, random)
    until body.empty?
      piece = body.slice(0, random.rand(1..16_384))
      body = body[piece.bytesize..]
      http.write(http.data(id, piece, last: body.empty?))
      snooze if random.rand < 0.3
    end
  end

  def finish(http, asked, reader, name)
    deadline = clock + patient(10)
    until asked.each_key.all? { |id| http.ended[id] || (http.resets[id] && !http.resets[id].equal?(:NO_ERROR)) }
      flunk "#{name}: #{asked.keys.reject { |id| http.ended[id] }} never ended" if clock > deadline
      sleep 0.002
    end
    asked.each { |id, (path, body)| check(http, id, path, body, name) }
    refute reader.dead?, name
  end

  def check(http, id, path, body, name)
    assert_nil http.resets[id], "#{name}: #{path}" unless http.resets[id] == :NO_ERROR
    assert_equal EXPECTED.fetch(path, body), http.bodies[id], "#{name}: #{path} on stream #{id}"
  end

  def await_rest(name)
    @ios.each { |io| io.close unless io.closed? }
    deadline = clock + patient(5)
    sleep 0.005 until @server.connections.empty? || clock > deadline
    assert_empty @server.connections, name
    assert_equal 0, @server.stats.running, name
  end
end
