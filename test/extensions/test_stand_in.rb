# frozen_string_literal: true

require 'test_helper'

# Stock methods in the main fiber and in those of Enumerator#next: others run meanwhile.
class TestStandIn < Polyphony::TestCase
  # Waits for a line that only another fiber can write.
  def answered
    reader, writer = pipe_pair
    spin { writer.puts 'answer' }
    yield reader
  end

  def test_gets_sets_the_last_line_of_its_caller
    assert_equal "answer\n", answered(&:gets)
    answered { |reader| reader.gets; assert_equal "answer\n", $_ }
    answered { |reader| reader.readline; assert_equal "answer\n", $_ }
  end

  def test_a_block_is_called_in_the_fiber_that_gave_it
    reader, writer = pipe_pair
    spin { 3.times { |i| writer.puts i; snooze }; writer.close }
    seen = []
    reader.each_line { |line| seen << [line, Fiber.current] }
    assert_equal [["0\n", Fiber.current], ["1\n", Fiber.current], ["2\n", Fiber.current]], seen
  end

  def test_a_block_may_be_left
    reader, writer = pipe_pair
    writer << "a\nb\nc\n"
    assert_equal "a\n", reader.each_line { |line| break line }
    assert_equal :thrown, catch(:tag) { reader.each_line { throw :tag, :thrown } }
    assert_raises(KeyError) { reader.each_line { raise KeyError } }
  end

  def test_a_block_may_call_stock_methods
    outer, outer_writer = pipe_pair
    outer_writer << "a\nb\n"
    outer_writer.close
    lines = outer.each_line.map { |line| answered { |reader| line + reader.gets } }
    assert_equal ["a\nanswer\n", "b\nanswer\n"], lines
  end

  def test_an_error_shows_where_the_method_was_called
    reader, writer = pipe_pair
    writer.close
    error = assert_raises(EOFError) { reader.readline }
    line = __LINE__ - 1
    assert_match(/\A#{Regexp.escape(__FILE__)}:#{line}:in .*readline/, error.backtrace.first)
    assert_equal line, error.backtrace_locations.first.lineno
  end

  def test_a_time_limit_ends_it_and_loses_nothing
    reader, writer = pipe_pair
    assert_equal :over, move_on_after(0.001, with_value: :over) { reader.gets }
    writer.puts 'later'
    assert_equal "later\n", reader.gets
  end

  def test_closing_wakes_it
    reader, = pipe_pair
    spin { reader.close }
    assert_raises(IOError) { reader.gets }
  end

  def test_an_enumerator_lets_others_run
    lines = Enumerator.new { |yielder| 2.times { yielder << answered(&:gets) } }
    assert_equal %W[answer\n answer\n], [lines.next, lines.next]
    assert_equal "answer\n", spin { lines.rewind.next }.await
  end

  # The fiber that stood in for the main one stands in for the enumerator's next.
  def test_a_time_limit_in_an_enumerator_after_a_wait_in_the_main_fiber
    assert_equal "answer\n", answered(&:gets)
    reader, = pipe_pair
    limited = Enumerator.new { |yielder| yielder << move_on_after(0.001, with_value: :over) { reader.gets } }
    assert_equal :over, limited.next
  end

  def test_what_puts_writes_stays_together
    reader, writer = pipe_pair
    writer.sync = true
    fibers = Array.new(4) { |i| spin { 20.times { writer.puts i.to_s * 30 } } }
    Fiber.await(*fibers)
    writer.close
    assert_equal Array.new(4) { |i| i.to_s * 30 }, reader.read.lines(chomp: true).uniq.sort
  end

  # But for the 33rd operation after the last switch, which lets others run: the tests before may have done some.
  def test_printing_does_not_switch
    reader, writer = pipe_pair
    writer.sync = true
    snooze
    ran = false
    spin { ran = true }
    writer.puts 'a'
    refute ran
    assert_equal "a\n", reader.gets
  end

  def test_read_nonblock_does_not_wait
    reader, writer = pipe_pair
    [-> { reader.read_nonblock(4, exception: false) },
     -> { spin { reader.read_nonblock(4, exception: false) }.await }].each do |read|
      assert_equal :wait_readable, read.call
      writer << 'data'
      assert_equal 'data', read.call
    end
  end

  # While an exception is being raised Ruby looks at no interrupts, and a fiber that is made there never will.
  { main: 'raise_all.call', spun: 'spin(&raise_all).await' }.each do |where, run|
    define_method("test_a_backtrace_that_does_io_in_the_#{where}_fiber") do
      out, err, = run_ruby(<<~RUBY, timeout: 20)
        require 'polyphony'
        class Odd < RuntimeError
          def backtrace = IO.readlines(IO::NULL) + IO.popen('echo line', &:readlines)
        end
        raised = 0
        raise_all = -> { 300.times { raise Odd rescue raised += 1 } }
        wakes = Thread.new { loop { Thread.main.wakeup; Kernel.sleep 0.0001 } }
        sleep 0 # the loop is open
        #{run}
        wakes.kill
        p raised
        spin { Process.kill('INT', Process.pid) }
        begin
          IO.pipe[0].read(1)
        rescue Interrupt
          puts 'interrupted'
        end
      RUBY
      assert_equal "300\ninterrupted\n", out, err
    end
  end
end
