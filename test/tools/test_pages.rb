# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/browser'
require 'json'

# The pages of a trace and of a tree in a browser: they are drawn, zoomed, searched and clicked at, without an error and without a network.
class TestPages < Polyphony::TestCase
  on_every_driver

  SHOP = <<~'RUBY'
    require 'polyphony'
    $PROGRAM_NAME = 'shop.rb'
    trace, tree = ARGV
    Polyphony.trace(trace) do
      orders, till = Polyphony::Queue.new, Polyphony::Mutex.new
      spin(:shop) do
        spin(:clerk) { loop { orders.shift; sleep 0.004 } }
        spin(:cook) { 3.times { 60_000.times { |i| i * i }; snooze } }
        spin(:till) { till.synchronize { sleep } }
        spin(:boss) { sleep 0.02; till.synchronize { :count } }
        3.times { |i| spin("guest #{i}") { sleep 0.01 * (i + 1); orders << :tea; sleep 0.01 } }
        suspend
      end
      radio = Thread.new { Thread.current.name = 'radio'; spin(:news) { 5.times { sleep 0.01 } }.await }
      sleep 0.08
      radio.join
    end
    File.write(tree, Polyphony.tree.to_html)
  RUBY

  def test_people_can_look_around_in_them
    browser = Polyphony::Browser.new
    skip browser.missing if browser.missing
    Dir.mktmpdir do |folder|
      files = ["#{folder}/trace.html", "#{folder}/tree.html"]
      File.write("#{folder}/shop.rb", SHOP)
      _, err, status = run_ruby('load ARGV.shift', "#{folder}/shop.rb", *files)
      assert_predicate status, :success?, err
      output, status = browser.run('pages.mjs', File.join(POLYPHONY_ROOT, 'tmp'), *files)
      assert_predicate status, :success?, output
      check_trace(*JSON.parse(output).fetch('trace').values_at('found', 'first', 'longest'))
      check_tree(*JSON.parse(output).fetch('tree').values_at('all', 'locked', 'found', 'closed'))
    end
  end

  private

  def check_trace(found, first, longest)
    assert_match(/\A1 of 1\d\z/, found) # of the fibers, one waited for the queue
    assert_match(/\Aclerk .*waits for an item in a queue/m, first)
    assert_match(/in the queue, |running, /, longest)
  end

  def check_tree(all, locked, found, closed)
    assert_equal %w[main shop clerk till boss], all
    assert_equal %w[main shop boss], locked
    assert_equal '1 of 5', found
    assert_equal ['main'], closed
  end
end
