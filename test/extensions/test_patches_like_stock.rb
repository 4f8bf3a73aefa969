# frozen_string_literal: true

require_relative '../test_helper'

# The ways in which others redefine Ruby's methods, compared with what they come to in stock Ruby.
class TestPatchesLikeStock < Polyphony::TestCase
  on_every_driver

  # Each line is run without Polyphony, and with it in the main fiber and in a spun one.
  PROGRAMS = {
    alias_and_def: <<~'RUBY',
      class IO
        alias old_read read
        def read(*args) = "<#{old_read(*args)}>"
      end
      r, w = IO.pipe
      w << 'text'
      w.close
      say r.read(2), r.read
    RUBY
    two_of_them: <<~'RUBY',
      class Thread
        alias old_join join
        def join(*args) = (say(:one); old_join(*args))
        alias older_join join
        def join(*args) = (say(:two); older_join(*args))
      end
      say Thread.new { sleep 0.001; 1 }.join.value
    RUBY
    class_methods: <<~'RUBY',
      class << Process
        alias old_wait wait
        def wait(*args) = (say(:mine); old_wait(*args))
        alias_method :old_kill, :kill
        define_method(:kill) { |*args| [:mine, old_kill(*args)] }
      end
      Process.wait(Process.spawn('exit 3'))
      say $?.exitstatus, Process.kill(0, Process.pid)
    RUBY
    functions: <<~'RUBY',
      module Kernel
        alias old_sleep sleep
        private def sleep(*args) = [:mine, old_sleep(*args)]
        alias old_backtick `
        private def `(command) = "#{old_backtick(command)}!"
      end
      say sleep(0.001), `echo text`, (5.sleep rescue $!.class)
    RUBY
    keywords_and_blocks: <<~'RUBY',
      class << IO
        alias old_popen popen
        def popen(*args, **options, &block) = old_popen(*args, **options) { |io| [:mine, block.call(io)] }
      end
      say IO.popen('echo text; echo more >&2', err: File::NULL, &:read)
    RUBY
    without_the_old_one: <<~'RUBY',
      def IPSocket.getaddress(host) = "address of #{host}"
      class Mutex
        def synchronize = [:unlocked, yield]
      end
      say IPSocket.getaddress('somewhere'), Mutex.new.synchronize { 1 }
    RUBY
    one_of_the_superclass: <<~'RUBY',
      class TCPServer
        def gets(*) = 'mine'
      end
      server = TCPServer.new('127.0.0.1', 0)
      say server.gets
      r, w = IO.pipe
      w.puts 'text'
      say r.gets
    RUBY
    undone_by_alias: <<~'RUBY',
      r, w = IO.pipe
      3.times { w.puts 'text' }
      class IO
        alias old_gets gets
        def gets(*) = 'mine'
      end
      say r.gets
      class IO
        alias gets old_gets
      end
      say r.gets
      class IO
        alias old_gets gets
        def gets(*args) = old_gets(*args) * 2
      end
      say r.gets
    RUBY
    undone_by_a_method_object: <<~'RUBY',
      before = IPSocket.method(:getaddress)
      IPSocket.singleton_class.class_eval { undef getaddress; define_method(:getaddress) { |host| host * 2 } }
      say IPSocket.getaddress('x')
      IPSocket.singleton_class.class_eval { undef getaddress; define_method(:getaddress, before) }
      say IPSocket.getaddress('127.0.0.1'), IPSocket.getaddress('localhost')
    RUBY
    undone_after_undef: <<~'RUBY'
      singleton = Process.singleton_class
      singleton.alias_method :kept, :wait2
      singleton.define_method(:wait2) { |*| :stubbed }
      say Process.wait2
      singleton.undef_method :wait2
      singleton.alias_method :wait2, :kept
      singleton.undef_method :kept
      say Process.wait2(Process.spawn('exit 4')).last.exitstatus
    RUBY
  }.freeze

  FRAME = <<~'RUBY'
    require 'socket'
    def say(*values) = STDOUT.syswrite("#{values.inspect}\n")
    program = -> { eval(ARGV[0], TOPLEVEL_BINDING) }
    %s
  RUBY
  WAYS = { stock: 'program.call', main: "require 'polyphony'; spin { loop { snooze } }; program.call",
           spun: "require 'polyphony'; spin { program.call }.await" }.freeze

  PROGRAMS.each do |name, program|
    define_method("test_#{name}") do
      started = WAYS.values.map { |way| start_ruby(format(FRAME, way), program) }
      expected, actual, also = started.map do |one|
        out, err, status = one.finish(self, patient(30))
        assert_predicate status, :success?, err
        out
      end
      refute_empty expected
      assert_equal [expected, expected], [actual, also]
    end
  end
end
