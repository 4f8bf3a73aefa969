# frozen_string_literal: true

# The server that the tests of hostile input attack, in a process of its own: so that its memory, its
# descriptors and its time can be read, and its log is nobody else's. Its one argument is JSON: limits, tls, log.
# Writes its addresses as JSON, and ends when its standard input does.

require 'json'
require 'polyphony/http'
require_relative 'malloc'

module Polyphony
  # What it does at each path.
  class HostileServer
    MEGABYTE = ('x' * 1_048_576).freeze

    def initialize(settings)
      @settings = settings
      @log = HTTP::Log.new(File.open(settings['log'], 'a').tap { |file| file.sync = true })
      @handlers = @begun = @ended = 0
    end

    def run
      limits = @settings.fetch('limits', {}).transform_keys(&:to_sym)
      @server = HTTP::Server.new(*listeners, limits: limits, log: @log) { |request| handle(request) }
      @server.start
      puts JSON.generate(urls: @server.listeners.map(&:address))
      $stdout.flush
      $stdin.read
      @server.stop(within: 0)
    end

    private

    def listeners
      plain = HTTP::Listener.new('http://127.0.0.1:0')
      return [plain] unless @settings['tls']

      [plain, HTTP::Listener.new('https://127.0.0.1:0', tls: HTTP::TLS.new(**@settings['tls'].transform_keys(&:to_sym)))]
    end

    def handle(request)
      @handlers += 1
      case request.path
      when '/' then request.respond("ok #{request['x-forwarded-for']}\n")
      when '/control' then request.respond(JSON.generate(control))
      when '/fresh' then fresh(request)
      when '/tidy' then request.respond([GC.start, Malloc.trim].inspect)
      when '/sink' then request.respond("#{request.each_chunk.sum(&:bytesize)} #{request.trailers.keys.sort.join(',')}\n")
      when '/large' then large(request)
      when '/held' then held(request)
      when '/deaf' then deaf(request)
      when '/websocket' then echo(request)
      when %r{\A/bad/(\w+)\z} then bad(request, Regexp.last_match(1))
      when %r{\A/files(/.*)\z} then files(request, Regexp.last_match(1))
      else request.respond("nothing here\n", {}, status: 404)
      end
    end

    # How things stand.
    def control
      GC.start
      { fibers: count(@server.instance_variable_get(:@fiber)),
        descriptors: descriptors, operations: Thread.current.backend.stats[:pending_ops],
        handlers: @handlers, begun: @begun, ended: @ended, **@server.stats.to_h }
    end

    # Without the report of a sanitizer.
    def descriptors
      Dir.children('/proc/self/fd').count do |fd|
        !File.readlink("/proc/self/fd/#{fd}").include?('/tmp/sanitize/report.')
      rescue Errno::ENOENT
        true # the folder itself
      end
    end

    def count(fiber)
      1 + fiber.children.sum { |child| count(child) }
    end

    # The log begins anew: of each reason some lines may be written again.
    def fresh(request)
      @log.instance_variable_get(:@kinds).clear
      @log.io.truncate(0)
      request.respond('')
    end

    # 1 GB, or what is taken of it.
    def large(request)
      @begun += 1
      request.send_headers
      1_024.times { request.send_chunk(MEGABYTE) }
    ensure
      @ended += 1
    end

    # Takes its time with the answer.
    def held(request)
      @begun += 1
      request.each_chunk { nil }
      sleep 0.2
      request.respond("done\n")
    ensure
      @ended += 1
    end

    # Does not read what it is sent.
    def deaf(request)
      sleep 1
      request.respond("what?\n")
    end

    def echo(request)
      request.upgrade_to_websocket { |socket| socket.each { |message| socket << message } }
    end

    def files(request, path)
      request.serve_file(path, root: @settings['root'])
    end

    # Applications that do what must not be done.
    def bad(request, what)
      case what
      when 'crlf' then request.respond('x', { 'x-name' => "a\r\nset-cookie: evil=1" })
      when 'lf' then request.respond('x', { 'x-name' => "a\nset-cookie: evil=1" })
      when 'nul' then request.respond('x', { 'x-name' => "a\0b" })
      when 'name' then request.respond('x', { "x: y\r\nset-cookie" => 'evil=1' })
      when 'space' then request.respond('x', { 'x name' => 'y' })
      when 'empty' then request.respond('x', { '' => 'y' })
      when 'te' then request.respond('hello', { 'transfer-encoding' => 'chunked' })
      when 'status99' then request.respond('x', {}, status: 99)
      when 'status1000' then request.respond('x', {}, status: 1000)
      when 'status0' then request.respond('x', {}, status: 'abc')
      when 'body204' then request.respond('x' * 100, {}, status: 204)
      when 'body304' then request.respond('x' * 100, {}, status: 304)
      when 'chunk204' then request.send_headers({}, status: 204).send_chunk('x' * 100)
      when 'head' then request.send_headers.send_chunk('x' * 100)
      when 'less' then request.send_headers({ 'content-length' => '100' }).send_chunk('x')
      when 'more' then request.send_headers({ 'content-length' => '1' }).send_chunk("HTTP/1.1 200 OK\r\n\r\n")
      when 'lengths' then request.respond('hello', { 'content-length' => '100' })
      when 'length' then request.send_headers({ 'content-length' => "5\r\nx: y" }).send_chunk('hello')
      when 'hints' then request.early_hints('link' => "</a>\r\nHTTP/1.1 200 OK\r\n").respond('x')
      when 'trailers' then request.send_chunk('x').finish(trailers: { 'x' => "a\r\n\r\nHTTP/1.1 200 OK" })
      when 'raise' then raise 'secret of the application'
      when 'late' then request.send_chunk('x') && raise('secret of the application')
      when 'nothing' then nil
      when 'twice' then request.respond('x').respond('y')
      when 'exit' then raise SystemStackError, 'secret of the application'
      end
    end
  end
end

Polyphony::HostileServer.new(JSON.parse(ARGV.fetch(0))).run
