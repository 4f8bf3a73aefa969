# frozen_string_literal: true

module Polyphony
  # Children that end when told, and what must hold while one waits for them.
  module ChildHelpers
    Child = Struct.new(:pid, :gate) do
      def finish
        gate.close unless gate.closed?
      end
    end

    BEATS = 5

    # No child may be left behind.
    def after_teardown
      super
    ensure
      @children&.each(&:finish)
      left = ::Process.waitall
      assert_empty left if passed?
    end

    # A child that ends with that status when told.
    def child(status = 0, **options)
      reader, writer = track(*IO.pipe)
      pid = ::Process.spawn("read line; exit #{status}", in: reader, **options)
      reader.close
      Child.new(pid, writer).tap { |one| (@children ||= []) << one }
    end

    # Runs the block, which waits for the child; the child ends when another fiber has had some turns
    # since the block began to wait.
    def beside_a_heartbeat(one)
      beats = 0
      heart = spin do
        BEATS.times { beats += 1; sleep 0.0005 }
        one.finish
      end
      yield.tap { assert_equal BEATS, beats }
    ensure
      heart&.stop
    end

    # What plain Ruby prints.
    def stock(code)
      output_of(code)
    end

    # What it prints with Polyphony, and other fibers at work.
    def with_polyphony(code)
      output_of("require 'polyphony'; #{code}")
    end

    # A fiber in which children end with that status, one after the other; the last one is not left behind.
    # @return [Fiber] to be stopped
    def busy_fiber(status)
      spin { loop { shield { ::Process.wait(::Process.spawn("exit #{status}")) } } }
    end

    # Waits until it has come to its end or nearly so, while no fiber runs.
    def until_ended(pid)
      Thread.__polyphony_stock_pass while File.readlink("/proc/#{pid}/exe")
    rescue Errno::ENOENT
      nil
    end

    # Waits until these have been reaped.
    def until_gone(*pids)
      pids.each { |pid| sleep 0.0005 while state_of(pid) }
    end

    # @return [Array<String>] children of this process that have ended and were not waited for
    def zombies
      Dir.glob('/proc/[0-9]*/stat').filter_map do |file|
        pid, _, state, parent = fields(file)
        "#{pid} is a zombie" if state == 'Z' && parent.to_i == ::Process.pid
      end
    end

    private

    def output_of(code)
      out, err, status = run_ruby(code, options: ['-W0'])
      assert_predicate status, :success?, "#{err}\n#{out}"
      out
    end

    # @return [String, nil] R, S, Z ...; nil if there is no such process
    def state_of(pid)
      fields("/proc/#{pid}/stat")&.at(2)
    end

    def fields(file)
      text = File.read(file)
      [text[/\A\d+/], text[/\((.*)\)/m, 1], *text[/\)\s*([^)]*)\z/, 1].split]
    rescue Errno::ENOENT, Errno::ESRCH
      nil
    end
  end
end
