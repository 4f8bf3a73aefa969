# frozen_string_literal: true

# Runs the blocks of a page, which it gets from its standard input: see doc_block.rb and test_docs.rb.

require 'polyphony'
require 'socket'
require 'tempfile'
require 'net/http'

$stderr.sync = $stdout.sync = true

def check(expected, line = caller_locations(1, 1).first.lineno)
  actual = begin
    yield.inspect
  rescue Exception => e
    "raises #{e.class}"
  end
  return if actual == expected || expected.start_with?("#{actual}, ")

  $differences << "line #{line}: expected #{expected}, got #{actual}"
end

# What a page is read at, as soon as somebody listens there.
def get(url, **headers)
  patiently { Net::HTTP.get(URI(url), headers.transform_keys(&:to_s)) }
end

# The first line that is like that in the answer of a server.
def first_line(port, pattern)
  socket = TCPSocket.new('127.0.0.1', port)
  socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
  line = socket.gets until line&.match?(pattern)
  line
ensure
  socket&.close
end

def patiently
  500.times do
    return yield
  rescue Errno::ECONNREFUSED, Errno::ENOENT
    sleep 0.02
  end
  yield
end

def run_block(block)
  scope = TOPLEVEL_BINDING.dup
  scope.local_variable_set(:text, block[:text])
  place = block.values_at(:page, :line)
  eval(block[:before], scope, *place) if block[:before]
  code = block[:by] || block[:code]
  if block[:meanwhile]
    over = Class.new(Exception)
    main = Fiber.current
    spin do
      eval(block[:meanwhile], scope, *place)
      main.raise(over)
    end
    begin
      eval(code, scope, *place)
      sleep # until what is beside it has ended
    rescue over
      nil
    end
  else
    eval(code, scope, *place)
  end
  eval(block[:after], scope, *place) if block[:after]
rescue SystemExit => e
  $differences << "#{block[:page]}:#{block[:line]}: exits with #{e.status}" unless e.success?
ensure
  Fiber.current.shutdown_all_children
end

$differences = []
Marshal.load($stdin.binmode.read).each { |block| run_block(block) } # rubocop:disable Security/MarshalLoad
abort $differences.join("\n") if $differences.any?
