# frozen_string_literal: true

# Shows what an application sees of a request, and answers in every way that Rack knows. Runs on our server and
# on Puma, whose answers are compared: test/http/test_rack_beside_puma.rb.
require 'digest'
require 'json'
require 'rack'
require 'tempfile'

class Pieces
  def initialize(*pieces)
    @pieces = pieces
  end

  def each(&block)
    @pieces.each(&block)
  end
end

class PathBody < Pieces
  def initialize(path)
    super(File.binread(path))
    @path = path
  end

  def to_path
    @path
  end
end

TEXT = { 'content-type' => 'text/plain' }.freeze
LARGE = Tempfile.new('large', binmode: true).tap { |file| file.write('large file ' * 30_000) }.tap(&:flush)

BODIES = {
  'array' => -> { ['hello'] },
  'arrays' => -> { %w[one two three] },
  'empty' => -> { [] },
  'utf8' => -> { ["gr\u00fc\u00df ", "\u{1f600}"] },
  'binary' => -> { ["\x00\xff\r\n\r\n".b] },
  'pieces' => -> { Pieces.new('one', '', 'two') },
  'nothing' => -> { Pieces.new },
  'large' => -> { Pieces.new(*(['x' * 10_000] * 20)) },
  'file' => -> { PathBody.new(__FILE__) },
  'large_file' => -> { PathBody.new(LARGE.path) },
  'proxy' => -> { Rack::BodyProxy.new(['proxied']) {} },
  'call' => -> { ->(stream) { stream.write('called'); stream.close } }
}.freeze

# Names that only one of the servers has, or that tell which one it is. Rack asks for none of them.
OWN_NAMES = %w[GATEWAY_INTERFACE SERVER_SOFTWARE REMOTE_PORT HTTP_VERSION REQUEST_PATH].freeze

def what_came(env)
  body = env['rack.input']&.read.to_s
  seen = { 'seen' => true }.merge(env.reject { |key, _| key.include?('.') }.except(*OWN_NAMES).sort.to_h)
  seen['scheme'] = env['rack.url_scheme']
  seen['body'] = [body.bytesize, Digest::MD5.hexdigest(body)]
  seen['encodings'] = seen.values_at('PATH_INFO', 'QUERY_STRING').map { |text| text.b == text.b.encode('UTF-8', invalid: :replace, undef: :replace).b }
  seen['params'] = Rack::Request.new(env).GET.inspect
  JSON.generate(seen.transform_values { |value| value.is_a?(String) ? value.dup.force_encoding('UTF-8').scrub : value })
end

mirror = lambda do |env|
  _, what, arg = env['PATH_INFO'].split('/', 3)
  query = Rack::Utils.parse_query(env['QUERY_STRING']) rescue {}
  case what
  when 'status' then [Integer(arg), query['location'] ? { 'location' => query['location'] } : {}, [204, 304].include?(Integer(arg)) ? [] : ['status']]
  when 'body' then [200, TEXT.merge(query['length'] ? { 'content-length' => query['length'] } : {}), BODIES.fetch(arg).call]
  when 'cookies' then [200, TEXT.merge('set-cookie' => ['a=1; path=/', 'b=2']), ['cookies']]
  when 'headers' then [200, TEXT.merge('x-empty' => '', 'x-long' => 'y' * 3000, 'etag' => '"1"', 'cache-control' => 'no-store'), ['headers']]
  when 'close' then [200, TEXT.merge('connection' => 'close'), ['closing']]
  when 'early' then env['rack.input']&.close; [413, TEXT.dup, ['too much']]
  when 'form' then [200, TEXT.dup, [Rack::Request.new(env).POST.transform_values { |v| v.is_a?(Hash) ? v[:tempfile].read.bytesize : v }.inspect]]
  when 'raise' then raise 'on purpose'
  else [200, TEXT.dup, [what_came(env)]]
  end
end

map('/files') { run Rack::Files.new(__dir__) }
map('/etag') { use Rack::ConditionalGet; use Rack::ETag; run ->(_env) { [200, TEXT.dup, ['tagged']] } }
map('/deflate') { use Rack::Deflater; run ->(_env) { [200, TEXT.dup, ['deflate me ' * 100]] } }
map('/head') { use Rack::Head; use Rack::ContentLength; run mirror }
map('/sub') { run mirror }
map('/') { run mirror }
