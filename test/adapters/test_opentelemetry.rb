# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/guide_runner'
require_relative '../support/http2_client'
require 'net/http'
require 'polyphony/http'

# Spans of OpenTelemetry across fibers, threads, messages and HTTP.
class TestOpenTelemetry < Polyphony::AdapterCase
  include Polyphony::GuideRunner

  on_every_driver
  gems 'opentelemetry/sdk', 'polyphony/adapters/opentelemetry'

  if defined?(OpenTelemetry::SDK)
    EXPORTER = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    OpenTelemetry::SDK.configure do |config|
      config.logger = Logger.new(IO::NULL)
      config.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(EXPORTER))
    end
    Tracing = Polyphony::OpenTelemetry
  end

  def setup
    super
    EXPORTER.reset
    Tracing.start
  end

  def teardown
    Tracing.stop if defined?(Tracing)
    @server&.stop
    super
  end

  def in_span(name, **options, &block)
    Tracing.in_span(name, **options, &block)
  end

  # The one that has ended.
  def span(name)
    found = spans.select { |span| span.name == name }
    assert_equal 1, found.size, "spans: #{spans.map(&:name)}"
    found.first
  end

  def spans
    EXPORTER.finished_spans
  end

  def assert_child(parent, child)
    parent = span(parent) if parent.is_a?(String)
    child = span(child) if child.is_a?(String)
    assert_equal [parent.hex_trace_id, parent.hex_span_id], [child.hex_trace_id, child.hex_parent_span_id]
  end

  def assert_root(name)
    assert_equal '0' * 16, span(name).hex_parent_span_id
  end

  def serve(**options, &handler)
    @server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil, **options, &handler).start
  end

  def get(path = '/', headers = {})
    Net::HTTP.get_response(URI("#{@server.url}#{path}"), headers)
  end

  def current_name
    OpenTelemetry::Trace.current_span.then { |span| span.name if span.recording? }
  end

  # --- fibers and threads ---

  test_in_both :spans_of_fibers_are_children_of_where_they_were_spun do
    in_span('outer') do
      spin { in_span('inner') { snooze; spin { in_span('innermost') { snooze } }.await } }.await
      assert_equal 'outer', current_name
    end
    spin { in_span('alone') { snooze } }.await
    assert_child 'outer', 'inner'
    assert_child 'inner', 'innermost'
    assert_root 'alone'
  end

  test_in_both :the_spans_of_two_fibers_are_not_mixed_up do
    [1, 2].map { |i| spin { in_span("outer #{i}") { 5.times { |j| in_span("#{i}.#{j}") { snooze } } } } }.each(&:await)
    [1, 2].each { |i| 5.times { |j| assert_child "outer #{i}", "#{i}.#{j}" } }
  end

  def test_a_fiber_may_end_after_the_span_it_was_spun_in
    fiber = in_span('outer') { spin { snooze; in_span('late') { nil } } }
    fiber.await
    assert_child 'outer', 'late'
  end

  def test_threads_pools_and_processes_go_on
    in_span('outer') do
      Thread.new { in_span('thread') { nil } }.join
      Polyphony.blocking { in_span('pool') { nil } }
      pool = Polyphony::ProcessPool.new(1, span: -> { OpenTelemetry::Trace.current_span.context.hex_span_id })
      assert_equal OpenTelemetry::Trace.current_span.context.hex_span_id, pool.process(:span)
      pool.stop
    end
    %w[thread pool].each { |name| assert_child 'outer', name }
  end

  def test_enclosing_calls_of_ruby_keep_the_span
    in_span('outer') do
      Mutex.new.synchronize { assert_equal 'outer', current_name }
      Timeout.timeout(10) { assert_equal 'outer', current_name }
      move_on_after(10) { assert_equal 'outer', current_name }
      Polyphony.scope { assert_equal 'outer', current_name }
    end
  end

  # --- messages ---

  test_in_both :who_receives_goes_on_with_the_span_of_the_sender do
    worker = spin { receive_loop { |message| in_span("work #{message}") { snooze } } }
    asked = spin { receive_loop { |request| request.reply(in_span('answer') { request.message }) } }
    in_span('first') { worker << 1 }
    in_span('second') { worker << 2; asked.ask(3) }
    worker << 3
    snooze until spans.size == 6
    [worker, asked].each(&:stop)
    assert_child 'first', 'work 1'
    assert_child 'second', 'work 2'
    assert_child 'second', 'answer'
    assert_root 'work 3'
  end

  def test_a_queue_and_continue
    queue = Polyphony::Queue.new
    worker = spin { queue.shift; Polyphony::Telemetry.continue { in_span('job', kind: :consumer) { nil } } }
    in_span('producer') { queue << :job }
    worker.await
    assert_child 'producer', 'job'
    assert_equal :consumer, span('job').kind
  end

  # --- ends and errors ---

  test_in_both :a_stopped_fiber_ends_its_spans_without_an_error do
    fiber = spin { in_span('outer') { in_span('inner') { sleep } } }
    snooze
    fiber.stop
    fiber.await
    assert_child 'outer', 'inner'
    assert_equal 'Polyphony::MoveOn', span('inner').attributes['polyphony.stopped']
    refute_equal OpenTelemetry::Trace::Status::ERROR, span('inner').status.code
    spin { spin { in_span('child') { sleep } }; snooze }.await
    assert_equal 'Polyphony::Terminate', span('child').attributes['polyphony.stopped']
  end

  test_in_both :errors_and_time_limits_are_recorded do
    assert_raises(IOError) { spin { in_span('failed') { raise IOError, "b\xffd" } }.await }
    assert_raises(Polyphony::Cancel) { cancel_after(0.001) { in_span('late') { sleep } } }
    assert_nil(move_on_after(0.001) { in_span('moved on') { sleep } })
    failed, late, moved_on = %w[failed late].map { |name| span(name) } << span('moved on')
    assert_equal [OpenTelemetry::Trace::Status::ERROR] * 2, [failed, late].map { |one| one.status.code }
    assert_equal ['IOError: b?d', 'IOError', ['exception']], [failed.status.description, failed.attributes['error.type'], failed.events.map(&:name)]
    assert_equal 'Polyphony::Cancel', late.attributes['error.type']
    assert_nil moved_on.events
  end

  def test_spans_of_a_tracer_end_with_a_stopped_fiber_as_well
    tracer = OpenTelemetry.tracer_provider.tracer('test')
    fiber = spin { tracer.in_span('theirs') { sleep } }
    snooze
    fiber.stop
    fiber.await
    assert_operator span('theirs').end_timestamp, :>=, span('theirs').start_timestamp
    assert_nil current_name
  end

  def test_each_fiber_with_a_tag_can_have_a_span
    Tracing.start(fibers: true)
    in_span('outer') do
      spin(:fetch) { in_span('inner') { nil } }.await
      spin { nil }.await
      stopped = spin(:stopped) { sleep }
      snooze
      stopped.stop
      stopped.await
      assert_raises(IOError) { spin(:failed) { raise IOError, 'x' }.await }
    end
    spin(:outside) { nil }.await
    assert_child 'outer', 'fiber fetch'
    assert_child 'fiber fetch', 'inner'
    assert_equal 'Polyphony::MoveOn', span('fiber stopped').attributes['polyphony.stopped']
    assert_equal 'IOError', span('fiber failed').attributes['error.type']
    assert_match(/\A#{Regexp.escape(__FILE__)}:\d+\z/, span('fiber fetch').attributes['code.line'])
    assert_equal 5, spans.size
  end

  # --- HTTP ---

  def test_a_request_has_a_span_on_both_sides
    serve { |request| in_span('work') { spin { in_span('deep') { snooze } }.await }; request.respond('hello') }
    in_span('outer') { get('/path?secret=1', 'User-Agent' => 'test') }
    client, server = spans.select { |one| one.name == 'GET' }.sort_by(&:kind)
    assert_equal %i[client server], [client.kind, server.kind]
    assert_child span('outer'), client
    assert_child client, server
    assert_child server, 'work'
    assert_child 'work', 'deep'
    assert_equal({ 'http.request.method' => 'GET', 'url.path' => '/path', 'url.scheme' => 'http', 'network.protocol.version' => '1.1',
                   'client.address' => '127.0.0.1', 'user_agent.original' => 'test', 'server.address' => '127.0.0.1',
                   'server.port' => @server.port, 'http.response.status_code' => 200 }, server.attributes)
    assert_equal({ 'http.request.method' => 'GET', 'server.address' => '127.0.0.1', 'server.port' => @server.port,
                   'url.full' => "#{@server.url.chomp('/')}/path", 'http.response.status_code' => 200 }, client.attributes)
  end

  def test_a_request_is_no_part_of_what_started_the_server
    in_span('start') { serve { |request| request.respond(current_name.to_s) } }
    Tracing.start(client: false)
    assert_equal 'GET', get.body
    assert_root 'GET'
  end

  def test_requests_of_one_connection_have_spans_of_their_own
    serve { |request| request.respond('x') }
    Tracing.start(client: false)
    parents = Array.new(3) { |i| format('%016x', i + 1) }
    Net::HTTP.start('127.0.0.1', @server.port) do |http|
      parents.each { |id| http.get('/', 'traceparent' => "00-#{'ab' * 16}-#{id}-01").body }
      http.get('/').body
    end
    assert_equal [*parents, '0' * 16], spans.map(&:hex_parent_span_id)
  end

  def test_http2_has_a_span_for_each_stream
    skip 'without libnghttp2' unless Polyphony::HTTP.http2?
    serve { |request| request.respond('x', {}, status: 404) }
    client = HTTP2Client.new(track(TCPSocket.new('127.0.0.1', @server.port)))
    client.write(client.headers(1, client.fields('GET', '/a', traceparent: "00-#{'ab' * 16}-#{'cd' * 8}-01")))
    client.await(1)
    client.get(3)
    assert_equal ['cd' * 8, '0' * 16], spans.map(&:hex_parent_span_id)
    assert_equal [['2', 404]] * 2, spans.map { |one| one.attributes.values_at('network.protocol.version', 'http.response.status_code') }
    refute_equal OpenTelemetry::Trace::Status::ERROR, spans.first.status.code
  end

  def test_errors_of_handlers_are_recorded
    serve { |request| request.path == '/own' ? request.respond('', {}, status: 503) : raise(KeyError, 'no such thing') }
    Tracing.start(client: false)
    assert_equal '500', get.code
    assert_equal '503', get('/own').code
    failed, own = spans
    assert_equal ['KeyError: no such thing', 'KeyError', 500],
                 [failed.status.description, *failed.attributes.values_at('error.type', 'http.response.status_code')]
    assert_equal ['exception'], failed.events.map(&:name)
    assert_equal ['503', 503], own.attributes.values_at('error.type', 'http.response.status_code')
    assert_equal [OpenTelemetry::Trace::Status::ERROR] * 2, spans.map { |one| one.status.code }
  end

  def test_a_request_that_is_cut_off_ends_its_span
    began = Polyphony::Event.new
    serve { |_request| began.signal; sleep }
    Tracing.start(client: false)
    asking = spin { get rescue nil }
    began.await
    @server.stop(within: 0)
    asking.stop
    assert_match(/\APolyphony::/, span('GET').attributes['polyphony.stopped'])
  end

  def test_what_clients_make_up_does_no_harm
    serve { |request| request.respond('x') }
    Tracing.start(client: false)
    socket = track(TCPSocket.new('127.0.0.1', @server.port))
    ['traceparent: 00-zz', "traceparent: 00-#{'0' * 32}-#{'0' * 16}-01", "tracestate: #{'x=y,' * 500}", "baggage: #{'a=b,' * 500}", "user-agent: \xff#{'x' * 2000}"]
      .each { |line| socket << "PROPFIND / HTTP/1.1\r\nhost: [::1]:99999\r\n#{line}\r\n\r\n"; assert_match(/200 OK/, socket.readpartial(1000)) }
    assert_equal ['HTTP'] * 5, spans.map(&:name)
    assert_equal ['_OTHER', 'PROPFIND', '[::1]'], spans.first.attributes.values_at('http.request.method', 'http.request.method_original', 'server.address')
    assert_match(/\A\?x{900,}/, spans.last.attributes['user_agent.original'])
    spans.each do |one|
      one.attributes.each_value { |value| assert value.encode('UTF-8').bytesize <= 1000 if value.is_a?(String) }
      assert_equal '0' * 16, one.hex_parent_span_id
    end
  end

  def test_a_client_that_finds_nobody_records_it
    port = TCPServer.open('127.0.0.1', 0) { |server| server.local_address.ip_port }
    serve { |request| request.hijack.close }
    assert_raises(Errno::ECONNREFUSED) { Net::HTTP.get(URI("http://127.0.0.1:#{port}/")) }
    assert_raises(EOFError) { Net::HTTP.start('127.0.0.1', @server.port, max_retries: 0) { |http| http.get('/') } }
    client = spans.find { |one| one.kind == :client }
    assert_equal 'EOFError', client.attributes['error.type']
  end

  def test_what_is_not_to_be_traced_is_not
    serve { |request| request.respond('x') }
    in_span('outer') { OpenTelemetry::Common::Utilities.untraced { get } }
    assert_equal ['outer'], spans.map(&:name)
  end

  def test_server_and_client_can_be_left_out
    Tracing.start(server: false, client: false)
    serve { |request| in_span('work') { request.respond('x') } }
    get('/', 'traceparent' => "00-#{'ab' * 16}-#{'cd' * 8}-01")
    assert_equal [['work', 'cd' * 8]], spans.map { |one| [one.name, one.hex_parent_span_id] }
  end

  def test_headers_for_other_clients
    assert_empty Polyphony::Telemetry.headers
    in_span('outer') do |span|
      assert_equal({ 'traceparent' => "00-#{span.context.hex_trace_id}-#{span.context.hex_span_id}-01" }, Polyphony::Telemetry.headers)
      assert_equal({ trace_id: span.context.hex_trace_id, span_id: span.context.hex_span_id }, Polyphony::Telemetry.ids)
    end
    assert_empty Polyphony::Telemetry.ids
  end

  def test_lines_of_the_access_log_name_the_trace
    output = StringIO.new
    log = Polyphony::HTTP::AccessLog.new(output, format: :json)
    serve(access_log: log) { |request| request.respond('x') }
    get('/', 'traceparent' => "00-#{'ab' * 16}-#{'cd' * 8}-01")
    log.flush
    server = spans.find { |one| one.kind == :server }
    assert_equal [server.hex_trace_id, server.hex_span_id], JSON.parse(output.string).values_at('trace_id', 'span_id')
  end

  # As with an exporter that sends over the network.
  def test_spans_are_sent_in_batches_by_a_thread
    exporter = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    provider = OpenTelemetry::SDK::Trace::TracerProvider.new
    provider.add_span_processor(OpenTelemetry::SDK::Trace::Export::BatchSpanProcessor.new(exporter, schedule_delay: 1))
    Tracing.start(tracer_provider: provider)
    20.times.map { |i| spin { in_span("batch #{i}") { snooze } } }.each(&:await)
    provider.force_flush
    assert_equal 20, exporter.finished_spans.size
  ensure
    provider&.shutdown
  end

  def test_the_example
    out, err, status = run_ruby("#{find_gems}load #{File.expand_path('../../examples/opentelemetry.rb', __dir__).inspect}")
    assert_predicate status, :success?, err
    assert_equal <<~TEXT, out
      to pay: 11
      a customer (internal)
        GET (client)
          GET (server)
            price of tea (internal)
            price of milk (internal)
            price of cake (internal)
            recommendations (internal), stopped: Polyphony::MoveOn
            book /order-17 (internal)
    TEXT
  end

  # Those of its blocks that need the gems.
  def test_the_guide_on_telemetry
    assert_runs('docs/guide/telemetry.md', 'OTEL_TRACES_EXPORTER' => 'none') { |block| block.notes.key?('elsewhere') }
  end

  # That program runs without Bundler.
  def find_gems
    paths = $LOAD_PATH.grep(%r{/opentelemetry-[^/]+/lib\z})
    "$LOAD_PATH.concat(#{paths.inspect});"
  end
end
