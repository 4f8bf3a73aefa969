# frozen_string_literal: true

require_relative '../test_helper'

# Loading a library does not let others run, unless the library's own code waits: up to Ruby 3.1, a fiber that
# names a constant which another fiber of its thread is loading would be told that there is none.
class TestLoading < Polyphony::TestCase
  on_every_driver

  # Big enough for several reads.
  LIBRARY = "module Loaded\n#{Array.new(3000) { |i| "  def self.method_#{i}; #{i}; end\n" }.join}  DONE = true\nend\n"

  def assert_prints(expected, code, **options)
    Dir.mktmpdir do |folder|
      File.write("#{folder}/loaded.rb", LIBRARY)
      out, err, = run_ruby(code, env: { 'RUBYLIB' => folder }, **options)
      assert_equal expected, out.gsub(' => ', '=>').split("\n"), err # the spaces are Ruby 3.4's
      assert_empty err
    end
  end

  BEATS = <<~RUBY
    require 'polyphony'
    beats = 0
    spin { loop { beats += 1; snooze } }
    snooze
  RUBY

  [%w[with_rubygems], %w[without_rubygems --disable-gems]].each do |name, *options|
    define_method("test_many_fibers_name_what_is_loaded_then_#{name}") do
      assert_prints ['{2999=>20}'], <<~RUBY, options: ['-w', *options]
        require 'polyphony'
        autoload :Loaded, 'loaded'
        p Fiber.await(*Array.new(20) { spin { Loaded.method_2999 } }).tally
      RUBY
      assert_prints ['{2999=>20}', '2999'], <<~RUBY, options: ['-w', *options]
        require 'polyphony'
        autoload :Loaded, 'loaded'
        others = Array.new(20) { spin { snooze; Loaded.method_2999 } }
        snooze
        Loaded.method_2999.then { |number| p Fiber.await(*others).tally, number }
      RUBY
    end

    define_method("test_loading_does_not_switch_#{name}") do
      assert_prints %w[true 0 true 0], <<~RUBY, options: ['-w', *options]
        #{BEATS}
        before = beats
        puts require('loaded'), beats - before
        $LOADED_FEATURES.pop
        spin { before = beats; load('loaded.rb', true); puts true, beats - before }.await
      RUBY
    end
  end

  def test_a_method_in_c_that_needs_a_library_does_not_switch_while_it_is_loaded
    assert_prints ['{"é"=>20}'], <<~RUBY, options: ['-w']
      require 'polyphony'
      p Fiber.await(*Array.new(20) { spin { "e\u0301".unicode_normalize } }).tally
    RUBY
  end

  # What a library does besides is another matter.
  def test_code_of_the_library_may_wait
    assert_prints %w[true true], <<~RUBY
      #{BEATS}
      File.write("\#{ENV['RUBYLIB']}/waits.rb", "sleep 0.001; $text = File.read(__FILE__)")
      spin { before = beats; puts require('waits'), beats > before }.await
    RUBY
  end

  # Ruby has a lock for that, since 3.2, which is hidden from programs.
  def test_many_fibers_name_what_a_library_that_waits_defines
    skip 'an autoload belongs to a thread' if RUBY_VERSION < '3.2'
    assert_prints ['{1=>20}'], <<~RUBY, options: ['-w']
      require 'polyphony'
      File.write("\#{ENV['RUBYLIB']}/waits.rb", "sleep 0.001; Waits = 1")
      autoload :Waits, 'waits'
      p Fiber.await(*Array.new(20) { spin { Waits } }).tally
    RUBY
  end

  def test_https_in_many_fibers_loads_openssl_once
    assert_prints ['{Net::OpenTimeout=>20}'], <<~RUBY, options: ['-w']
      require 'polyphony'
      require 'net/http'
      port = (server = TCPServer.new('127.0.0.1', 0)).local_address.ip_port
      fibers = Array.new(20) do
        spin do
          Net::HTTP.start('127.0.0.1', port, use_ssl: true, open_timeout: 0.01) {}
        rescue StandardError => e
          e.class
        end
      end
      p Fiber.await(*fibers).tally
    RUBY
  end
end
