# frozen_string_literal: true

require_relative '../test_helper'

# Libraries change stock methods after Polyphony was loaded: theirs are called, and what they call by the old
# method's other name lets other fibers run.
class TestPatches < Polyphony::TestCase
  on_every_driver

  # A heartbeat has gone on when something was awaited.
  BEATING = <<~'RUBY'
    require 'polyphony'
    $beats = 0
    spin { every(0.001) { $beats += 1 } }
    def beating
      before = $beats
      result = yield
      $beats > before ? result : "no beats during #{result.inspect}"
    end

    def after_some_beats(&block)
      before = $beats
      spin { sleep 0.001 until $beats > before + 2; block.call }
    end
  RUBY

  # In the main fiber and in a spun one.
  def assert_patched(expected, patch, code)
    [code, "spin { #{code} }.await"].each do |program|
      out, err, = run_ruby("#{BEATING}#{patch}\n#{program}")
      assert_equal expected, out, "#{program}\n#{err}"
    end
  end

  def test_a_patched_method_of_a_class_and_the_one_beneath
    patch = 'class IO; alias_method :before, :gets; def gets(*args) = before(*args).upcase; end'
    assert_patched "LATE\n", patch, <<~'RUBY'
      reader, writer = IO.pipe
      after_some_beats { writer.puts 'late' }
      puts beating { reader.gets }
    RUBY
  end

  def test_a_method_with_a_way_of_its_own
    patch = 'class IO; alias_method :before, :write; def write(*texts) = before(*texts.map(&:upcase)); end'
    assert_patched "LOUD\n", patch, 'puts "loud"'
  end

  def test_a_word_of_kernel
    patch = 'module Kernel; alias_method :before, :`; def `(command) = "<#{before(command).chomp}>"; end'
    assert_patched "<slow>\n", patch, 'puts beating { `sleep 0.05; echo slow` }'
  end

  def test_another_name_for_a_word_of_kernel
    patch = 'module Kernel; alias_method :run, :system; alias_method :unlock, :open; end'
    assert_patched "true\nFile\n", patch, 'p beating { run("sleep 0.05") }; p unlock("/dev/null", &:class)'
  end

  def test_a_class_method
    patch = 'class << IO; alias_method :before, :popen; def popen(*a, **o, &b) = before(*a, **o, &b).upcase; end'
    assert_patched "SLOW\n", patch, 'puts beating { IO.popen("sleep 0.05; echo slow", &:read) }'
  end

  def test_a_method_that_is_inherited_from_where_we_have_changed_it
    patch = 'class File; alias_method :before, :close; def close = before || $stdout.puts("closed"); end'
    assert_patched "closed\n", patch, 'File.open("/dev/null") {}'
  end

  def test_two_libraries_one_after_the_other_and_back
    assert_patched "1 2 x\n1 x\nx\n", <<~'RUBY', 'puts "x"; IO.back(:second); puts "x"; IO.back(:first); puts "x"'
      class IO
        alias_method :first, :write
        def write(*texts) = first("1 ", *texts)
        alias_method :second, :write
        def write(*texts) = second("2 ", *texts)
        def self.back(name) = alias_method(:write, name)
      end
    RUBY
  end

  # Minitest does it that way.
  def test_stubbing_a_thousand_times_costs_nothing_afterwards
    patch = <<~'RUBY'
      def stub
        metaclass = IO.singleton_class
        metaclass.alias_method :stubbed, :popen
        metaclass.define_method(:popen) { |*| :stub }
        raise unless IO.popen('never') == :stub
        metaclass.undef_method :popen
        metaclass.alias_method :popen, :stubbed
        metaclass.undef_method :stubbed
      end
      1000.times { stub }
    RUBY
    assert_patched "slow\n", patch, 'puts beating { IO.popen("sleep 0.05; echo slow", &:read) }'
  end

  def test_a_module_that_is_prepended_as_well
    patch = <<~'RUBY'
      IO.prepend(Module.new { def gets(*) = "#{super.chomp} prepended" })
      class IO
        alias_method :before, :gets
        def gets(*) = "patched"
      end
    RUBY
    assert_patched "patched prepended\n", patch, 'puts $stdin.gets'
  end

  def test_a_patch_stays_private
    patch = 'module Kernel; private def system(*) = puts("ours"); end'
    assert_patched "ours\nNoMethodError\n", patch, 'system("x"); begin; 1.system("x"); rescue => e; p e.class; end'
  end

  def test_resolv_replace
    *, status = run_ruby("require 'resolv-replace'")
    skip 'resolv-replace is a gem since Ruby 3.4, and not installed' unless status.success?
    assert_patched "hello\n", "require 'resolv-replace'", <<~'RUBY'
      server = TCPServer.new('127.0.0.1', 0)
      spin { server.accept.then { |client| after_some_beats { client.puts 'hello'; client.close }.await } }
      puts beating { TCPSocket.new('localhost', server.local_address.ip_port).gets }
    RUBY
  end

  def test_no_place_is_forgotten
    out, err, = run_ruby(<<~'RUBY')
      %w[polyphony openssl net/http].each { |name| require name }
      places = Polyphony.module_eval('Patches').instance_variable_get(:@places)
      ours = ->(one) { one.name.to_s.start_with?('Polyphony::') && !one.name.end_with?('::News') }
      places_of_ours = ObjectSpace.each_object(Module).select do |place|
        place.ancestors.take_while { |one| !one.equal?(place) }.any?(&ours)
      end
      p places_of_ours - places.keys
    RUBY
    assert_equal "[]\n", out, err
  end
end
