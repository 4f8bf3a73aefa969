# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'

# What a peer sends within the limits takes time that grows with its length. A regular expression that looks at each blank once for
# each blank before it would keep a worker busy for half a minute, with one request.
class TestQuadratic < Polyphony::TestCase
  on_every_driver
  time_limit 300

  BLANKS = "a#{' ' * 60_000}b,"

  # @return [Float] seconds of this process, in which the server is, too
  def busy
    began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    yield
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began
  end

  # Some milliseconds, that is; the other one takes eight seconds and more.
  def assert_quick(&block)
    assert_operator busy(&block), :<, patient(1)
  end

  # @return [String] the first line of the answer
  def ask(server, head)
    TCPSocket.open('127.0.0.1', server.port) do |socket|
      socket.write("GET / HTTP/1.1\r\nHost: test\r\n#{head}\r\n")
      socket.gets
    end
  end

  def serving(**options, &handler)
    Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new, **options, &handler).start
  end

  UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: #{BLANKS}\r\n"

  def test_an_upgrade_of_many_blanks
    server = serving { |request| request.respond('ok') }
    assert_quick { assert_match(/ 200 /, ask(server, UPGRADE)) }
  ensure
    server&.stop(within: 0)
  end

  def test_an_upgrade_of_many_blanks_that_a_handler_looks_at
    server = serving { |request| request.upgrade('other') rescue request.respond('no') }
    assert_quick { assert_match(/ 200 /, ask(server, UPGRADE)) }
  ensure
    server&.stop(within: 0)
  end

  def test_an_upgrade_of_many_blanks_for_a_rack_application
    app = ->(env) { [200, {}, [env['rack.protocol'].inspect]] }
    server = serving(app: Polyphony::HTTP::RackHandler.new(app))
    assert_quick { assert_match(/ 200 /, ask(server, UPGRADE)) }
  ensure
    server&.stop(within: 0)
  end

  def test_names_of_parameters_in_the_access_log
    mask = Polyphony::HTTP::AccessLog.const_get(:Mask).new(:mask)
    assert_quick { mask.query("#{'?_s' * 20_000}=") }
    assert_equal 'a?b_token=[masked]&c', mask.query('a?b_token=x?y=z&c')
  end

  # The way in which it came in: what is searched for begins with as many as there are.
  def test_nothing_is_searched_for_that_begins_with_a_repetition
    guilty = Dir["#{POLYPHONY_ROOT}/lib/**/*.rb"].flat_map do |path|
      File.foreach(path).with_index(1).filter_map { |line, i| "#{path}:#{i}" if line.match?(%r{(?:split|scan|gsub|sub|index|partition)\(/(?:\\s|\[ \\t\]|\.)[*+]}) }
    end
    assert_empty guilty
  end

  def test_the_answer_to_a_client_of_websockets
    listener = TCPServer.new('127.0.0.1', 0)
    spin do
      socket = listener.accept
      socket.gets("\r\n\r\n")
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: #{BLANKS}\r\nX: #{BLANKS}\r\n\r\n")
      socket.close
    end
    assert_quick do
      assert_raises(Polyphony::HTTP::BadRequest) { Polyphony::HTTP::WebSocket.connect("ws://127.0.0.1:#{listener.local_address.ip_port}/", limits: { header_block: 1 << 20 }) }
    end
  ensure
    listener&.close
  end
end
