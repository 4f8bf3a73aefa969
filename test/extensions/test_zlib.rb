# frozen_string_literal: true

require_relative '../test_helper'
require 'zlib'

# Compressing much at once, beside other fibers.
class TestZlib < Polyphony::TestCase
  on_every_driver

  # Takes some ten milliseconds or more.
  TEXT = Random.new(1).bytes(300_000).unpack1('H*').freeze

  WAYS = {
    deflate: -> { Zlib.inflate(Zlib.deflate(TEXT, 9)) },
    the_class_methods: -> { Zlib::Inflate.inflate(Zlib::Deflate.deflate(TEXT, Zlib::BEST_COMPRESSION)) },
    gzip: -> { Zlib.gunzip(Zlib.gzip(TEXT, level: 9, strategy: Zlib::DEFAULT_STRATEGY)) }
  }.freeze

  WAYS.each do |name, way|
    define_method("test_other_fibers_run_during_#{name}") do
      turns = 0
      beside = spin { loop { turns += 1; snooze } }
      back = spin(&way).await
      assert_equal TEXT, back
      assert_operator turns, :>, 50
      beside.stop
    end
  end

  def test_from_the_main_fiber_too
    beside = spin { 3.times { snooze }; :done }
    assert_equal TEXT, Zlib.inflate(Zlib.deflate(TEXT))
    assert_predicate beside, :dead?
  end

  def test_a_string_that_is_changed_meanwhile
    text = +TEXT
    packed = spin { Zlib.deflate(text) }
    snooze
    text.clear
    assert_equal TEXT, Zlib.inflate(packed.await)
  end

  def test_errors_are_those_of_zlib
    assert_raises(Zlib::DataError) { spin { Zlib.inflate('x' * 100_000) }.await }
    capture_io { assert_raises(Zlib::BufError) { spin { Zlib.inflate(Zlib.deflate(TEXT)[0, 200_000]) }.await } } # it warns
    assert_raises(Zlib::GzipFile::Error) { spin { Zlib.gunzip('x' * 100_000) }.await }
    assert_raises(TypeError) { Zlib.deflate(nil) }
    assert_raises(ArgumentError) { Zlib.gzip }
  end

  def test_who_waits_may_be_stopped
    assert_equal :stopped, spin { Zlib.deflate(TEXT * 4, 9) }.tap { snooze }.stop(:stopped).await
  end

  def test_in_a_thread_of_the_pool_it_needs_no_other
    before = Polyphony.blocking_pool.cap
    Polyphony.blocking_pool.cap = 1
    assert_equal TEXT, spin { Polyphony.blocking { Zlib.inflate(Zlib.deflate(TEXT)) } }.await
  ensure
    Polyphony.blocking_pool.cap = before
  end

  def test_short_texts_and_those_without_company_need_no_thread
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      require 'zlib'
      # Since Ruby 3.4 zlib asks for a thread however short the text is.
      spin { Zlib.inflate(Zlib.deflate('short')) }.await if RUBY_VERSION < '3.4'
      Zlib.inflate(Zlib.deflate('long' * 100_000))
      puts Thread.list.size
    RUBY
    assert_equal "1\n", out, err
  end

  def test_before_it_is_required_and_after
    [%w[polyphony zlib], %w[zlib polyphony]].each do |features|
      out, err, = run_ruby(<<~RUBY)
        #{features.map { |feature| "require '#{feature}'" }.join(';')}
        turns = 0
        spin { loop { turns += 1; snooze } }
        spin { Zlib.deflate('0123456789' * 200_000, 9) }.await
        puts turns > 50
      RUBY
      assert_equal "true\n", out, err
    end
  end
end
