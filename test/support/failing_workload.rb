# frozen_string_literal: true

# For a process with failing_calls.so: failing_workload.rb FIRST LAST [TASK...]. For each seed everything is done twice, while system calls
# fail in ways that must not be noticed, and while they fail for good: then errors are answers, but nothing may hang or stay behind.
require 'fiddle'
require 'socket'
require 'stringio'
require 'tempfile'
require 'tmpdir'
require 'openssl'
require 'polyphony'
require 'polyphony/testing'
require 'polyphony/http'
require_relative 'http2_client'

module FailingWorkload
  LIBRARY = Fiddle.dlopen(nil)
  SET = Fiddle::Function.new(LIBRARY['failing_calls_set'], [Fiddle::TYPE_DOUBLE, Fiddle::TYPE_DOUBLE, Fiddle::TYPE_LONG_LONG], Fiddle::TYPE_VOID)
  COUNT = Fiddle::Function.new(LIBRARY['failing_calls_count'], [Fiddle::TYPE_INT], Fiddle::TYPE_LONG_LONG)
  BYTES = Random.new(1).bytes(200_000).freeze
  KEY = OpenSSL::PKey::EC.generate('prime256v1')
  CERTIFICATE = OpenSSL::X509::Certificate.new.tap do |one|
    one.subject = one.issuer = OpenSSL::X509::Name.parse('/CN=localhost')
    one.not_before, one.not_after, one.serial, one.public_key = Time.now - 60, Time.now + 3600, 1, KEY
    one.sign(KEY, 'SHA256')
  end

  # What an operation may answer when the system has refused it something.
  ANSWERS = [SystemCallError, IOError, NoMemoryError, SocketError, ThreadError, OpenSSL::SSL::SSLError, RuntimeError, Polyphony::HTTP::Error].freeze

  # Of operations, between loop and driver; the other ones are of the calls that a driver makes. See failing_calls.c.
  HARMLESS = { short_read: 0.1, short_write: 0.1, eintr: 0.1, eagain: 0.1, ecanceled: 0.1 }.freeze
  HARMFUL = { **HARMLESS, enomem: 0.01, emfile: 0.05, econnreset: 0.01, eio: 0.01, enospc: 0.01 }.freeze

  # A fiber that is ended before it begins cannot close what was meant for it. That is Ruby's to collect, and its
  # collector takes what lies on a stack for a reference.
  SLACK = { 'socket' => 4, 'pipe' => 4 }.freeze

  # By name: what has to come out of it when nothing goes wrong for good.
  TASKS = {
    pipe: -> { through(*IO.pipe) },
    unix: -> { through(*UNIXSocket.pair) },
    tcp: -> { tcp { |client, served| through(served, client) } },
    echo: -> { echo },
    file: -> { file },
    operations: -> { operations },
    tee: -> { tee },
    splice: -> { splice },
    accept_loop: -> { accept_loop },
    tls: -> { tls },
    http: -> { http },
    http2: -> { http2 },
    websocket: -> { websocket },
    hosts: -> { Socket.gethostbyname('localhost').first.is_a?(String) },
    dns: -> { Addrinfo.getaddrinfo('localhost', 80, nil, :STREAM).any? },
    process: -> { `echo hello` == "hello\n" },
    waitpid: -> { Process.wait(spawn('exit 3')); $?.exitstatus == 3 },
    thread: -> { Thread.new { through(*IO.pipe) }.value },
    threads: -> { Array.new(3) { Thread.new { spin { sleep 0.001; 1 }.await } }.sum(&:value) == 3 },
    woken: -> { woken },
    fork: -> { in_child { through(*IO.pipe) } },
    blocking: -> { Polyphony.blocking { 5 } == 5 },
    select: -> { select },
    cancel: -> { cancel },
    late_accept: -> { late_accept },
    datagrams: -> { datagrams }
  }.freeze

  class << self
    def through(reader, writer)
      feeder = spin { writer.write(BYTES); writer.close_write if writer.respond_to?(:close_write); writer.close unless writer.closed? }
      reader.read.b == BYTES && (feeder.await; true)
    ensure
      [reader, writer].each { |io| io.close unless io.closed? }
    end

    def tcp
      server = TCPServer.new('127.0.0.1', 0)
      client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
      served = server.accept
      yield client, served
    ensure
      [server, client, served].compact.each { |io| io.close unless io.closed? }
    end

    def echo
      left, right = UNIXSocket.pair
      server = spin { while (line = right.gets); right << line; end }
      100.times.all? { |i| left << "line #{i}\n"; left.gets == "line #{i}\n" }
    ensure
      server&.stop
      server&.await
      [left, right].compact.each(&:close)
    end

    def file
      Tempfile.create('failing') do |io|
        io.sync = true
        io.write(BYTES)
        io.fsync
        io.rewind
        io.read.b == BYTES && IO.binread(io.path) == BYTES
      end
    end

    # What only the backend's own words ask for.
    def operations
      Tempfile.create('failing') do |file|
        io = IO.for_fd(Polyphony.backend_open(file.path, File::RDWR), 'r+b')
        Polyphony.backend_write(io, BYTES)
        Polyphony.backend_fsync(io)
        [file.path, io].all? { |one| Polyphony.backend_stat(one)[:size] == BYTES.size }
      ensure
        io&.close
      end
    end

    def tee
      from, feed = IO.pipe
      into, out = IO.pipe
      feed << 'tee'
      IO.tee(from, out, 3) == 3 && into.read(3) == 'tee' && from.read(3) == 'tee'
    ensure
      [from, feed, into, out].compact.each(&:close)
    end

    def splice
      from, feed = IO.pipe
      into, out = IO.pipe
      feeder = spin { feed.write(BYTES); feed.close }
      copier = spin { IO.copy_stream(from, out); out.close }
      into.read.b == BYTES && (feeder.await; copier.await; true)
    ensure
      [from, feed, into, out].compact.each { |io| io.close unless io.closed? }
    end

    def accept_loop
      server = TCPServer.new('127.0.0.1', 0)
      loop_fiber = spin { server.accept_loop { |socket| spin { socket << socket.gets; socket.close } } }
      port = server.local_address.ip_port
      Array.new(5) do |i|
        spin { TCPSocket.open('127.0.0.1', port) { |socket| socket << "hello #{i}\n"; socket.read } }
      end.map(&:await) == Array.new(5) { |i| "hello #{i}\n" }
    ensure
      loop_fiber&.stop
      loop_fiber&.await
      server&.close
    end

    def tls
      context = OpenSSL::SSL::SSLContext.new
      context.cert, context.key = CERTIFICATE, KEY
      tcp do |client, served|
        server = spin { OpenSSL::SSL::SSLSocket.new(served, context).tap(&:accept).tap { |tls| tls.write(BYTES); tls.close } }
        tls = OpenSSL::SSL::SSLSocket.new(client).tap(&:connect)
        tls.read.b == BYTES && (server.await; true)
      end
    end

    # A page, and a file that goes out with sendfile, on connections that stay and on such that do not.
    def http
      Dir.mktmpdir('failing') do |root|
        File.binwrite("#{root}/file", BYTES)
        server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new) do |request|
          request.path == '/file' ? request.serve_file('/file', root: root) : request.respond(request.path)
        end
        server.start
        http_clients(server.port)
      ensure
        server&.stop(within: 0)
      end
    end

    def http_clients(port)
      pages = Array.new(5) { |i| spin { http_get(port, "/page#{i}") == "/page#{i}" } }
      files = Array.new(2) { spin { http_get(port, '/file') == BYTES } }
      [*pages, *files].map(&:await).all?
    end

    # A connection that the server has had to give up is an answer, half a body is none that anybody would take for one.
    def http_get(port, path)
      TCPSocket.open('127.0.0.1', port) do |socket|
        socket.write("GET #{path} HTTP/1.1\r\nHost: x\r\n\r\n")
        head = socket.gets("\r\n\r\n") or raise EOFError, 'no answer'
        raise IOError, head unless head.start_with?('HTTP/1.1 200')

        length = Integer(head[/^content-length: (\d+)/i, 1], 10)
        body = socket.read(length)
        raise EOFError, "#{body&.bytesize.inspect} of #{length} bytes" unless body&.bytesize == length

        body.b
      end
    end

    # Streams side by side, two of them with a body to and fro.
    def http2
      server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new) do |request|
        request.verb == 'POST' ? request.respond(request.read) : request.respond(request.path)
      end
      server.start
      client = HTTP2Client.new(TCPSocket.new('127.0.0.1', server.port))
      http2_streams(client)
    ensure
      client&.io&.close
      server&.stop(within: 0)
    end

    # A stream that was reset is an answer, and so is the end of the connection.
    def http2_streams(client)
      body = BYTES.byteslice(0, 16_000)
      [1, 3, 5].each { |id| client.write(client.headers(id, client.fields('GET', "/page#{id}"))) }
      [7, 9].each { |id| client.write(client.headers(id, client.fields('POST', '/'), flags: 4) + client.data(id, body, last: true)) }
      [1, 3, 5, 7, 9].all? do |id|
        status = client.await(id)
        raise IOError, "stream #{id}: #{status.inspect}" unless status == 200

        client.bodies[id] == (id < 6 ? "/page#{id}" : body)
      end
    end

    # With compression, which refers to what was sent before.
    def websocket
      server = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: StringIO.new) do |request|
        request.upgrade_to_websocket(compress: :context) { |ws| ws.each { |message| ws << message } }
      end
      server.start
      client = Polyphony::HTTP::WebSocket.connect("ws://127.0.0.1:#{server.port}/", compress: :context)
      [BYTES, 'a' * 10_000, 'short'].all? do |message|
        client << message
        echo = client.receive or raise IOError, 'the connection has ended'
        echo.b == message.b
      end
    ensure
      client&.close
      server&.stop(within: 0)
    end

    # Another thread's loop, which waits in the kernel, is told.
    def woken
      queue = Thread::Queue.new
      begun = Thread::Queue.new
      thread = Thread.new { begun << 0; spin { queue.pop }.await }
      begun.pop
      sleep 0.002
      queue << 1
      thread.value == 1
    end

    def in_child
      parent = Process.pid
      pid = fork { exit!(yield ? 7 : 8) rescue exit!(9) }
      Process.wait(pid)
      raise IOError, 'the child was refused something' if [1, 9].include?($?.exitstatus)

      $?.exitstatus == 7
    rescue *ANSWERS
      exit!(99) unless Process.pid == parent # it must not go on in its place
      raise
    end

    def select
      reader, writer = IO.pipe
      spin { writer << 'x' }
      IO.select([reader], nil, nil, 5) == [[reader], [], []]
    ensure
      [reader, writer].compact.each(&:close)
    end

    # A read that is cancelled and one that is not, and nothing between them is lost.
    def cancel
      reader, writer = IO.pipe
      got = +''
      spin { 20.times { |i| writer << (97 + i).chr; snooze }; writer.close }
      until got.bytesize == 20
        fiber = spin { got << reader.readpartial(3) }
        snooze
        fiber.stop
        fiber.await
        got << reader.readpartial(1) unless got.bytesize == 20
      end
      got == ('a'..'t').to_a.join
    ensure
      [reader, writer].compact.each { |io| io.close unless io.closed? }
    end

    # A connection that comes when nobody waits for it any more is there for who asks next.
    def late_accept
      server = TCPServer.new('127.0.0.1', 0)
      waiting = spin { server.accept }
      snooze
      client = TCPSocket.new('127.0.0.1', server.local_address.ip_port)
      waiting.stop
      early = waiting.await
      served = early.is_a?(Socket) || early.is_a?(TCPSocket) ? early : server.accept
      client << 'x'
      served.readpartial(1) == 'x'
    ensure
      [served, client, server].compact.each(&:close)
    end

    def datagrams
      left, right = UNIXSocket.pair(:DGRAM)
      10.times.all? { |i| left.send("datagram #{i}", 0); right.recv(100) == "datagram #{i}" }
    ensure
      [left, right].compact.each(&:close)
    end

    # --- the run ------------------------------------------------------------------------------------

    # By what they are: numbers of pipes and sockets say nothing.
    def descriptors
      links = Dir.children('/proc/self/fd').filter_map { |fd| File.readlink("/proc/self/fd/#{fd}").sub(/:\[\d+\]/, '') rescue nil }
      links.reject { |path| path.include?('/tmp/sanitize/report.') }.tally # where a sanitizer says that there was no memory
    end

    # @return [Object] true, or an answer
    def attempt(task)
      spin do
        task.call
      rescue *ANSWERS => e
        e
      end.await
    rescue *ANSWERS => e
      e
    end

    def check(name, seed, result, answers)
      return if result == true || (answers && ANSWERS.any? { |one| one === result })

      detail = result.is_a?(Exception) ? result.full_message(highlight: false) : result.inspect
      abort "#{$now}: #{detail}"
    end

    # Errors of a task's fibers, of which it has heard one, come to the main fiber: not in the next task.
    def late
      Fiber.current.shutdown_all_children
      snooze
      true
    rescue *ANSWERS
      retry
    end

    def go(seed, harmless, harmful)
      @tasks.shuffle(random: Random.new(seed)).each do |name, task|
        $now = "seed #{seed}, #{name}, #{harmful.zero? ? 'not to be noticed' : 'for good'}"
        result = Polyphony::Testing.faults(seed: seed, **(harmful.positive? ? HARMFUL : harmless.positive? ? HARMLESS : {})) do
          SET.call(harmless, harmful, seed)
          Polyphony::CancelScope.move_on_after(60, :hangs) { attempt(task) }
        ensure
          SET.call(0.0, 0.0, 0)
        end
        check(name, seed, late, true)
        check(name, seed, result, !harmful.zero?)
      end
    end

    def run(first, last, names)
      @tasks = TASKS.select { |name, _| names.empty? || names.include?(name.to_s) }.to_a
      Process.warmup if Process.respond_to?(:warmup)
      go(0, 0.0, 0.0)
      before = settled
      (first..last).each do |seed|
        go(seed, 0.2, 0.0)
        go(seed, 0.1, 0.3)
        go(seed, 0.0, 0.0) # all is well again
        after = settled
        left = after.reject { |what, count| count <= before.fetch(what, 0) + SLACK.fetch(what, 0) }
        abort "seed #{seed}: there are #{left}, before there were #{before}" unless left.empty?
      end
      puts "struck #{COUNT.call(0)} and #{COUNT.call(1)} times"
    end

    def settled
      GC.start
      sleep 0.01
      GC.start
      descriptors
    end
  end
end

trap('USR2') { warn $now }
FailingWorkload.run(Integer(ARGV.shift), Integer(ARGV.shift), ARGV)
