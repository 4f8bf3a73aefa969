# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/testing'
require_relative '../support/child_helpers'
require 'open3'

# system, backticks, popen and Open3. On the main fiber and on spun ones.
class TestCommands < Polyphony::TestCase
  include Polyphony::Testing::CancelEverywhere
  include Polyphony::ChildHelpers
  on_every_driver
  time_limit 120

  # --- other fibers run meanwhile -------------------------------------------------------------

  # Each waits for a line on its standard input. Those that say nothing close their output first, so that
  # nothing is waited for but their end.
  SILENT = 'exec >&- 2>&-; read line; exit 3'
  SPEAKING = 'read line; echo said; exit 3'

  WAYS = {
    'system' => ->(i) { [system(SPEAKING, in: i, out: File::NULL), $?.exitstatus] },
    'kernel_system' => ->(i) { [Kernel.system(SPEAKING, in: i, out: File::NULL), $?.exitstatus] },
    'backticks' => ->(i) { [`(#{SPEAKING}) </dev/fd/#{i.fileno}`, $?.exitstatus] },
    'silent_backticks' => ->(i) { [Kernel.`("exec </dev/fd/#{i.fileno}; #{SILENT}"), $?.exitstatus] },
    'popen' => ->(i) { IO.popen(SPEAKING, in: i).then { |io| [io.read, io.close, $?.exitstatus] } },
    'silent_popen' => ->(i) { IO.popen(SILENT, in: i).then { |io| [io.read, io.close, $?.exitstatus] } },
    'popen_with_a_block' => ->(i) { [IO.popen(SPEAKING, in: i, &:read), $?.exitstatus] },
    'silent_popen_with_a_block' => ->(i) { [IO.popen(SILENT, in: i, &:read), $?.exitstatus] },
    'popen_fork' => lambda do |i|
      [IO.popen('-') { |io| io ? io.read : print(i.gets.inspect) }, $?.exitstatus]
    end,
    'open' => ->(i) { [open("|exec </dev/fd/#{i.fileno}; #{SILENT}", &:read), $?.exitstatus] },
    'capture2' => ->(i) { Open3.capture2("exec </dev/fd/#{i.fileno}; #{SPEAKING}", i => i).then { |out, status| [out, status.exitstatus] } },
    'capture2e' => ->(i) { Open3.capture2e("exec </dev/fd/#{i.fileno}; #{SPEAKING}", i => i).then { |out, status| [out, status.exitstatus] } },
    'capture3' => ->(i) { Open3.capture3("exec </dev/fd/#{i.fileno}; #{SPEAKING}", i => i).then { |out, err, status| [out, err, status.exitstatus] } },
    'silent_capture3' => ->(i) { Open3.capture3("exec </dev/fd/#{i.fileno}; #{SILENT}", i => i).then { |out, err, status| [out, err, status.exitstatus] } },
    'popen3' => lambda do |i|
      Open3.popen3("exec </dev/fd/#{i.fileno}; #{SILENT}", i => i) { |_, out, err, thread| [out.read, err.read, thread.value.exitstatus] }
    end,
    'pipeline' => ->(i) { Open3.pipeline(SPEAKING, 'cat >/dev/null; exit 4', in: i).map(&:exitstatus) },
    'pipeline_r' => ->(i) { Open3.pipeline_r(SPEAKING, 'cat', in: i) { |out, threads| [out.read, threads.map { |t| t.value.exitstatus }] } }
  }.freeze

  # Lets the line come when another fiber has had some turns.
  def with_line_after_heartbeats
    reader, writer = pipe_pair
    reader.close_on_exec = false
    beats = 0
    heart = spin do
      5.times { beats += 1; sleep 0.0005 }
      writer.puts 'line'
    end
    yield(reader).tap { assert_equal 5, beats }
  ensure
    heart&.stop
  end

  # As in a program that spins nothing, and cannot but wait: the line is there already.
  def expected(way)
    @expected ||= Hash.new do |known, one|
      reader, writer = pipe_pair
      reader.close_on_exec = false
      writer.puts 'line'
      known[one] = one.call(reader)
    end
    @expected[way]
  end

  WAYS.each do |name, way|
    define_method("test_#{name}_lets_others_run_from_the_main_fiber") do
      assert_equal expected(way), with_line_after_heartbeats(&way)
    end

    define_method("test_#{name}_lets_others_run_from_a_spun_fiber") do
      assert_equal expected(way), with_line_after_heartbeats { |i| spin { way.call(i) }.await }
    end

    define_method("test_#{name}_lets_others_run_from_a_generator") do
      assert_equal(expected(way), with_line_after_heartbeats { |i| Enumerator.new { |y| y << way.call(i) }.next })
    end
  end

  # --- stock results --------------------------------------------------------------------------

  SHOW = <<~'RUBY'
    require 'open3'
    require 'tmpdir'
    def show(name)
      result = begin
        yield
      rescue Exception => e
        "#{e.class}: #{e.message.lines.first.chomp}"
      end
      puts "#{name}: #{result.inspect} #{$?.inspect}".gsub(/pid \d+/, 'pid N').gsub(/0x\h+/, '0x')
      $stdout.flush
    end
  RUBY

  COMMANDS = <<~'RUBY'
    show('true') { system('true') }
    show('false') { system('false') }
    show('shell') { system('exit 3 # by a shell') }
    show('signal') { system('kill -9 $$') }
    show('arguments') { system('sh', '-c', 'exit $1', 'x', '4') }
    show('own name') { system(['sh', 'named'], '-c', 'echo $0') }
    show('missing') { system('/nonexistent/x') }
    show('missing in a shell') { system('/nonexistent/x; exit 5', err: File::NULL) }
    show('exception') { system('exit 6', exception: true) }
    show('exception of a signal') { system('kill -15 $$', exception: true) }
    show('exception of a missing one') { system('/nonexistent/x', exception: true) }
    show('no exception') { system('true', exception: true) }
    show('env') { system({ 'A' => 'b', 'PATH' => ENV['PATH'] }, 'echo $A') }
    show('env alone') { system({ 'A' => 'b' }, '/usr/bin/env', unsetenv_others: true) }
    show('chdir') { system('pwd', chdir: '/') }
    show('no such folder') { system('true', chdir: '/nonexistent') }
    show('redirects') { Dir.mktmpdir { |d| [system('echo out; echo err >&2', out: "#{d}/o", err: "#{d}/e"), File.read("#{d}/o"), File.read("#{d}/e")] } }
    show('both') { Dir.mktmpdir { |d| [system('echo out; echo err >&2', [:out, :err] => ["#{d}/o", 'w']), File.read("#{d}/o")] } }
    show('input') { Dir.mktmpdir { |d| File.write("#{d}/i", 'in'); [system('cat', in: "#{d}/i"), $?.success?] } }
    show('bad redirect') { system('true', out: '/nonexistent/x') }
    show('group') { r, w = IO.pipe; system('ps -o pgid= -p $$ | tr -d " "; echo $$', pgroup: true, out: w); w.close; a, b = r.read.split; a == b }
    show('umask') { system('umask', umask: 0o77) }
    show('bad option') { system('true', nonsense: 1) }
    show('nul') { system("a\0b") }
    show('none') { system }
    show('number') { system(3) }
    show('Kernel') { Kernel.system('exit 2') }
    show('responds') { [Kernel.respond_to?(:system), Object.new.respond_to?(:system), Object.new.respond_to?(:`, true)] }

    show('backticks') { `echo hello` }
    show('backticks of a signal') { `kill -9 $$` }
    show('backticks err') { `echo a; exit 3` }
    show('backticks missing') { `/nonexistent/x` }
    show('backticks empty') { `` }
    show('backticks nul') { `a\0b` }
    show('backticks number') { Kernel.`(3) }
    show('backticks object') { o = Object.new; def o.to_str = 'echo object'; Kernel.`(o) }
    show('backticks big') { `head -c 300000 /dev/zero`.size }
    show('backticks bytes') { `printf '\\377\\0x'`.then { |s| [s, s.encoding, s.valid_encoding?, s.frozen?] } }
    show('private') { Object.new.`('x') }
    show('%x') { %x(echo #{1 + 1}) }

    show('popen') { io = IO.popen('echo a; exit 3'); [io.read, io.pid.class, io.close, io.closed?] }
    show('popen twice') { io = IO.popen('exit 3'); [io.close, io.close] }
    show('popen pid') { io = IO.popen('true'); io.close; io.pid }
    show('popen block') { IO.popen('echo b; exit 4') { |io| io.gets } }
    show('popen array') { IO.popen(['sh', '-c', 'echo $0', 'zero'], &:read) }
    show('popen name') { IO.popen([['sh', 'named'], '-c', 'echo $0'], &:read) }
    show('popen env') { IO.popen({ 'A' => 'b' }, 'echo $A', &:read) }
    show('popen env in array') { IO.popen([{ 'A' => 'b' }, 'sh', '-c', 'echo $A', { err: :out }], &:read) }
    show('popen r+') { IO.popen('cat; exit 5', 'r+') { |io| io.puts 'x'; io.close_write; io.read } }
    show('popen r+ close_read') { io = IO.popen('cat >/dev/null; exit 6', 'r+'); io.close_read; io.close_write; $?.class }
    show('popen w') { IO.popen('cat >&2', 'w', err: File::NULL) { |io| io.write 'xyz' } }
    show('popen close_write') { io = IO.popen('cat >/dev/null; exit 7', 'w'); io.write('x'); io.close_write; io.closed? }
    show('popen options') { IO.popen('echo $A; pwd; echo err >&2', chdir: '/', err: %i[child out], &:read) }
    show('popen binary') { IO.popen("printf '\\377'", 'rb', &:read).then { |s| [s, s.encoding] } }
    show('popen encoding') { IO.popen("printf '\\351'", external_encoding: 'ISO-8859-1', internal_encoding: 'UTF-8', &:read).then { |s| [s, s.encoding] } }
    show('popen missing') { IO.popen('/nonexistent/x') }
    show('popen missing block') { IO.popen(['/nonexistent/x']) { } }
    show('popen break') { IO.popen('cat', 'r+') { break :broken } }
    show('popen raise') { IO.popen('cat', 'r+') { raise KeyError, 'x' } }
    show('popen throw') { catch(:tag) { IO.popen('cat', 'r+') { throw :tag, 5 } } }
    show('popen closed within') { IO.popen('exit 3') { |io| io.close; 5 } }
    show('popen fork') { IO.popen('-') { |io| io ? io.read : print('child') } }
    show('popen fork r+') { IO.popen('-', 'r+') { |io| io ? (io.puts('up'); io.gets) : print($stdin.gets.upcase) } }
    show('popen fork at_exit') { at_exit { print 'not here' } if false; IO.popen('-') { |io| io ? io.read : exit!(9) } }
    show('popen fork exit') { io = IO.popen('-'); io ? [io.read, io.close] : (print('c'); $stdout.flush; exit!(8)) }
    show('popen each') { IO.popen('echo a; echo b').each_line.to_a }
    show('popen wait') { io = IO.popen('exit 3'); [Process.wait(io.pid) == io.pid, io.close] }
    show('open') { open('|echo x; exit 3', &:read) }
    show('open fork') { open('|-') { |io| io ? io.read : print('child') } }
    show('open none') { open }
    show('open file') { open(File::NULL) { |io| io.read } }
    show('IO.read') { IO.read('|echo x; exit 3') }
    show('IO.readlines') { IO.readlines('|echo x; echo y') }

    show('spawn') { pid = spawn('exit 3'); Process.wait(pid) == pid }
    show('spawn missing') { spawn('/nonexistent/x') }
    show('spawn folder') { spawn('true', chdir: '/nonexistent') }
    show('Process.spawn') { Process.wait2(Process.spawn({ 'A' => '5' }, 'exit $A')).last.exitstatus }
    show('exec missing') { exec('/nonexistent/x') }
  RUBY

  OPEN3 = <<~'RUBY'
    say = ->(*all) { all.map { |one| one.is_a?(Process::Status) ? one.to_s.sub(/pid \d+/, 'pid') : one } }
    show('capture3') { say.(*Open3.capture3('cat; echo err >&2; exit 3', stdin_data: 'in')) }
    show('capture3 io') { r, w = IO.pipe; w.write('from an io'); w.close; say.(*Open3.capture3('cat', stdin_data: r)) }
    show('capture3 binary') { say.(*Open3.capture3('head -c 2 /dev/zero', binmode: true)).then { |out, *rest| [out, out.encoding, *rest] } }
    show('capture3 big') { out, err, = Open3.capture3('cat; head -c 200000 /dev/zero >&2', stdin_data: 'x' * 300_000); [out.size, err.size] }
    show('capture3 not read') { say.(*Open3.capture3('exit 4', stdin_data: 'x' * 300_000)) }
    show('capture3 env') { say.(*Open3.capture3({ 'A' => 'b' }, 'echo $A; pwd', chdir: '/')) }
    show('capture3 missing') { Open3.capture3('/nonexistent/x') }
    show('capture2') { say.(*Open3.capture2('cat; exit 5', stdin_data: 'in')) }
    show('capture2 arguments') { say.(*Open3.capture2('echo', 'a b', 'c')) }
    show('capture2e') { say.(*Open3.capture2e('cat; echo err >&2; exit 6', stdin_data: "in\n")) }
    show('popen3') { Open3.popen3('cat; echo err >&2; exit 7') { |i, o, e, t| i.write('in'); i.close; [o.read, e.read, t.class, t.pid.class, say.(t.value)] } }
    show('popen3 no block') { i, o, e, t = Open3.popen3('cat'); i.close; [o.read, e.read, t.join.equal?(t), t.alive?, [i, o, e].each(&:close).map(&:closed?)] }
    show('popen3 left') { t = nil; Open3.popen3('cat') { |*all| t = all.last }; [t.alive?, say.(t.value)] }
    show('popen3 raise') { Open3.popen3('cat') { raise KeyError, 'x' } }
    show('popen2') { Open3.popen2('cat; exit 8') { |i, o, t| i.puts('in'); i.close; [o.read, say.(t.value)] } }
    show('popen2e') { Open3.popen2e('cat; echo err >&2') { |i, oe, t| i.puts('in'); i.close; [oe.read, say.(t.value)] } }
    show('popen3 options') { Open3.popen3({ 'A' => 'b' }, 'echo $A; cat', pgroup: true) { |i, o, _, t| [Process.getpgid(t.pid) == t.pid, i.close, o.read] } }
    show('pipeline') { Open3.pipeline('exit 1', ['sh', '-c', 'exit 2'], [{ 'A' => '3' }, 'exit $A']).map { |s| say.(s) } }
    show('pipeline_rw') { Open3.pipeline_rw('sort', 'tr a-z A-Z') { |i, o, ts| i.puts('b', 'a'); i.close; [o.read, ts.map { |t| say.(t.value) }] } }
    show('pipeline_r') { Open3.pipeline_r('echo a', 'cat; exit 3') { |o, ts| [o.read, ts.map { |t| say.(t.value) }] } }
    show('pipeline_w') { r, w = IO.pipe; Open3.pipeline_w('cat', 'sort', out: w) { |i, ts| i.puts('b', 'a'); i.close; w.close; [r.read, ts.size] } }
    show('pipeline_start') { Open3.pipeline_start('true', 'exit 4') { |ts| ts.map { |t| say.(t.value) } } }
    show('pipeline_start no block') { Open3.pipeline_start('true', 'exit 4').map { |t| say.(t.value) } }
    show('pipeline missing') { Open3.pipeline('true', '/nonexistent/x') }
  RUBY

  { 'commands' => COMMANDS, 'open3' => OPEN3 }.each do |name, forms|
    define_method("test_results_errors_and_statuses_of_#{name}_are_stock_rubys") do
      code = "#{SHOW}\n#{forms}"
      expected = stock(code)
      assert_operator expected.lines.size, :>, forms.lines.size - 5
      assert_equal expected, with_polyphony("Thread.current.backend\n#{code}"), 'on the main fiber'
      assert_equal expected, with_polyphony("#{SHOW}; spin { #{forms} }.await"), 'on a spun fiber'
      assert_equal expected, with_polyphony("#{SHOW}; Thread.new { spin { sleep }; #{forms} }.value"), 'in a thread'
    end
  end

  def test_output_is_converted_as_by_stock_ruby
    code = %q(p `printf '\351 x\n'`, `printf '\351 x\n'`.encoding, IO.popen("printf '\\351'").read)
    options = ['-W0', '-E', 'ISO-8859-1:UTF-8']
    expected, = run_ruby(code, options: options)
    ["require 'polyphony'; sleep 0; %s", "require 'polyphony'; spin { %s }.await"].each do |frame|
      actual, err, = run_ruby(format(frame, code.gsub('%', '%%')).gsub('%%', '%'), options: options)
      assert_equal [expected, ''], [actual, err]
    end
  end

  # --- cut short ------------------------------------------------------------------------------

  { 'system' => ->(c) { system(c) }, 'backticks' => ->(c) { `#{c}` },
    'silent_backticks' => ->(c) { `exec >&-; #{c}` } }.each do |name, way|
    define_method("test_#{name}_that_is_cut_short_leaves_the_child_running_and_no_zombie") do
      [->(&block) { spin(&block) }, ->(&block) { spin { Enumerator.new { |y| y << block.call }.next } }].each do |place|
        gate, opener = pipe_pair
        gate.close_on_exec = false
        reader, writer = pipe_pair
        writer.close_on_exec = false
        command = "echo $$ >/dev/fd/#{writer.fileno}; read line </dev/fd/#{gate.fileno}; echo done >/dev/fd/#{writer.fileno}"
        fiber = place.call { way.call(command) }
        pid = reader.gets.to_i
        snooze until fiber.state == :waiting
        fiber.stop
        fiber.await
        assert_includes %w[R S D], state_of(pid)
        opener.close
        assert_equal "done\n", reader.gets
        until_gone(pid)
      end
      assert_empty zombies
    end
  end

  def test_the_main_fiber_may_be_cut_short_too
    pid = nil
    reader, writer = pipe_pair
    writer.close_on_exec = false
    assert_nil(move_on_after(0.05) { system("echo $$ >/dev/fd/#{writer.fileno}; exec sleep 1000") })
    pid = reader.gets.to_i
    Process.kill(:TERM, pid)
    until_gone(pid)
    assert_empty zombies
  end

  def test_a_command_that_cannot_be_run_leaves_nothing_wherever_it_is_cut_short
    cancel_everywhere do |run|
      run.scenario { outcome { spawn('/nonexistent/command') } }
      run.check { sleep 0.0005 until zombies.empty? }
    end
    cancel_everywhere do |run|
      run.scenario { system('/nonexistent/command') }
      run.check { sleep 0.0005 until zombies.empty? }
    end
  end

  def test_a_close_that_is_cut_short_leaves_the_status
    io = IO.popen('exec >&-; read line; exit 3', 'r+')
    pid = io.pid
    closer = waiting { io.close }
    closer.stop
    closer.await
    assert_predicate io, :closed?
    assert_equal 3, Process.wait2(pid).last.exitstatus
  end

  def test_a_popen_whose_block_is_cut_short_is_waited_for
    ended = nil
    fiber = spin do
      IO.popen('cat', 'r+', &:read)
    ensure
      ended = $?.success?
    end
    snooze until fiber.state == :waiting
    fiber.stop
    fiber.await
    assert_equal true, ended
    assert_nil(move_on_after(0.01) { IO.popen('cat', 'r+', &:read) })
    assert_predicate $?, :success?
    assert_raises(Errno::ECHILD) { Process.wait }
  end

  def test_a_capture_that_is_cut_short_leaves_nothing
    threads = Thread.list.size
    before = Thread.report_on_exception
    Thread.report_on_exception = false # as in stock Ruby, its threads find their pipes closed
    3.times { assert_nil(move_on_after(0.01) { Open3.capture3('cat; sleep 0.001', stdin_data: pipe_pair.first) }) }
    sleep 0.001 until Thread.list.size <= threads
    assert_empty zombies
    assert_raises(Errno::ECHILD) { Process.wait }
  ensure
    Thread.report_on_exception = before
  end

  # --- many -----------------------------------------------------------------------------------

  MANY = [
    ->(n) { [system("exit #{n}"), $?.exitstatus].last }, ->(n) { `echo; exit #{n}`; $?.exitstatus },
    ->(n) { IO.popen("echo; exit #{n}", &:read); $?.exitstatus }, ->(n) { Process.wait2(spawn("exit #{n}")).last.exitstatus },
    ->(n) { IO.popen("exit #{n}").close; $?.exitstatus }, ->(n) { Process.wait(fork { exit!(n) }); $?.exitstatus },
    ->(n) { Open3.capture3("exit #{n}").last.exitstatus }, ->(n) { Process.detach(spawn("exit #{n}")).value.exitstatus }
  ].freeze

  def test_two_hundred_commands_of_all_kinds_at_once
    heavy
    beats = 0
    heart = spin { loop { beats += 1; sleep 0.0005 } }
    fibers = Array.new(200) { |i| spin { [i % 90, MANY[i % MANY.size].call(i % 90)] } }
    fibers.each { |fiber| assert_equal(*fiber.await) }
    heart.stop
    assert_operator beats, :>, 2 # between rounds of 200 forks
    assert_raises(Errno::ECHILD) { Process.wait }
    assert_empty zombies
  end

  # Only popen leaves its child to everybody before it is closed, as in stock Ruby.
  def test_who_waits_for_any_child_takes_nothing_from_commands
    heavy
    extra = child(99)
    any = waiting { Process.wait2.last.exitstatus }
    ways = MANY - [MANY[2]]
    fibers = Array.new(70) { |i| spin { [i, ways[i % ways.size].call(i)] } }
    fibers.each { |fiber| assert_equal(*fiber.await) }
    assert_includes %i[waiting runnable], any.state # it looks whenever a child ends
    extra.finish
    assert_equal 99, any.await
  end
end
