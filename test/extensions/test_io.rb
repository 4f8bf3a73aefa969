# frozen_string_literal: true

require 'test_helper'
require 'io/wait'

# What the tables of test_io_forms.rb cannot show: several fibers at one IO, and calls that are broken off.
class TestIO < Polyphony::TestCase
  # Runs the block in each kind of fiber.
  # @yield [how] to be called with what is to run there
  def each_kind_of_fiber
    yield ->(&block) { block.call }
    yield ->(&block) { spin(&block).await }
    yield ->(&block) { Enumerator.new { |taker| taker << block.call }.next }
  end

  # --- closing ------------------------------------------------------------------------------------

  READS = {
    read: ->(io) { io.read }, read_some: ->(io) { io.read(5) }, gets: ->(io) { io.gets },
    readpartial: ->(io) { io.readpartial(5) }, sysread: ->(io) { io.sysread(5) },
    getbyte: ->(io) { io.getbyte }, getc: ->(io) { io.getc }, eof: ->(io) { io.eof? },
    each_line: ->(io) { io.each_line { |line| line } }, readlines: ->(io) { io.readlines },
    wait_readable: ->(io) { io.wait_readable }, wait: ->(io) { io.wait(60) },
    copy_stream: ->(io) { IO.copy_stream(io, File::NULL) }, copy_to_object: ->(io) { IO.copy_stream(io, StringIO.new) },
    foreach: ->(io) { io.each_char.first(2) }, backend_read: ->(io) { Polyphony.backend_read(io, nil, 5, false, 0) }
  }.freeze

  WRITES = {
    write: ->(io) { io.write('x' * 100_000) }, syswrite: ->(io) { io.syswrite('x' * 100_000) },
    puts: ->(io) { io.puts('x' * 100_000) }, print: ->(io) { io.print('x' * 100_000) },
    append: ->(io) { io << 'x' * 100_000 }, wait_writable: ->(io) { io.wait_writable },
    copy_stream: ->(io) { IO.copy_stream(StringIO.new('x' * 100_000), io) },
    copy_from_file: ->(io) { IO.copy_stream(__FILE__, io) }
  }.freeze

  def assert_closing_wakes(io, name, call, how)
    closing = yield io
    error = assert_raises(IOError, name) { how.call { call.call(io) } }
    assert_match(/closed/, error.message, name)
    closing.is_a?(Fiber) ? closing.await : closing.join
    assert_predicate io, :closed?
  end

  def by_fiber(io)
    spin { 20.times { snooze }; io.close }
  end

  def by_thread(io)
    Thread.new { sleep 0.002; io.close }
  end

  def test_closing_wakes_who_reads
    each_kind_of_fiber do |how|
      READS.each do |name, call|
        assert_closing_wakes(pipe_pair.first, name, call, how) { |io| by_fiber(io) }
        assert_closing_wakes(socket_pair.first, name, call, how) { |io| by_fiber(io) }
      end
    end
  end

  def test_closing_wakes_who_writes
    each_kind_of_fiber do |how|
      WRITES.each do |name, call|
        [pipe_pair.last, socket_pair.first].each do |io|
          fill(io)
          assert_closing_wakes(io, name, call, how) { |full| by_fiber(full) }
        end
      end
    end
  end

  def test_closing_in_a_thread_wakes_those_in_another
    each_kind_of_fiber do |how|
      READS.each { |name, call| assert_closing_wakes(pipe_pair.first, name, call, how) { |io| by_thread(io) } }
      WRITES.each do |name, call|
        fill(io = pipe_pair.last)
        assert_closing_wakes(io, name, call, how) { |full| by_thread(full) }
      end
    end
  end

  def fill(io)
    io.sync = true
    io.write_nonblock('x' * 1_000_000)
    loop { io.write_nonblock('x') }
  rescue IO::WaitWritable
    nil
  end

  def test_closing_one_that_nobody_reads_waits_for_room
    each_kind_of_fiber do |how|
      reader, writer = pipe_pair
      writer.sync = false
      fill(writer)
      writer.sync = false
      writer.write('the end')
      taking = spin { reader.read }
      how.call { writer.close }
      assert_equal 'the end', taking.await[-7..]
    end
  end

  def test_reopening_wakes_who_waits_on_the_number
    reader, = pipe_pair
    waiter = waiting { reader.gets }
    reader.reopen(File::NULL)
    assert_instance_of IOError, waiter.await
    assert_nil reader.gets
  end

  def test_who_waited_on_a_number_takes_nothing_from_the_file_that_gets_it_next
    reader, = pipe_pair
    other, writer = pipe_pair
    writer.syswrite('not for you')
    waiter = waiting { reader.readpartial(100) }
    number = reader.fileno
    reader.close
    track(copy = other.dup)
    assert_equal number, copy.fileno
    assert_instance_of IOError, waiter.await
    assert_equal 'not for you', copy.readpartial(100)
  end

  def test_a_pipe_with_a_block_wakes_who_is_left
    waiter = IO.pipe { |reader, _writer| waiting { reader.gets } }
    assert_instance_of IOError, waiter.await
  end

  # --- several fibers, one IO ---------------------------------------------------------------------

  def test_no_line_is_lost_when_several_fibers_read_lines
    reader, writer = pipe_pair
    lines = []
    takers = Array.new(5) { spin { while (line = reader.gets) do lines << line; snooze if lines.size.odd? end } }
    spin { 500.times { |i| writer.syswrite("line #{i}\n"); snooze if (i % 3).zero? }; writer.close }
    Fiber.await(*takers)
    assert_equal Array.new(500) { |i| "line #{i}\n" }, lines.sort_by { |line| line[/\d+/].to_i }
  end

  def test_what_is_pushed_back_by_another_fiber_comes_first
    reader, writer = pipe_pair
    waiter = waiting { [reader.gets, reader.gets] }
    reader.ungetbyte('x' * 8000 + "\n")
    writer.puts 'later'
    assert_equal ["#{'x' * 8000}\n", "later\n"], waiter.await
  end

  def test_lines_written_by_several_fibers_stay_whole
    reader, writer = pipe_pair
    writer.sync = false
    taken = spin { read_slowly(reader) }
    givers = Array.new(6) do |i|
      spin { 100.times { |j| writer.write("#{i}:#{j}:#{'x' * (j * 17 % 900)}:#{i}:#{j}\n"); snooze if (j % 5).zero? } }
    end
    Fiber.await(*givers)
    writer.close
    lines = taken.await.lines
    assert_equal 600, lines.size
    assert_empty(lines.reject { |line| line.match?(/\A(\d:\d+):x*:\1\n\z/) })
  end

  def read_slowly(reader)
    text = +''
    loop { text << reader.readpartial(700); snooze }
    text
  rescue EOFError
    text
  end

  # --- broken off ---------------------------------------------------------------------------------

  PARTS = {
    gets: ->(io) { io.gets }, readline: ->(io) { io.readline }, read: ->(io) { io.read }, read_length: ->(io) { io.read(100) },
    read_long: ->(io) { io.read(100_000) }, readlines: ->(io) { io.readlines }, paragraph: ->(io) { io.gets('') }
  }.freeze

  # The first line is taken before, so that a part of the rest is in Ruby's buffer, a part is not.
  def test_what_is_broken_off_in_the_middle_is_there_later
    each_kind_of_fiber do |how|
      PARTS.each do |name, call|
        reader, writer = pipe_pair
        writer.syswrite("line\n\u20ac one, ")
        assert_equal "line\n", reader.gets
        later = spin { 5.times { snooze }; writer.syswrite('two, ') }
        assert_nil(how.call { move_on_after(0.005) { call.call(reader) } }, name)
        later.await
        writer.syswrite("three\n")
        writer.close
        assert_equal "\u20ac one, two, three\n", how.call { reader.gets }, name
      end
    end
  end

  def test_half_a_character_that_is_broken_off_is_there_later
    each_kind_of_fiber do |how|
      reader, writer = pipe_pair
      writer.syswrite("\xE2\x82")
      assert_nil(how.call { move_on_after(0.002) { reader.getc } })
      writer.syswrite("\xAC")
      assert_equal "\u20ac", how.call { reader.getc }
    end
  end

  # --- flags --------------------------------------------------------------------------------------

  FLAGS = <<~RUBY
    require 'polyphony'
    flags = ->(io) { io.fcntl(3) }
    before = [STDIN, STDOUT, STDERR].map(&flags)
    spin { STDOUT.puts 'out'; STDERR.puts 'err'; STDOUT.flush }.await
    [STDIN.gets, spin { STDIN.readpartial(3) }.await, move_on_after(0.001) { STDIN.gets + STDIN.gets }]
    [STDIN, STDOUT, STDERR].map(&flags) == before or abort 'changed within'
  RUBY
  ENDS = { 'normal' => '', 'exit' => 'exit 3', 'exception' => "raise 'x'", 'signal' => 'Process.kill(:TERM, $$); sleep',
           'kill' => 'Process.kill(:KILL, $$); sleep' }.freeze

  def test_flags_of_a_pipe_shared_with_the_parent_are_left_as_found
    ENDS.each do |name, code|
      input, feeder = plain_pipe
      out, target = plain_pipe
      feeder.syswrite("abc\ndef\n")
      before = [input, target].map { |io| io.fcntl(3) }
      pid = Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, "-I#{POLYPHONY_LIB}", '-e', FLAGS + code,
                          in: input, out: target, err: target)
      Process.wait(pid)
      assert_equal before, [input, target].map { |io| io.fcntl(3) }, name
      refute_includes out.read_nonblock(10_000), 'changed within', name
    end
  end

  # Ruby's own are non-blocking; the shell's are not.
  def plain_pipe
    pipe_pair.each { |io| io.fcntl(4, io.fcntl(3) & ~File::NONBLOCK) }
  end

  def test_flags_of_a_terminal_are_left_as_found
    require 'pty'
    ENDS.each do |name, code|
      master, slave = PTY.open
      track(master, slave)
      before = slave.fcntl(3)
      master.syswrite("abc\ndef\n")
      pid = Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, "-I#{POLYPHONY_LIB}", '-e', FLAGS + code,
                          in: slave, out: slave, err: slave)
      Process.wait(pid)
      assert_equal before, slave.fcntl(3), name
      refute_includes master.read_nonblock(10_000), 'changed within', name
    end
  end

  # Its reader does nothing until the writer has gone to wait.
  def test_a_full_standard_output_stops_no_other_fiber
    out, target = plain_pipe
    code = <<~RUBY
      require 'polyphony'
      beats = 0
      spin { loop { STDERR.syswrite('.'); snooze if (beats += 1) > 50; sleep 0.001 } }
      $stdout.sync = false
      20.times { STDOUT.write('x' * 8000) }
      STDOUT.flush
    RUBY
    err, err_target = pipe_pair
    pid = Process.spawn({ 'RUBYOPT' => nil }, RbConfig.ruby, "-I#{POLYPHONY_LIB}", '-e', code, out: target, err: err_target)
    [target, err_target].each(&:close)
    assert_equal '.' * 20, err.read(20)
    assert_equal 160_000, out.read.size
    Process.wait(pid)
    assert_predicate $?, :success?
  end

  # --- named pipes and locks ----------------------------------------------------------------------

  def in_folder
    Dir.mktmpdir { |folder| yield File.join(folder, 'fifo').tap { |path| File.mkfifo(path) } }
  end

  OPENINGS = {
    open: ->(path) { File.open(path) { |file| [file.path == path, file.read] }.last },
    new: ->(path) { File.new(path).then { |file| file.read.tap { file.close } } },
    kernel: ->(path) { open(path, &:read) }, kernel_function: ->(path) { Kernel.open(path) { |file| file.read } },
    read: ->(path) { IO.read(path) }, binread: ->(path) { IO.binread(path).force_encoding('utf-8') },
    readlines: ->(path) { IO.readlines(path).join }, foreach: ->(path) { IO.foreach(path).to_a.join },
    pathname: ->(path) { require 'pathname'; Pathname(path).read },
    sysopen: ->(path) { IO.open(IO.sysopen(path)) { |io| io.read } },
    copy_stream: ->(path) { IO.copy_stream(path, text = StringIO.new); text.string }
  }.freeze

  def test_opening_a_fifo_lets_others_run
    in_folder do |path|
      each_kind_of_fiber do |how|
        OPENINGS.each do |name, opening|
          writer = spin { 5.times { snooze }; IO.write(path, "a\nb\n") }
          assert_equal "a\nb\n", how.call { opening.call(path) }, name
          assert_equal 4, writer.await, name
        end
      end
    end
  end

  def test_opening_a_fifo_can_be_broken_off
    in_folder do |path|
      each_kind_of_fiber do |how|
        [*OPENINGS.values, ->(fifo) { File.open(fifo, 'w') }, ->(fifo) { IO.write(fifo, 'x') }].each do |opening|
          before = Dir.children('/proc/self/fd').size
          assert_equal :over, how.call { move_on_after(0.001, with_value: :over) { opening.call(path) } }
          assert_operator Dir.children('/proc/self/fd').size, :<=, before # others may have been closed since
          assert_equal 0, Thread.list.count { |thread| thread != Thread.current && thread.location.include?('aside') }
        end
      end
    end
  end

  def test_a_fifo_that_cannot_be_opened
    in_folder do |path|
      assert_raises(Errno::EEXIST) { File.open(path, File::CREAT | File::EXCL) }
      error = assert_raises(Errno::EEXIST) { spin { File.open(path, File::CREAT | File::EXCL) }.await }
      assert_includes error.message, path
    end
  end

  # A read ends with nothing although the terminal is not ready.
  def test_a_terminal_that_is_told_not_to_wait
    require 'pty'
    require 'io/console'
    master, slave = track(*PTY.open)
    each_kind_of_fiber do |how|
      assert_nil(how.call { slave.getch(min: 0) })
      assert_nil(how.call { slave.getch(min: 0, time: 1) })
      assert_raises(EOFError) { how.call { slave.raw(min: 0) { slave.readpartial(5) } } }
      spin { snooze; master << 'a' }
      assert_equal('a', how.call { slave.getch(min: 0, time: 250) })
      spin { snooze; master << 'b' }
      assert_equal('b', how.call { slave.getch(min: 1) })
    end
  end

  def test_waiting_for_a_lock_lets_others_run
    file = track(Tempfile.new)
    each_kind_of_fiber do |how|
      one, other = track(File.open(file.path), File.open(file.path))
      one.flock(File::LOCK_EX)
      spin { 5.times { snooze }; one.flock(File::LOCK_UN) }
      assert_equal 0, how.call { other.flock(File::LOCK_EX) }
      assert_equal :over, how.call { move_on_after(0.001, with_value: :over) { one.flock(File::LOCK_SH) } }
      other.flock(File::LOCK_UN)
      refute_equal false, other.flock(File::LOCK_EX | File::LOCK_NB)
      spin { 5.times { snooze }; one.close }
      assert_raises(IOError) { how.call { one.flock(File::LOCK_EX) } }
      other.close
    end
  end

  def test_the_message_of_a_failed_write_names_function_and_file
    full = track(File.open('/dev/full', 'w'))
    full.sync = true
    each_kind_of_fiber do |how|
      error = assert_raises(Errno::ENOSPC) { how.call { full.write('x') } }
      assert_equal 'No space left on device @ io_write - /dev/full', error.message
      error = assert_raises(Errno::ENOSPC) { how.call { full.write('x', 'y') } }
      assert_equal 'No space left on device @ io_writev - /dev/full', error.message
    end
  end

  # --- what is there already -----------------------------------------------------------------------

  def test_reading_what_is_there_lets_nobody_else_run_but_now_and_then
    [pipe_pair, socket_pair].product(%i[readpartial sysread]) do |(reader, writer), name|
      writer << 'x' * 100
      snooze
      ran = false
      spin { ran = true }
      reader.public_send(name, 1)
      refute ran, "#{name} let others run"
      99.times { reader.public_send(name, 1) }
      assert ran, "#{name} let nobody run"
    end
  end

  def test_who_waits_for_bytes_gets_them_before_who_comes_later
    [pipe_pair, socket_pair].each do |reader, writer|
      first = spin { reader.readpartial(1) }
      snooze
      writer.syswrite('12')
      later = spin { reader.readpartial(1) }
      assert_equal %w[1 2], [first, later].map(&:await)
    end
  end

  def test_an_exception_that_is_due_comes_before_bytes_that_are_there
    reader, writer = pipe_pair
    writer.syswrite('x')
    fiber = spin { Fiber.current.schedule(RuntimeError.new('due')); reader.readpartial(1) }
    assert_raises(RuntimeError) { fiber.await }
    assert_equal 'x', reader.readpartial(1)
  end

  def test_a_time_limit_strikes_a_fiber_that_reads_what_never_ends
    File.open('/dev/zero') do |zeros|
      assert_equal(:over, move_on_after(0.01, with_value: :over) { loop { zeros.sysread(1) } })
    end
  end

  def test_reads_at_once_and_reads_that_wait_take_turns_without_losing_order
    [pipe_pair, socket_pair].each do |reader, writer|
      text = Random.new(7).bytes(50_000)
      sizes = Random.new(8)
      spin do
        rest = text.dup
        (writer.write(rest.slice!(0, sizes.rand(1..700))); snooze if sizes.rand < 0.1) until rest.empty?
        writer.close
      end
      got = +''
      begin
        loop { got << reader.public_send(%i[readpartial sysread].sample(random: sizes), sizes.rand(1..500)) }
      rescue EOFError
        assert_equal text, got
      end
    end
  end
end
