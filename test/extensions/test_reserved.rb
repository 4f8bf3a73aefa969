# frozen_string_literal: true

require_relative '../test_helper'

# Daemons close whatever descriptors there may be.
class TestReserved < Polyphony::TestCase
  on_every_driver

  CLOSE_ALL = <<~'RUBY'
    def close_all
      3.upto(300) { |fd| IO.for_fd(fd).close rescue nil }
      3.upto(300) { |fd| IO.new(fd, 'w').close rescue nil }
      3.upto(300) { |fd| File.open(fd, &:close) rescue nil }
    end

    def look
      reader, writer = IO.pipe
      spin { sleep 0.001; writer << 'alive'; writer.close }
      puts reader.read, `echo command`, Thread.new { spin { sleep 0.001; 'thread' }.await }.value
    end
  RUBY
  ALIVE = "alive\ncommand\nthread\n"

  def assert_alive(code)
    out, err, status = run_ruby("require 'polyphony'\n#{CLOSE_ALL}\nsleep 0.001\n#{code}")
    assert_equal ALIVE, out, err
    assert_predicate status, :success?
  end

  def test_closing_all_descriptors_leaves_the_backend_its_own
    assert_alive 'close_all; look'
    assert_alive 'spin { close_all; look }.await'
  end

  def test_in_a_forked_child
    assert_alive 'Process.wait(fork { close_all; look })'
    assert_alive 'spin { Process.wait(fork { close_all; look }) }.await'
  end

  def test_they_are_refused_as_those_of_ruby
    sleep 0.001
    refused = (0..50).count do |fd|
      IO.for_fd(fd, autoclose: false) && false
    rescue ArgumentError => e
      e.message.end_with?('Polyphony reserves it')
    rescue SystemCallError
      false
    end
    assert_operator refused, :>=, 2
  end

  def test_others_are_given
    reader, writer = pipe_pair
    writer << 'x'
    assert_equal 'x', IO.for_fd(reader.fileno, 'r', autoclose: false).readpartial(1)
    writer << 'y'
    assert_equal 'y', IO.new(reader.fileno, mode: 'r', autoclose: false).readpartial(1)
  end
end
