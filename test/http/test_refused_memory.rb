# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/failing_calls'
require 'polyphony/http'

# There is no memory for something that one client wants: that is the end of its connection at most. See support/refused_memory.rb.
class TestRefusedMemory < Polyphony::TestCase
  on_every_driver
  time_limit 180

  # @return [Integer] how many requests were refused
  def refuse_all(client)
    heavy
    skip 'AddressSanitizer has a malloc of its own' if ENV['ASAN_OPTIONS']
    Dir.mktmpdir('refused_memory') do |folder|
      library = Polyphony::FailingCalls.build(folder) or skip 'failing_calls.c cannot be compiled here'
      out, err, status = run_ruby("load '#{Polyphony::FailingCalls.path('refused_memory.rb')}'", client, timeout: 150, gems: true, options: ['-W0'],
                                  env: { **Polyphony::FailingCalls.environment(library, entries: 0), 'BUNDLE_GEMFILE' => nil, 'BUNDLE_LOCKFILE' => nil })
      assert_predicate status, :success?, out + err
      out[/\A\d+/].to_i
    end
  end

  def test_a_client_of_http2_without_memory_harms_nobody_else
    skip 'libnghttp2 was not found' unless Polyphony::HTTP.http2?
    assert_operator refuse_all('http2'), :>, 30
  end

  def test_a_websocket_without_memory_harms_nobody_else
    skip 'zlib was not found' unless Polyphony::HTTP::WebSocket.deflate?
    assert_operator refuse_all('websocket'), :>=, 4
  end
end
