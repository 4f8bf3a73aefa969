# frozen_string_literal: true

require_relative '../test_helper'
require 'openssl'

# What must not get out of a process, and what must not get in.
class TestSecurity < Polyphony::TestCase
  on_every_driver
  time_limit 120

  # @return [Array<String>] what another program finds open when it begins
  def open_by_a_child
    reader, writer = IO.pipe
    pid = spawn('ls', '-l', '/proc/self/fd', out: writer, in: File::NULL, err: File::NULL)
    writer.close
    text = reader.read
    Process.wait(pid)
    text.scan(/ -> (.+)$/).flatten.reject { |name| name.start_with?('/proc/') }
  ensure
    [reader, writer].compact.each(&:close)
  end

  # Those of Ruby itself, its timer's for instance, are there without us, too.
  def kinds(names) = names.map { |name| name.sub(/:\[\d+\]\z/, '') }.tally

  OPERATIONS = {
    nothing: ->(_) {},
    pipe: ->(test) { test.pipe_pair.then { |r, w| w << 'x'; r.readpartial(1) } },
    sockets: ->(test) { test.tcp_pair.then { |a, b| a << 'x'; b.readpartial(1) } },
    accept_loop: lambda do |test|
      server = test.track(TCPServer.new('127.0.0.1', 0))
      accepted = Polyphony::Queue.new
      fiber = test.spin { server.accept_loop { |socket| accepted << test.track(socket) } }
      test.track(TCPSocket.new('127.0.0.1', server.local_address.ip_port))
      accepted.shift
      fiber
    end,
    waiting: ->(test) { test.pipe_pair.first.then { |r| test.spin { r.read } }; test.snooze },
    recv_loop: ->(test) { test.socket_pair.then { |a, b| test.spin { Polyphony.backend_recv_loop(a, 100) { nil } }; b << 'x' }; 3.times { test.snooze } },
    splice: ->(test) { test.pipe_pair.then { |r, w| a, = test.pipe_pair; w << 'x'; IO.splice(r, test.track(*IO.pipe).last, 1); a } },
    polyphony_pipe: ->(_) { Polyphony.pipe.tap { |pipe| pipe << 'x' } },
    file: ->(test) { test.track(Tempfile.create('security')).tap { |io| File.unlink(io.path); io << 'x' } },
    opened: ->(test) { test.track(File.open(__FILE__)).tap(&:gets) },
    lookup: ->(_) { Addrinfo.getaddrinfo('localhost', 80) },
    blocking: ->(_) { Polyphony.blocking { 1 } },
    thread: ->(test) { Thread.new { test.spin { sleep 0.0001 }.await }.join },
    waiting_thread: ->(test) { Thread.new { test.snooze; sleep }.tap { |thread| sleep 0.001 until thread.backend; (@threads ||= []) << thread } },
    process: ->(_) { `true` },
    waiting_process: ->(test) { pid = Process.spawn('sleep 30'); test.spin { Process.wait(pid) }; test.snooze; pid },
    tls: ->(test) { test.tcp_pair.then { |a, _| OpenSSL::SSL::SSLSocket.new(a) } }
  }.freeze

  def test_no_descriptor_of_ours_is_inherited_by_another_program
    bare = kinds(open_by_a_child)
    left = OPERATIONS.filter_map do |name, operation|
      made = instance_exec { operation.call(Bridge.new(self)) }
      seen = kinds(open_by_a_child)
      Process.kill(:KILL, made) if name == :waiting_process
      made.kill.join if name == :waiting_thread
      [name, seen] unless seen == bare
    ensure
      shut_down_children
    end
    assert_empty left, bare.inspect
    assert_empty bare.keys.grep(/io_uring|eventpoll|pidfd/)
    pipe_pair.first.close_on_exec = false
    refute_equal bare, kinds(open_by_a_child), 'it would not be seen'
  end

  # The helpers of a test are its own.
  Bridge = Struct.new(:test) do
    %i[pipe_pair tcp_pair socket_pair track spin snooze].each do |name|
      define_method(name) { |*arguments, &block| test.__send__(name, *arguments, &block) }
    end
  end

  # Where bytes become objects or code, and why nobody else's do. Another place has to be thought about, and to be written here.
  TRUSTED = {
    'lib/polyphony/core/process_pool/task.rb' => 'a socket pair with our own child',
    'lib/polyphony/core/process_pool/job.rb' => 'the same, the other end',
    'lib/polyphony/core/process_pool/failure.rb' => 'the same: errors',
    'lib/polyphony/http/config/file.rb' => 'the configuration of the web server, which its user names',
    'lib/polyphony/http/handler_file.rb' => 'the application that the user names',
    'lib/polyphony/cli/script.rb' => 'the script that the user names',
    'lib/polyphony/adapters/redis_client/resumable.rb' => 'names from a list in the file',
    'lib/polyphony/adapters/pg/result.rb' => 'the same',
    'lib/polyphony/adapters/pg/connection.rb' => 'the same'
  }.freeze
  # (Those of blocks, and without bytes, are code that stands there already.)
  DANGEROUS = /Marshal\.(load|restore)|\beval\b|(instance|class|module)_eval\b(?!\s*(\{|do\b))|YAML\.(unsafe_)?load|\bKernel\.load\b|create_additions|Oj\.load/

  def test_nothing_from_outside_becomes_an_object_or_code
    found = Dir["#{POLYPHONY_ROOT}/{lib,exe}/**/*"].select do |path|
      File.file?(path) && !path.end_with?('.so') && File.foreach(path).any? { |line| line.sub(/^\s*#.*/, '').match?(DANGEROUS) }
    end
    assert_empty found.map { |path| path.delete_prefix("#{POLYPHONY_ROOT}/") } - TRUSTED.keys
    assert_operator found.size, :>=, 5, 'they would not be found'
  end

  # What is done later, by a ring or a worker that was there before, must not have the rights of that time.
  PRIVILEGES = <<~'RUBY'
    require 'polyphony'
    PATH, way = ARGV

    # Opened at once; by a worker of the kernel's, where nobody may wait for what has to be written; by a thread of ours.
    WAYS = {
      opened: -> { Polyphony.backend_open(PATH) },
      truncated: -> { Polyphony.backend_open(PATH, File::RDWR | File::TRUNC) },
      offloaded: -> { Polyphony.blocking { File.read(PATH) } },
      read: -> { File.read(PATH) }
    }
    ALL = -> { WAYS.transform_values { |way| way.call && :done rescue $!.class } }

    go, begun = Thread::Queue.new, Thread::Queue.new
    thread = Thread.new { before = ALL.call; begun << 1; go.pop; [before, ALL.call] }
    before = ALL.call
    reader, writer = IO.pipe
    waiting = spin { reader.read(1) }
    begun.pop
    case way
    when 'change_privilege' then Process::GID.change_privilege(65_534); Process::UID.change_privilege(65_534)
    when 'setuid' then Process::Sys.setgid(65_534); Process::Sys.setuid(65_534)
    when 'eid' then Process::Sys.setegid(65_534); Process::Sys.seteuid(65_534)
    when 'resuid' then Process::Sys.setresgid(65_534, 65_534, 65_534); Process::Sys.setresuid(65_534, 65_534, 65_534)
    when 'thread' then Thread.new { Process::Sys.setgid(65_534); Process::Sys.setuid(65_534) }.join
    end
    go << 1
    writer << 'x'
    told = [[before, ALL.call], thread.value, Marshal.load(IO.popen('-') { |io| io ? io.read : print(Marshal.dump(ALL.call)) })]
    puts told.flatten.map { |answers| answers.values.uniq.inspect }.join(' '), waiting.await, Process.euid
    $stdout.flush
    exit!
  RUBY

  def test_rights_that_were_dropped_are_gone
    heavy
    skip 'only root has rights to drop' unless Process.uid.zero?
    Dir.mktmpdir('security') do |folder|
      File.chmod(0o755, folder)
      File.write("#{folder}/secret", 'secret', perm: 0o600)
      told = %w[change_privilege setuid eid resuid thread].to_h { |way| [way, run_ruby(PRIVILEGES, "#{folder}/secret", way).first(2).join] }
      gone = "[:done] [Errno::EACCES] [:done] [Errno::EACCES] [Errno::EACCES]\nx\n65534\n"
      assert_equal told.transform_values { gone }, told
      assert_equal "#{'[:done] ' * 4}[:done]\nx\n0\n", run_ruby(PRIVILEGES, "#{folder}/secret", 'none').first(2).join, 'it would not be seen'
    end
  end

  # Who starts a program in a folder of somebody else's does not run what lies there.
  INTRUDER = <<~'C'
    #include <stdio.h>
    __attribute__((constructor)) static void intrude(void) { puts("intruder"); fflush(stdout); }
  C

  def test_no_library_is_taken_from_the_folder_that_a_program_is_started_in
    Dir.mktmpdir('security') do |folder|
      File.write("#{folder}/intruder.c", INTRUDER)
      names = %w[libev.so.4 libev.so liburing.so.2 libnghttp2.so.14 libz.so.1 libsqlite3.so.0]
      skip 'no C compiler' unless names.all? { |name| system('cc', '-shared', '-fPIC', '-o', "#{folder}/#{name}", "#{folder}/intruder.c", err: File::NULL) }
      code = "require 'polyphony'; require 'polyphony/http'; spin { sleep 0.001 }.await; puts Thread.current.backend.kind"
      assert_equal "#{Thread.current.backend.kind}\n", run_ruby(code, options: ['-C', folder]).first
      assert_match(/intruder/, run_ruby('require "fiddle"; Fiddle.dlopen("./libev.so.4")', options: ['-C', folder]).first, 'it would not be seen')
    end
  end

  def test_the_socket_for_looking_at_a_program_refuses_other_users
    require 'polyphony/tools/attach'
    skip 'only root can be somebody else' unless Process.uid.zero?
    place = Polyphony.const_get(:Attach).const_get(:Place)
    left, = socket_pair
    assert place.same_user?(left)
    Dir.mktmpdir('security') do |folder|
      File.chmod(0o777, folder)
      server = track(UNIXServer.new("#{folder}/socket"))
      File.chmod(0o777, "#{folder}/socket") # as if the rights of the file had failed
      pid = spawn('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', RbConfig.ruby, '--disable-gems', '-rsocket',
                  '-e', "UNIXSocket.new('#{folder}/socket').read", err: File::NULL)
      refute place.same_user?(track(server.accept)), 'it would be answered'
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end
end
