# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/served'
require 'openssl'
require 'polyphony/http'
require 'polyphony/cli'
require 'stringio'

# `polyphony serve`, as a process, and its command line.
class TestHTTPServe < Polyphony::TestCase
  on_every_driver

  def teardown
    @served&.close
    super
  end

  def serve(...)
    @served = Polyphony::Served.new(...)
  end

  def in_progress(kind)
    @served.eventually("a request that is #{kind}") { !Dir["#{@served.folder}/#{kind}.*"].empty? }
  end

  # --- start and stop ----------------------------------------------------------------------------

  def test_it_serves_a_handler_in_a_file_and_says_how
    serve('--limit', 'body=1000')
    assert_equal [200, "1 #{@served.pid}"], @served.get
    assert_equal 0, @served.stop
    log = @served.log
    assert_match(/^Polyphony #{Polyphony::VERSION} \(ruby #{RUBY_VERSION}, #{Thread.current.backend.kind}\), process \d+$/, log)
    assert_match(/^  protocols +HTTP\/1\.1, /, log)
    assert_match(/^  limit +body 1000 \(default 16777216\)$/, log)
    assert_match(/^  environment +development$/, log)
    assert_match(/TERM: stopping, 0 requests in progress$/, log)
  end

  def test_each_signal_that_stops_it_stops_it
    %i[INT QUIT].each do |signal|
      serve
      assert_equal 0, @served.stop(signal)
      @served.close
    end
  end

  def test_a_request_in_progress_is_finished_and_no_other_begun
    serve
    slow = spin { @served.get('/slow') }
    in_progress(:slow)
    @served.signal(:TERM)
    @served.await(/TERM: stopping, 1 request in progress/)
    @served.eventually('a closed door') { outcome { @served.get }.is_a?(SystemCallError) }
    assert_equal 200, slow.await.first
    assert_equal 0, @served.wait.exitstatus
  end

  def test_the_second_signal_cuts_it_short
    serve
    hanging = spin { outcome { @served.get('/hang') } }
    in_progress(:hang)
    @served.signal(:TERM)
    @served.await(/TERM: stopping/)
    @served.signal(:TERM)
    @served.await(/TERM again: 1 request cut off/)
    assert_kind_of IOError, hanging.await
    assert_equal 0, @served.wait.exitstatus
  end

  def test_there_is_a_deadline
    serve('--limit', 'drain_time=0.3')
    hanging = spin { outcome { @served.get('/hang') } }
    in_progress(:hang)
    assert_equal 0, @served.stop
    assert_kind_of IOError, hanging.await
  end

  def test_it_is_not_ready_while_it_stops_and_still_accepts_for_a_time
    serve('--ready', '--health', '/alive', '--drain-delay', '20')
    assert_equal [200, "ready\n"], @served.get('/ready')
    @served.signal(:TERM)
    @served.await(/TERM: stopping/)
    assert_equal [503, "stopping\n"], @served.get('/ready')
    assert_equal [200, "ok\n"], @served.get('/alive')
    @served.signal(:TERM)
    assert_equal 0, @served.wait.exitstatus
  end

  # --- what is served ----------------------------------------------------------------------------

  def test_a_rack_application_is_the_default
    folder = Dir.mktmpdir
    File.write("#{folder}/config.ru", "run ->(env) { [200, {}, [env['PATH_INFO'], ENV['RACK_ENV']]] }")
    serve('-e', 'staging', folder: folder, app: nil, gems: %w[rack])
    assert_equal [200, '/xstaging'], @served.get('/x')
    assert_equal 0, @served.stop
  end

  def test_early_hints_reach_clients_of_http1_if_asked_for
    folder = Dir.mktmpdir
    File.write("#{folder}/config.ru", <<~'RUBY')
      run(lambda do |env|
        env['rack.early_hints']&.call('link' => '</a.css>; rel=preload')
        [200, {}, []]
      end)
    RUBY
    serve('--early-hints', folder: folder, app: nil, gems: %w[rack])
    assert_equal 103, @served.get.first
    assert_equal 0, @served.stop
  end

  def test_the_example_runs
    folder = Dir.mktmpdir
    FileUtils.cp(Dir["#{POLYPHONY_ROOT}/examples/serve/*.rb"], folder)
    serve('app.rb', '--config', 'config.rb', folder: folder, app: nil)
    @served.await(/worker 2 begins/) unless @served.said?(/worker 2 begins/) # before the banner
    assert_match(/\AHello from process \d+\n\z/, @served.get.last)
    assert_match(/^polyphony_requests_total \d/, @served.get('/metrics').last)
    assert_equal 0, @served.stop
    assert_match(/worker 1 ends/, @served.log)
    assert_match(/"path":"\/","protocol":"HTTP\/1.1","status":200/, @served.out.read)
  end

  def test_https_with_a_certificate_that_is_read_again
    folder = Dir.mktmpdir
    make_certificate(folder, 'first.test')
    serve('--tls', 'cert.pem,key.pem', '--bind', '127.0.0.1:0', '--workers', '1', folder: folder)
    assert_match(%r{\Ahttps://}, @served.addresses.first)
    assert_equal '/CN=first.test', subject_of(@served.port)
    make_certificate(folder, 'second.test')
    @served.signal(:HUP)
    @served.await(/HUP: configuration and certificates were read again/)
    @served.eventually('the new certificate') { subject_of(@served.port) == '/CN=second.test' }
    File.write("#{folder}/cert.pem", 'nonsense')
    @served.signal(:HUP)
    @served.await(/configuration is kept: .*cert\.pem/)
    assert_equal '/CN=second.test', subject_of(@served.port)
    assert_equal 0, @served.stop
  end

  # --- files -------------------------------------------------------------------------------------

  def test_the_pidfile_comes_and_goes
    serve('--pidfile', 'tmp.pid')
    path = "#{@served.folder}/tmp.pid"
    assert_equal @served.pid, Integer(File.read(path))
    other = Polyphony::Served.new('--pidfile', path, ready: false)
    assert_equal 78, other.wait.exitstatus
    assert_match(/says that process #{@served.pid} serves already/, other.log)
    assert_equal 0, @served.stop
    refute File.exist?(path)
  ensure
    other&.close
  end

  def test_a_pidfile_of_a_process_that_is_gone_is_no_obstacle
    folder = Dir.mktmpdir
    pid = ::Process.spawn('true')
    ::Process.wait(pid)
    File.write("#{folder}/tmp.pid", pid.to_s)
    serve('--pidfile', 'tmp.pid', folder: folder)
    assert_equal 0, @served.stop
  end

  def test_logs_are_opened_again
    serve('--access-log', 'access.log', '--log', 'error.log', ready: false)
    access, error = %w[access.log error.log].map { |name| "#{@served.folder}/#{name}" }
    port = @served.eventually('a banner') { File.exist?(error) && File.read(error)[/listening .*:(\d+)$/, 1] }
    @served.get('/first', port: port)
    @served.eventually('a line') { File.read(access).include?('/first') }
    [access, error].each { |path| File.rename(path, "#{path}.1") }
    @served.signal(:USR1)
    @served.eventually('new files') { File.exist?(error) && File.read(error).include?('USR1: logs were opened again') }
    @served.get('/second', port: port)
    assert_equal 0, @served.stop
    assert_match(/"GET \/second HTTP\/1.1" 200/, File.read(access))
    refute_match(/second/, File.read("#{access}.1"))
  end

  def test_it_becomes_another_user
    skip 'only root can' unless ::Process.uid.zero?
    folder = Dir.mktmpdir
    File.chmod(0o755, folder)
    serve('--user', 'nobody', '--pidfile', 'tmp.pid', '--access-log', 'access.log', '-e', 'test', folder: folder)
    assert_equal "test #{Etc.getpwnam('nobody').uid} #{File.realpath(folder)}", @served.get('/env').last
    @served.signal(:USR1)
    @served.await(/USR1: logs were opened again/)
    assert_equal 0, @served.stop
    assert_match(/GET \/env/, File.read("#{folder}/access.log"))
  end

  def test_a_unix_socket_comes_and_goes
    serve('--bind', 'unix:app.sock')
    path = "#{@served.folder}/app.sock"
    UNIXSocket.open(path) { |socket| assert_equal 200, @served.ask(socket).first }
    assert_equal 0, @served.stop
    refute File.exist?(path)
  end

  # --- looking at it -----------------------------------------------------------------------------

  def test_its_title_tells_what_it_does
    serve('--name', 'shop')
    3.times { @served.get }
    @served.eventually('a title') do
      @served.title == "polyphony (shop): http://127.0.0.1:#{@served.port} [0 connections, 0 running, 3 requests]"
    end
    assert_equal 0, @served.stop
  end

  def test_metrics_are_the_sum_of_all_workers_dead_or_alive
    serve('--workers', '2', '--metrics')
    @served.eventually('two workers') { @served.workers.values.grep(/conn/).size == 2 }
    victim = @served.who
    @served.get('/fail')
    @served.eventually('a number') { @served.workers.values.sum { |title| title[/(\d+) requests/, 1].to_i } >= 2 }
    @served.signal(:KILL, victim)
    @served.await(/was killed/)
    numbers = @served.eventually('both') { sum_of_workers }
    assert_operator numbers['polyphony_requests_total'], :>=, 3
    assert_equal 1, numbers['polyphony_errors_total']
    assert_equal 1, numbers['polyphony_responses_total{class="5xx"}']
    assert_equal 0, @served.stop
  end

  def test_metrics_may_have_a_place_of_their_own
    serve('--metrics', 'http://127.0.0.1:0', ready: false)
    place = @served.await(/^  metrics/)[/:(\d+)/, 1]
    @served.await(/^  environment/)
    assert_match(/^polyphony_requests_total 0$/, @served.get('/metrics', port: place).last)
    assert_equal [200, "ready\n"], @served.get('/ready', port: place)
    assert_equal 404, @served.get('/', port: place).first
    assert_match(/\A1 /, @served.get('/metrics').last)
    assert_equal 0, @served.stop
  end

  # --- systemd -----------------------------------------------------------------------------------

  def test_sockets_of_systemd_are_served
    listener = TCPServer.new('127.0.0.1', 0)
    code = 'ENV["LISTEN_PID"] = $$.to_s; ENV["LISTEN_FDS"] = "1"; exec(*ARGV, 3 => 3)'
    folder = Dir.mktmpdir
    File.write("#{folder}/app.rb", Polyphony::Served::APP)
    @served = Polyphony::Served.new("#{folder}/app.rb", '--workers', '1', folder: folder, app: nil,
                                                        wrapper: ['-e', code], 3 => listener)
    port = listener.local_address.ip_port
    assert_equal ["http://127.0.0.1:#{port}"], @served.addresses
    listener.close
    assert_equal 200, @served.get.first
    2.times do |i|
      @served.signal(:USR2)
      @served.await(/generation #{i + 2} serves/)
      assert_equal 200, @served.get.first
    end
    assert_equal 0, @served.stop
  end

  def test_systemd_is_told
    path = "#{Dir.mktmpdir}/notify"
    socket = Socket.new(:UNIX, :DGRAM).tap { |one| one.bind(Addrinfo.unix(path)) }
    serve('--workers', '1', env: { 'NOTIFY_SOCKET' => path, 'WATCHDOG_USEC' => '300000' })
    told = []
    await_word(socket, told, /READY=1/)
    assert_match(/MAINPID=#{@served.pid}/, told.last)
    await_word(socket, told, /WATCHDOG=1/)
    await_word(socket, told, /STATUS=1 worker, 0 connections/)
    @served.signal(:HUP)
    await_word(socket, told, /RELOADING=1\nMONOTONIC_USEC=\d+/)
    await_word(socket, told, /READY=1/)
    @served.signal(:USR2)
    await_word(socket, told, /RELOADING=1/)
    await_word(socket, told, /READY=1/)
    @served.await(/generation 2 serves/)
    @served.signal(:TERM)
    await_word(socket, told, /STOPPING=1/)
    assert_equal 0, @served.wait.exitstatus
  ensure
    socket&.close
    FileUtils.rm_rf(File.dirname(path))
  end

  def test_more_files_may_be_open_than_usual
    serve(rlimit_nofile: [256, 4096])
    assert_match(/Max open files +2112 /, File.read("/proc/#{@served.pid}/limits"))
    assert_equal 0, @served.stop
    @served.close
    serve(rlimit_nofile: 200)
    @served.await(/note +a process may have 200 files open, which is not enough for 1024 connections/)
    assert_equal 0, @served.stop
  end

  def test_it_goes_on_when_nobody_reads_its_log
    serve('--workers', '1', '--access-log', '-')
    @served.eventually('a worker') { @served.workers.values.grep(/conn/).any? }
    @served.deafen
    assert_equal 500, @served.get('/fail').first
    @served.signal(:KILL, @served.workers.keys.first)
    @served.eventually('a new worker') { @served.workers.values.grep(/conn/).any? }
    assert_equal 200, @served.get.first
    assert_equal 0, @served.stop
  end

  # --- what is wrong -----------------------------------------------------------------------------

  def test_a_port_that_is_taken_is_named
    taken = track(TCPServer.new('127.0.0.1', 0))
    serve('--bind', "http://127.0.0.1:#{taken.local_address.ip_port}", ready: false)
    assert_equal 78, @served.wait.exitstatus
    assert_match(/cannot listen at http:\/\/127.0.0.1:\d+: Address already in use/, @served.log)
  end

  def test_an_application_that_fails_says_so
    serve(app: "raise 'cannot be'", ready: false)
    assert_equal 1, @served.wait.exitstatus
    assert_match(/app.rb:1:in .* cannot be \(RuntimeError\)/, @served.log)
  end

  def test_a_file_without_a_handler_says_so
    serve(app: '42', ready: false)
    assert_equal 78, @served.wait.exitstatus
    assert_match(/app.rb has no handler: .*it was 42/, @served.log)
  end

  def test_options_that_are_wrong_are_named
    [['--dance'], ['--workers', 'many'], ['--port', 'http'], ['--limit', 'body=much'], ['a.rb', 'b.rb'],
     ['--access-format', 'xml']].each do |words|
      status, _, err = command(*words)
      assert_equal 64, status, words.join(' ')
      assert_match(/\Apolyphony serve: .*#{words.last(1).first[/\w+/]}.*\nsee: polyphony serve --help\n\z/, err)
    end
  end

  def test_options_that_are_wrong_tell_what_would_be_right
    { %w[-p http] => /invalid argument: -p http: say a number, as in 8080$/, %w[--port] => /missing argument: --port: say a number/,
      %w[-w many] => /-w many: say a number, or auto$/, %w[--backlog x] => /x: say a whole number$/,
      %w[--boot-timeout soon] => /soon: say a number of seconds/, %w[--access-format xml] => /xml: say common, combined or json$/,
      %w[--limit body=x] => /body=x: NAME=NUMBER, as in body=1000000$/ }.each do |words, message|
      status, _, err = command(*words)
      assert_equal 64, status, words.join(' ')
      assert_match(message, err)
    end
  end

  # What Ruby says about itself (rb_sysopen) helps nobody.
  def test_places_that_cannot_be_used_are_told_without_words_of_rubys
    { %w[--pidfile /nonexistent/a] => %r{cannot write the pidfile /nonexistent/a: No such file or directory: make the folder first$},
      %w[--log /nonexistent/a] => %r{cannot write the log /nonexistent/a: No such file or directory: make the folder first$},
      %w[--access-log /] => %r{cannot write the log /: Is a directory: a file is wanted$} }.each do |words, message|
      serve(*words, ready: false)
      assert_equal 78, @served.wait.exitstatus
      assert_match(message, @served.log)
      @served.close
    end
  end

  def test_an_application_that_exits_while_it_is_loaded_is_told
    { 'exit' => [1, 0], 'exit 3' => [3, 3] }.each do |app, (status, said)|
      serve(app: app, ready: false)
      assert_equal status, @served.wait.exitstatus
      assert_match(/app.rb has ended the process while it was loaded: exit with status #{said} at .*app.rb:1$/, @served.log)
      @served.close
    end
  end

  def test_settings_that_are_wrong_are_named
    { ['--limit', 'bodies=5'] => /no such limit: :bodies; there are request_line/,
      ['--bind', 'https://localhost:443'] => /https:\/\/localhost:443 needs a certificate: --tls CERT,KEY/,
      ['--bind', 'somewhere'] => /cannot listen at "somewhere"/,
      ['--config', 'nowhere.rb'] => /no such config file: nowhere.rb/,
      ['--bind', 'ftp://x:1'] => /cannot listen at "ftp:\/\/x:1": say http/,
      ['--bind', '::1:8080'] => /"::1:8080": an address of IPv6 is written in brackets, as in \[::1\]:8080/,
      ['--metrics', 'config.ru'] => /metrics must be a path as in \/metrics, or an address .*got "config.ru"/,
      ['--trusted-proxy', 'me'] => /a trusted proxy must be an address or a network .*got "me"/,
      ['--directory', '/nonexistent'] => /cannot work in \/nonexistent: No such file or directory: make/,
      ['/tmp'] => /no such file: \/tmp, it is a folder: polyphony serve --directory \/tmp/,
      ['--user', 'nobody-at-all'] => /cannot become nobody-at-all/,
      ['nothing.rb'] => /no such file: nothing.rb/ }.each do |words, message|
      status, _, err = command('--check-config', *words)
      assert_equal 78, status, words.join(' ')
      assert_match(message, err)
    end
  end

  def test_help_has_every_option_and_the_signals
    status, out, = command('--help')
    assert_equal 0, status
    assert_match(/--workers/, out)
    assert_match(/USR2 +restart/, out)
    status, out, = command('--limits')
    assert_equal 0, status
    assert_match(/^header_block +65536/, out)
  end

  private

  def make_certificate(folder, name)
    key = OpenSSL::PKey::EC.generate('prime256v1')
    cert = OpenSSL::X509::Certificate.new
    cert.version = 2
    cert.serial = rand(1 << 64)
    cert.subject = cert.issuer = OpenSSL::X509::Name.parse("/CN=#{name}")
    cert.public_key = key
    cert.not_before = Time.now - 60
    cert.not_after = Time.now + 3600
    cert.sign(key, 'SHA256')
    File.write("#{folder}/key.pem", key.to_pem)
    File.write("#{folder}/cert.pem", cert.to_pem)
  end

  def subject_of(port)
    socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new('127.0.0.1', port))
    socket.sync_close = true
    socket.connect
    socket.peer_cert.subject.to_s
  ensure
    socket&.close
  end

  def command(*words)
    out = StringIO.new
    err = StringIO.new
    here = Dir.pwd
    [Polyphony::CLI.new(['serve', *words], out: out, err: err).run, out.string, err.string]
  ensure
    Dir.chdir(here)
  end

  def await_word(socket, told, pattern)
    cancel_after(patient(10)) do
      loop do
        told << socket.recv(4096)
        break if told.last.match?(pattern)
      end
    end
  end

  def sum_of_workers
    text = @served.get('/metrics').last
    numbers = text.scan(/^(polyphony_\S+) (\S+)$/).to_h { |name, value| [name, Float(value)] }
    numbers if numbers['polyphony_errors_total'] == 1
  rescue SystemCallError, EOFError
    nil
  end
end
