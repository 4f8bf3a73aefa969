# frozen_string_literal: true

require_relative '../test_helper'

# Polyphony::Channel: a queue whose receivers end when it is closed.
class TestChannel < Polyphony::TestCase
  on_every_driver

  class Boom < StandardError; end

  def setup
    super
    @channel = Polyphony::Channel.new
  end

  def test_what_is_sent_is_received_in_order
    fiber = spin { Array.new(3) { @channel.receive } }
    @channel << 1 << nil << 3
    assert_equal [1, nil, 3], fiber.await
  end

  def test_it_is_a_queue_and_may_be_capped
    assert_kind_of Polyphony::Queue, @channel
    assert_raises(ThreadError) { @channel.shift(true) }
    capped = Polyphony::Channel.new(1)
    capped << 1
    pusher = waiting { capped << 2 }
    assert_equal [1, 2], [capped.receive, capped.receive]
    pusher.await
  end

  def test_close_ends_those_who_wait_by_every_name
    %i[receive shift pop deq].each do |name|
      channel = Polyphony::Channel.new
      reached = false
      fiber = waiting { channel.public_send(name); reached = true }
      assert_same channel, channel.close
      assert_nil fiber.await
      assert_equal false, reached, name
    end
  end

  def test_close_raises_move_on_in_those_who_wait
    fibers = Array.new(2) do
      waiting do
        @channel.receive
      rescue Polyphony::MoveOn => e
        e.class
      end
    end
    @channel.close
    assert_equal [Polyphony::MoveOn] * 2, Fiber.await(fibers)
  end

  def test_what_is_there_can_be_received_after_close
    @channel << 1 << nil
    @channel.close
    assert_equal [1, nil], [@channel.receive, @channel.receive]
    assert_raises(ClosedQueueError) { @channel.receive }
    assert_raises(ClosedQueueError) { @channel << 2 }
    assert @channel.closed?
  end

  def test_who_was_woken_for_an_item_gets_it_although_the_channel_is_closed_before_it_runs
    fiber = waiting { @channel.receive }
    @channel << :item
    @channel.close
    assert_equal :item, fiber.await
  end

  # Woken for an item that is gone again: it waits when the channel is closed, like the others.
  def test_who_was_woken_for_an_item_that_is_gone_ends_with_the_channel
    fiber = waiting { @channel.receive; :received }
    @channel << :item
    @channel.clear
    @channel.close
    assert_nil fiber.await
  end

  def test_close_lets_those_go_who_wait_for_room
    @channel.cap(1)
    @channel << 1
    pusher = waiting { @channel << 2 rescue $!.class }
    @channel.close
    assert_equal ClosedQueueError, pusher.await
    assert_equal 1, @channel.receive
  end

  # --- receive_loop ------------------------------------------------------------------------------------

  def test_receive_loop_goes_on_until_the_channel_is_closed
    got = []
    fiber = waiting { @channel.receive_loop { |item| got << item } }
    @channel << 1 << nil << 3
    snooze until got.size == 3
    @channel.close
    assert_same @channel, fiber.await
    assert_equal [1, nil, 3], got
  end

  def test_receive_loop_takes_what_is_left_in_a_closed_channel
    @channel << 1 << 2
    @channel.close
    got = []
    assert_same @channel, @channel.receive_loop { |item| got << item }
    assert_equal [1, 2], got
  end

  def test_receive_loop_does_not_hide_what_its_block_raises
    other = Polyphony::Channel.new
    other.close
    @channel << 1
    assert_raises(ClosedQueueError) { @channel.receive_loop { |item| other << item } }
    @channel << 2
    assert_raises(Boom) { @channel.receive_loop { raise Boom } }
    @channel << 3
    assert_equal 3, (@channel.receive_loop { |item| break item })
  end

  def test_receive_loop_can_be_stopped_and_needs_a_block
    fiber = waiting { @channel.receive_loop { nil } }
    fiber.stop(:stopped)
    assert_equal :stopped, fiber.await
    assert_raises(ArgumentError) { @channel.receive_loop }
  end

  def test_between_threads
    threads = Array.new(3) { Thread.new { [].tap { |got| @channel.receive_loop { |item| got << item } } } }
    300.times { |i| @channel << i }
    snooze until @channel.empty?
    @channel.close
    assert_equal (0...300).to_a, threads.flat_map(&:value).sort
  end

  def test_it_can_be_required_alone
    out, err, status = run_ruby(<<~RUBY, options: ['-W2'])
      require 'polyphony/core/channel'
      puts Polyphony::Channel.superclass
      require 'polyphony'
      channel = Polyphony::Channel.new
      spin { channel << 'item' }
      puts channel.receive
    RUBY
    assert status.success?, err
    assert_equal ['', "Polyphony::Queue\nitem\n"], [err, out]
  end
end
