# frozen_string_literal: true

require_relative '../test_helper'

# OpenSSL is extended, whoever comes first, and not loaded for those who do not need it.
class TestWhenRequired < Polyphony::TestCase
  on_every_driver

  CHECK = <<~RUBY
    puts $LOAD_PATH.grep(%r{when_required/openssl}).size, $LOADED_FEATURES.grep(%r{/openssl\\.so\\z}).size
    puts OpenSSL::SSL::SSLServer.method_defined?(:accept_loop)
  RUBY

  def assert_prints(expected, code, **options)
    out, err, = run_ruby(code, **options)
    assert_equal expected, out.split, err
    assert_empty err
  end

  def test_it_is_not_loaded
    assert_prints %w[false], <<~RUBY, options: ['-w']
      require 'polyphony'
      puts defined?(OpenSSL) ? true : false
    RUBY
  end

  def test_polyphony_first
    assert_prints %w[true false 0 1 true], <<~RUBY, options: ['-w']
      require 'polyphony'
      puts require('openssl'), require('openssl')
      #{CHECK}
    RUBY
  end

  def test_openssl_first
    assert_prints %w[true false 0 1 true], <<~RUBY, options: ['-w']
      puts require('openssl')
      require 'polyphony'
      puts require('openssl')
      #{CHECK}
    RUBY
  end

  def test_by_way_of_net_http
    assert_prints %w[0 1 true], <<~RUBY, options: ['-w']
      require 'polyphony'
      require 'net/http'
      Net::HTTP.new('localhost').use_ssl = true
      Net.const_get(:OpenSSL)
      #{CHECK}
    RUBY
  end

  def test_by_an_autoload_from_before
    assert_prints %w[openssl 0 1 true], <<~RUBY, options: ['-w']
      autoload :OpenSSL, 'openssl'
      require 'polyphony'
      puts Object.autoload?(:OpenSSL)
      Object.const_get(:OpenSSL)
      #{CHECK}
    RUBY
  end

  def test_without_rubygems
    assert_prints %w[true 0 1 true], <<~RUBY, options: ['-w', '--disable-gems']
      require 'polyphony'
      puts require('openssl')
      #{CHECK}
    RUBY
  end

  def test_in_a_fiber_and_in_a_thread
    assert_prints %w[true 0 1 true], <<~RUBY, options: ['-w']
      require 'polyphony'
      puts spin { Thread.new { require('openssl') }.value }.await
      #{CHECK}
    RUBY
  end

  def test_explicitly
    assert_prints %w[false 0 1 true], <<~RUBY, options: ['-w']
      require 'polyphony'
      $LOAD_PATH.reject! { |folder| folder.include?('when_required') } # by somebody who wants only known ones
      require 'openssl'
      puts OpenSSL::SSL::SSLServer.method_defined?(:accept_loop)
      require 'polyphony/extensions/openssl'
      #{CHECK}
    RUBY
  end

  def test_net_http_in_any_order
    extended = "puts Net::HTTP.ancestors.find(&:name), $LOAD_PATH.grep(/net_http/).size"
    assert_prints %w[true false Polyphony::NetHTTPExtensions 0], <<~RUBY, options: ['-w']
      require 'polyphony'
      puts require('net/http'), require('net/http')
      #{extended}
    RUBY
    assert_prints %w[true Polyphony::NetHTTPExtensions 0], <<~RUBY, options: ['-w']
      puts require('net/http')
      require 'polyphony'
      #{extended}
    RUBY
    assert_prints %w[true Polyphony::NetHTTPExtensions 0], <<~RUBY, options: ['-w']
      require 'polyphony'
      puts require('net/https')
      #{extended}
    RUBY
  end

  # As stock says it.
  def test_a_ruby_without_openssl
    assert_prints ['false', 'cannot', 'load', 'such', 'file', '--', 'openssl'] * 2, <<~RUBY, options: ['-w', '--disable-gems']
      require 'polyphony'
      $LOAD_PATH.reject! { |folder| %w[openssl.rb openssl.so].any? { |name| File.exist?("\#{folder}/\#{name}") } && !folder.include?('when_required') }
      2.times do
        require 'openssl'
      rescue LoadError => e
        puts defined?(OpenSSL) ? true : false, e.message
      end
    RUBY
  end

  def test_the_core_leaves_it_alone
    assert_prints %w[0 1 false], <<~RUBY, options: ['-w']
      require 'polyphony/core'
      require 'openssl'
      #{CHECK}
    RUBY
  end
end
