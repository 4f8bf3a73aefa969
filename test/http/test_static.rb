# frozen_string_literal: true

require_relative '../test_helper'
require 'fileutils'
require 'net/http'
require 'open3'
require 'polyphony/http'
require 'stringio'
require 'tmpdir'
require 'zlib'

class TestStatic < Polyphony::TestCase
  on_every_driver

  HTTP = Polyphony::HTTP
  ALPHABET = ('a'..'z').to_a.join

  def setup
    @dir = Dir.mktmpdir
    @root = File.join(@dir, 'root')
    FileUtils.mkdir_p(["#{@root}/sub/deep", "#{@root}/.git", "#{@root}/.well-known", "#{@root}/empty"])
    { 'index.html' => '<p>home', 'a.txt' => ALPHABET, 'sub/index.html' => '<p>sub', 'sub/deep/x' => 'deep', '.git/config' => 'secret',
      '.well-known/acme' => 'token', '.hidden' => 'secret', 'ü b.css' => 'p {}', 'none' => '', '../secret' => 'secret', 'back\\slash' => 'x',
      '100%.txt' => 'percent', 'rootless' => 'x' }.each { |name, text| File.write(File.join(@root, name), text) }
    File.write("#{@dir}/root-secret", 'secret') # its name begins as the root's
    File.symlink("#{@dir}/secret", "#{@root}/out")
    File.symlink("#{@dir}/root-secret", "#{@root}/out2")
    File.symlink('/etc', "#{@root}/etc")
    File.symlink('a.txt', "#{@root}/link.txt")
    File.symlink('loop', "#{@root}/loop")
    File.mkfifo("#{@root}/fifo")
    File.symlink('/dev/zero', "#{@root}/zero")
    UNIXServer.new("#{@root}/socket").close
  end

  def teardown
    @server&.stop(within: 0)
    FileUtils.rm_rf(@dir)
    super
  end

  def serve(app = nil, limits: {}, **options, &handler)
    @log = StringIO.new
    app ||= HTTP::Static.new(@root, **options) unless handler
    @server = HTTP::Server.new('http://127.0.0.1:0', log: @log, app: app, limits: limits, &handler).start
  end

  # As it is: nothing is tidied up on our side.
  def raw(target, headers = {}, verb: 'GET', **more)
    headers = headers.merge(more)
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    io.write("#{verb} #{target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n#{headers.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n")
    head, body = io.read.split("\r\n\r\n", 2)
    status, *fields = head.split("\r\n")
    [Integer(status[/ (\d+) /, 1], 10), fields.to_h { |line| line.split(': ', 2) }, body]
  ensure
    io.close
  end

  def test_a_file_is_served_with_what_a_client_needs
    serve(cache_control: 'max-age=60', headers: { 'x-frame-options' => 'DENY' })
    status, headers, body = raw('/a.txt')
    assert_equal [200, ALPHABET], [status, body]
    assert_equal ['text/plain; charset=utf-8', '26', 'bytes', 'max-age=60', 'DENY'],
                 headers.values_at('content-type', 'content-length', 'accept-ranges', 'cache-control', 'x-frame-options')
    assert_match(/\A"\h+-\h+"\z/, headers['etag'])
    assert_equal File.mtime("#{@root}/a.txt").httpdate, headers['last-modified']
    head_status, head_headers, head_body = raw('/a.txt', verb: 'HEAD')
    assert_equal [200, ''], [head_status, head_body]
    assert_equal headers.reject { |name, _| name == 'date' }, head_headers.reject { |name, _| name == 'date' }
    assert_empty @log.string
  end

  GOOD = { '/' => '<p>home', '/sub/' => '<p>sub', '/sub/deep/x' => 'deep', '/link.txt' => ALPHABET, '/none' => '', '/%61.txt' => ALPHABET,
           '/%C3%BC%20b.css' => 'p {}', '/100%25.txt' => 'percent', '/.well-known/acme' => 'token', '/a.txt?version=2' => ALPHABET }.freeze
  BAD = %w[/../secret /sub/../../secret /%2e%2e/secret /%2e%2e%2fsecret /..%2fsecret /..%5csecret /sub/..%5c..%5csecret /back%5cslash /./a.txt
           /%2e/a.txt /a.txt%00 /%00 /a.txt%00.html /%c0%ae%c0%ae/secret /%e0%80%ae/secret /%ff /sub%2findex.html /100%.txt /%zz /% /%4
           /a%0ab].freeze
  MISSING = %w[/nothing /a.txt/ /a.txt/x /out /out2 /etc/passwd /etc/ /.git/config /.hidden /loop /fifo /zero /socket /empty/
               //a.txt /sub//index.html /%252e%252e/secret /A.TXT].freeze

  def test_paths_lead_to_files_of_the_root_and_nowhere_else
    heavy
    serve
    GOOD.each { |path, text| assert_equal [200, text], raw(path).values_at(0, 2), path }
    BAD.each { |path| assert_equal [400, "Bad Request\n"], raw(path).values_at(0, 2), path }
    MISSING.each { |path| assert_equal [404, "Not Found\n"], raw(path).values_at(0, 2), path }
    assert_equal 404, raw("/#{'x' * 5000}").first
    assert_includes @log.string, 'a path with a way out'
    assert_empty @log.string.lines.grep_v(/refused/)
  end

  def test_a_folder_is_called_with_a_slash
    serve
    status, headers, = raw('/sub?x=1')
    assert_equal [301, '/sub/?x=1'], [status, headers['location']]
    @server.stop
    serve(index: nil)
    assert_equal [404, 404], [raw('/sub').first, raw('/sub/').first]
  end

  def test_hidden_files_are_shown_if_wanted
    serve(hidden: true)
    assert_equal [200, 'secret'], raw('/.hidden').values_at(0, 2)
    assert_equal 400, raw('/..').first
  end

  def test_other_methods_are_not_for_files
    serve
    status, headers, = raw('/a.txt', { 'content-length' => '0' }, verb: 'POST')
    assert_equal [405, 'GET, HEAD'], [status, headers['allow']]
  end

  def test_a_prefix_is_taken_off_and_types_can_be_given
    serve(prefix: '/assets/', types: { '.txt' => 'text/x-special' })
    status, headers, = raw('/assets/a.txt')
    assert_equal [200, 'text/x-special; charset=utf-8'], [status, headers['content-type']]
    assert_equal 'application/octet-stream', raw('/assets/none')[1]['content-type']
    assert_equal 404, raw('/elsewhere/a.txt').first
    assert_equal [404, 404], [raw('/assetsa.txt').first, raw('/a.txt').first]
  end

  def test_a_root_that_is_none_is_told_at_once
    assert_raises(Errno::ENOENT) { HTTP::Static.new("#{@dir}/nothing") }
    assert_raises(Errno::ENOTDIR) { HTTP::Static.new("#{@root}/a.txt") }
  end

  # --- conditions -------------------------------------------------------------------------------------

  def test_a_client_that_has_it_gets_no_body
    serve
    _, first, = raw('/a.txt')
    etag = first['etag']
    time = first['last-modified']
    earlier = (Time.httpdate(time) - 60).httpdate
    { { 'if-none-match' => etag } => 304, { 'if-none-match' => "W/#{etag}" } => 304, { 'if-none-match' => "\"x\", #{etag}" } => 304,
      { 'if-none-match' => '*' } => 304, { 'if-none-match' => '"x"' } => 200, { 'if-modified-since' => time } => 304,
      { 'if-modified-since' => earlier } => 200, { 'if-modified-since' => 'yesterday' } => 200,
      { 'if-none-match' => '"x"', 'if-modified-since' => time } => 200, { 'if-match' => etag } => 200, { 'if-match' => "W/#{etag}" } => 412,
      { 'if-match' => '"x"' } => 412, { 'if-match' => '*' } => 200, { 'if-unmodified-since' => time } => 200,
      { 'if-unmodified-since' => earlier } => 412 }.each do |condition, expected|
      status, headers, body = raw('/a.txt', condition)
      assert_equal expected, status, condition.inspect
      assert_equal [etag, ''], [headers['etag'], body] if expected == 304
    end
  end

  def test_the_tag_changes_with_the_file
    serve
    before = raw('/a.txt')[1]['etag']
    File.write("#{@root}/a.txt", ALPHABET.reverse)
    File.utime(Time.now, Time.now + 1, "#{@root}/a.txt")
    refute_equal before, raw('/a.txt')[1]['etag']
  end

  # --- parts ------------------------------------------------------------------------------------------

  def test_parts_are_as_asked_for
    serve
    { '0-3' => 'abcd', '2-2' => 'c', '20-' => 'uvwxyz', '-3' => 'xyz', '-100' => ALPHABET, '0-1000' => ALPHABET, '24-99' => 'yz',
      '0-3,2-5' => 'abcdef', '0-3,4-5' => 'abcdef', '3-5, 0-1 , 2-2' => 'abcdef', '30-40,-2' => 'yz' }.each do |range, expected|
      status, headers, body = raw('/a.txt', 'range' => "bytes=#{range}")
      from = ALPHABET.index(expected)
      assert_equal [206, expected, "bytes #{from}-#{from + expected.size - 1}/26"], [status, body, headers['content-range']], range
    end
    ['items=0-3', 'bytes', '0-3'].each { |range| assert_equal [200, ALPHABET], raw('/a.txt', 'range' => range).values_at(0, 2) }
  end

  def test_parts_that_are_none_are_refused
    serve
    many = (0...1000).map { |i| "#{i}-#{i}" }.join(',')
    ['5-1', '26-', '100-200', '-0', '', 'a-b', '--1', '1-2-3', '-', '0-1,x', '+1-2', '99999999999999999999-', many,
     (['0-1'] * 17).join(',')].each do |range|
      status, headers, = raw('/a.txt', 'range' => "bytes=#{range}")
      assert_equal [416, 'bytes */26'], [status, headers['content-range']], range[0, 30]
    end
    assert_equal 416, raw('/none', 'range' => 'bytes=0-').first
  end

  def test_several_parts_come_in_one_answer
    serve
    status, headers, body = raw('/a.txt', 'range' => 'bytes=0-1, 5-6, -2')
    assert_equal 206, status
    boundary = headers['content-type'][/\Amultipart\/byteranges; boundary=(\h+)\z/, 1]
    assert_equal Integer(headers['content-length'], 10), body.bytesize
    parts = body.split("\r\n--#{boundary}").drop(1)
    assert_equal "--\r\n", parts.pop
    assert_equal [['bytes 0-1/26', 'ab'], ['bytes 5-6/26', 'fg'], ['bytes 24-25/26', 'yz']],
                 parts.map { |part| [part[/content-range: (.*)\r/, 1], part.split("\r\n\r\n", 2).last] }
  end

  def test_parts_of_another_version_are_not_sent
    serve
    _, first, = raw('/a.txt')
    { first['etag'] => 206, '"x"' => 200, "W/#{first['etag']}" => 200, first['last-modified'] => 206,
      (Time.httpdate(first['last-modified']) - 1).httpdate => 200 }.each do |condition, expected|
      assert_equal expected, raw('/a.txt', 'range' => 'bytes=0-1', 'if-range' => condition).first, condition
    end
  end

  # --- compressed -------------------------------------------------------------------------------------

  def compress
    File.write("#{@root}/page.html", '<p>' * 1000)
    Zlib::GzipWriter.open("#{@root}/page.html.gz") { |gz| gz.write('<p>' * 1000) }
    File.write("#{@root}/page.html.br", 'as if it were brotli')
  end

  def test_a_compressed_file_is_chosen_by_what_the_client_likes
    compress
    serve
    { 'gzip, br' => 'br', 'gzip' => 'gzip', 'gzip;q=1, br;q=0.5' => 'gzip', 'br;q=0' => nil, '*' => 'br', '*;q=0' => nil, 'gzip;q=0, *' => 'br',
      'identity' => nil, 'identity;q=1, gzip;q=0.5' => nil, '' => nil, 'deflate' => nil, 'GZIP' => 'gzip', 'gzip;q=0.001' => 'gzip',
      'gzip;q=nan' => nil }.each do |accept, expected|
      status, headers, body = raw('/page.html', 'accept-encoding' => accept)
      assert_equal [200, expected, 'accept-encoding', 'text/html; charset=utf-8'],
                   [status, *headers.values_at('content-encoding', 'vary', 'content-type')].then { |a| [a[0], a[1], a[2], a[3]] }, accept
      assert_equal '<p>' * 1000, expected == 'gzip' ? Zlib.gunzip(body) : body unless expected == 'br'
    end
    tags = [nil, 'gzip', 'br'].map { |coding| raw('/page.html', 'accept-encoding' => coding.to_s)[1]['etag'] }
    assert_equal 3, tags.uniq.size
    refute raw('/a.txt')[1].key?('vary')
  end

  def test_compressed_files_that_are_old_or_lead_out_are_left
    compress
    File.utime(Time.now, Time.now - 1000, "#{@root}/page.html.br")
    File.unlink("#{@root}/page.html.gz")
    File.symlink("#{@dir}/secret", "#{@root}/page.html.gz")
    serve
    assert_equal '<p>' * 1000, raw('/page.html', 'accept-encoding' => 'br, gzip')[2]
    @server.stop
    serve(precompressed: false)
    refute raw('/page.html', 'accept-encoding' => 'br, gzip')[1].key?('vary')
  end

  # --- serve_file -------------------------------------------------------------------------------------

  def test_a_handler_serves_a_file_of_its_choice
    root = @root
    found = []
    serve do |request|
      found << case request.path
               when '/own' then request.serve_file("#{root}/.hidden", type: 'text/x-own', headers: { 'x-mine' => '1' })
               when '/missing' then request.serve_file("#{root}/nothing")
               else request.serve_file(request.path, root: root, cache_control: 'no-cache')
               end
    end
    status, headers, body = raw('/own')
    assert_equal [200, 'text/x-own; charset=utf-8', '1', 'secret'].values_at(0, 2, 3), [status, headers['x-mine'], body]
    assert_equal 404, raw('/missing').first
    assert_equal [200, 'no-cache'], raw('/a.txt').then { |answer| [answer[0], answer[1]['cache-control']] }
    assert_equal [400, 404, 404], [raw('/%2e%2e/secret').first, raw('/out').first, raw('/sub/').first]
    assert_equal [true, false, true, false, false, false], found
  end

  # --- big ones ---------------------------------------------------------------------------------------

  def big(size = 20_000_000)
    File.binwrite("#{@root}/big", Random.new(1).bytes(size))
    "#{@root}/big"
  end

  def test_a_big_file_arrives_whole_and_others_are_served_meanwhile
    heavy
    path = big
    serve
    reader = spin { Net::HTTP.get(URI("#{@server.url}/big")) }
    answered = 0
    until reader.dead?
      raw('/none') && answered += 1
    end
    assert_equal Zlib.crc32(File.binread(path)), Zlib.crc32(reader.await)
    assert_operator answered, :>, 1
    status, _, body = raw('/big', 'range' => 'bytes=9999990-10000009')
    assert_equal [206, File.binread(path, 20, 9_999_990)], [status, body]
  end

  def test_curl_resumes_a_download
    skip 'curl is not there' unless system({ 'LD_PRELOAD' => nil }, 'curl --version', out: File::NULL)

    path = big(3_000_000)
    serve
    copy = "#{@dir}/copy"
    File.binwrite(copy, File.binread(path, 1_000_001))
    _, status = Open3.capture2e({ 'LD_PRELOAD' => nil }, 'curl', '-sS', '-C', '-', '-o', copy, "#{@server.url}/big")
    assert_predicate status, :success?
    assert_equal File.binread(path), File.binread(copy)
  end

  # The client must see that it is not whole: fewer bytes than were announced.
  def test_a_file_that_becomes_shorter_is_an_error
    path = big
    serve
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    io.write("GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
    io.gets("\r\n\r\n")
    io.read(1000)
    File.truncate(path, 5_000)
    rest = begin
      io.read.bytesize
    rescue Errno::ECONNRESET
      0
    end
    assert_operator rest, :<, 19_000_000
    assert_match(/error in GET \/big: the file has ended at \d+/, @log.string)
    assert_equal 1, @log.string.lines.grep(/error in/).size
  end

  def test_a_client_that_does_not_read_a_file_is_given_up
    big
    serve(limits: { write_stall: 0.1 })
    io = track(TCPSocket.new('127.0.0.1', @server.port))
    io.write("GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
    snooze until @log.string.include?('took nothing')
    assert_equal 0, @server.stats.running
  end

  def test_a_client_that_goes_costs_no_descriptor
    heavy
    big
    serve
    10.times do
      io = TCPSocket.new('127.0.0.1', @server.port)
      io.write("GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
      io.readpartial(100)
      io.close
    end
    snooze until @server.stats.open.zero?
    assert_empty Dir['/proc/self/fd/*'].map { |fd| File.readlink(fd) rescue nil }.compact.grep(/root\/big/)
  end

  def test_a_file_that_cannot_be_read_is_our_fault
    reader, = pipe_pair
    serve do |request|
      request.send_headers({ 'content-length' => '5' })
      request.send_file_part(reader, 0, 5)
    end
    assert_equal 200, raw('/').first
    assert_match(/error in GET \/: the file cannot be read/, @log.string)
  end

  # sendfile(2) would wait for the disk, and everybody with it.
  def test_a_file_that_is_not_in_memory_arrives_whole
    path = big(2_000_000)
    File.open(path) { |file| file.fsync && file.advise(:dontneed) }
    serve
    assert_equal File.binread(path), Net::HTTP.get(URI("#{@server.url}/big"))
  end
end
