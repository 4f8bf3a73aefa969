# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'

# Settings, from all the places they may come from.
class TestHTTPConfig < Polyphony::TestCase
  def setup
    super
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@folder)
    super
  end

  def config(text = nil, env: {}, **settings)
    if text
      FileUtils.mkdir_p("#{@folder}/config")
      File.write("#{@folder}/config/polyphony.rb", text)
    end
    Polyphony::HTTP::Config.new(directory: @folder, env: env, **settings)
  end

  def refused(text = nil, **settings)
    assert_raises(Polyphony::HTTP::ConfigError) { config(text, **settings) }.message
  end

  def test_without_a_file_there_are_defaults
    config = config()
    assert_nil config.file
    assert_equal [0, true, 'development', [], 60], [config.workers, config.preload, config.environment, config.binds, config.worker_timeout]
    refute config.cluster?
    assert_empty config.changed_limits
  end

  def test_the_environment_is_heard_where_nobody_else_has_said_it
    assert_match(/PORT in the environment must be a number, as in 8080, got "http"/, refused(env: { 'PORT' => 'http' }))
    assert_match(/WEB_CONCURRENCY in the environment must be a number, or auto, got "two"/, refused(env: { 'WEB_CONCURRENCY' => 'two' }))
    assert_equal Etc.nprocessors, config(env: { 'WEB_CONCURRENCY' => 'auto', 'PORT' => '' }).workers
    config = config("workers 1\n", env: { 'PORT' => 'http', 'WEB_CONCURRENCY' => 'two' }, bind: ['8080'])
    assert_equal [1, ['http://0.0.0.0:8080']], [config.workers, config.binds.map(&:address)]
  end

  def test_words_with_a_value_of_another_kind_are_refused
    assert_match(/polyphony.rb:1: limits are said with their names, .*got 5/, refused('limits 5'))
    assert_match(/preload must be true or false, got "no"/, refused('preload "no"'))
    assert_match(/a trusted proxy must be .*got "me"/, refused('trusted_proxies "me"'))
  end

  def test_a_file_says_it_in_words
    config = config(<<~RUBY)
      bind 'http://127.0.0.1:8080', 'unix:/run/app.sock'
      bind '0.0.0.0:8443', proxy: true
      tls cert: 'a.pem', key: 'a.key'
      tls cert: 'b.pem', key: 'b.key'
      workers 3
      preload false
      limits body: 5, requests: nil
      limits keep_alive: 2
      access_log 'log/access.log', format: :json, query: false
      trusted_proxies '10.0.0.0/8', '127.0.0.1'
      metrics
      health '/up'
      on_worker_start { |number| number + 1 }
      on_worker_start { |number| number + 2 }
      environment ENV.fetch('NO_SUCH_VARIABLE', 'staging')
    RUBY
    assert_equal %w[http://127.0.0.1:8080 unix:/run/app.sock https://0.0.0.0:8443], config.binds.map(&:address)
    assert_equal [[false, false], [false, false], [true, true]], config.binds.map { |bind| [bind.tls, bind.proxy] }
    assert_equal [{ cert: 'a.pem', key: 'a.key' }, { cert: 'b.pem', key: 'b.key' }], config.tls
    assert_equal [3, false, 'staging'], [config.workers, config.preload, config.environment]
    assert_equal({ body: [5, 16_777_216], keep_alive: [2, 65], requests: [nil, 1_000] }, config.changed_limits)
    assert_equal ['log/access.log', :json, false], [config.access_log, config.access_format, config.access_query]
    assert_equal %w[10.0.0.0/8 127.0.0.1], config.trusted_proxies
    assert_equal ['/metrics', nil, '/up', nil], [config.metrics, config.metrics_address, config.health, config.ready]
    assert_equal [2, 3], config.on_worker_start.map { |block| block.call(1) }
  end

  def test_the_command_line_wins_over_the_file_and_the_file_over_the_environment
    env = { 'PORT' => '3000', 'WEB_CONCURRENCY' => '5', 'RACK_ENV' => 'production' }
    config = config(env: env)
    assert_equal [['http://0.0.0.0:3000'], 5, 'production'], [config.binds.map(&:address), config.workers, config.environment]
    config = config("workers 3\nlimits body: 1, requests: 2\n", env: env)
    assert_equal [3, 1, 2], [config.workers, config.limit_set.body, config.limit_set.requests]
    config = config("workers 3\nlimits body: 1, requests: 2\n", env: env, workers: 1, limits: { body: 9 }, bind: ['127.0.0.1:1'])
    assert_equal [1, 9, 2], [config.workers, config.limit_set.body, config.limit_set.requests]
    assert_equal ['http://127.0.0.1:1'], config.binds.map(&:address)
  end

  def test_auto_is_a_worker_for_each_processor
    assert_equal Etc.nprocessors, config(workers: :auto).workers
  end

  def test_the_file_is_plain_ruby
    File.write("#{@folder}/more.rb", "MORE_OF_TEST_CONFIG = 4\n")
    config = config(<<~RUBY)
      require_relative '../more'
      def twice(number) = number * 2
      workers twice(MORE_OF_TEST_CONFIG)
      pidfile File.join(__dir__, 'x.pid')
    RUBY
    assert_equal [8, "#{@folder}/config/x.pid"], [config.workers, config.pidfile]
  end

  def test_it_is_read_again
    config = config("workers 1\n", quiet: true)
    File.write(config.file, "workers 2\n")
    again = config.reload(env: {})
    assert_equal [1, 2, true], [config.workers, again.workers, again.quiet]
  end

  def test_a_word_that_is_none_is_named_with_its_place_and_those_there_are
    message = refused("bind 'http://127.0.0.1:1'\nworker 2\n")
    assert_match(/polyphony\.rb:2: no such setting: worker; did you mean workers\?/, message)
    assert_match(/There are app, bind, tls, workers/, message)
    assert_match(/no such setting: wrokers; there are app, bind/, refused(wrokers: 2))
  end

  def test_what_cannot_be_is_named
    { "workers(-1)\n" => /workers must be a whole number in 0\.\.1000, got -1/,
      "workers 'two'\n" => /got "two"/,
      "workers\n" => /polyphony\.rb:1: workers takes one value, got 0/,
      "limits bodies: 5\n" => /no such limit: :bodies; there are/,
      "limits body: 'big'\n" => /limit body must be a positive number or nil, got "big"/,
      "bind\n" => /polyphony\.rb:1: bind needs an address/,
      "bind 'x:1', tsl: 1\n" => /bind has no tsl: there are tls, proxy and mode/,
      "bind 'https://x:1'\n" => /https:\/\/x:1 needs a certificate/,
      "access_log 'x', format: :xml\n" => /no format xml: there are common, combined and json/,
      "access_log 'x', from: 1\n" => /access_log has no from: there are format and query/,
      "health 'up'\n" => /health must be a path as in \/health, got "up"/,
      "early_hints 'yes'\n" => /early_hints must be :http2, true or false, got "yes"/,
      "worker_timeout 0\n" => /worker_timeout must be a number of seconds, at least 0.1, got 0/,
      "on_worker_start 5\n" => /polyphony\.rb:1: on_worker_start needs a block/,
      "1 +\n" => /polyphony\.rb.*(SyntaxError)/m,
      "\nraise 'oops'\n" => /polyphony\.rb:2: oops \(RuntimeError\)/ }.each do |text, message|
      assert_match(message, refused(text), text)
    end
  end

  def test_a_file_that_was_named_must_be_there
    assert_match(/no such config file: nowhere\.rb/, refused(file: 'nowhere.rb'))
    assert_nil config("workers 5\n", file: false).file
  end
end
