# frozen_string_literal: true

require 'json'
require 'polyphony/core'
require 'polyphony/tools/attach/place'

module Polyphony
  # The side of a program that +polyphony tree+ and +polyphony top+ look at. It begins with a signal, and ends when nobody has looked for a
  # while. A thread of its own answers, so that one which computes, or is held, is seen as it is. Nothing that comes
  # in is ever evaluated: there are five words, and the number of a fiber.
  # @api private
  module Attach
    # Seconds without anybody.
    IDLE = 10
    # Bytes of a question.
    LONGEST = 1000

    @lock = ::Thread::Mutex.new

    class << self
      # A signal has come, and this thread was made for it.
      def open
        current = ::Thread.current
        current.__polyphony_helper
        current.name = 'attach'
        first = @lock.synchronize { @thread&.alive? ? false : @thread = current }
        ::Thread.handle_interrupt(::Object => :immediate) { run } if first
      end

      # A forked child has none of its parent's.
      def after_fork
        @lock = ::Thread::Mutex.new
        @thread = nil
      end

      private

      def run
        server = listen
        at_exit_once
        serve(server)
      rescue ::SystemCallError, ::SecurityError => e
        warn "polyphony: nobody can look at this program: #{e.message}"
      ensure
        close(server)
      end

      def listen
        Place.prepare
        Place.sweep
        @path = Place.socket
        ::File.unlink(@path) if ::File.exist?(@path) # of a process that had the number before
        @pid = ::Process.pid
        ::UNIXServer.new(@path).tap { ::File.chmod(0o600, @path) }
      end

      def close(server)
        server&.close
        remove
      end

      def remove
        ::File.unlink(@path) if @path && @pid == ::Process.pid && ::File.exist?(@path)
      rescue ::SystemCallError
        nil # somebody has tidied up
      end

      # The program may end while somebody looks.
      def at_exit_once
        return if @hooked

        @hooked = true
        at_exit { remove }
      end

      def serve(server)
        loop do
          if server.wait_readable(IDLE) then welcome(server.accept)
          elsif ::Fiber.current.children.empty? then break
          end
        end
      end

      def welcome(client)
        spin do
          talk(client) if Place.same_user?(client)
        rescue ::SystemCallError, ::IOError
          nil # it has gone
        ensure
          client.close
        end
      end

      def talk(client)
        while (line = client.gets("\n", LONGEST))
          client.write("#{answer(line)}\n")
        end
      end

      def answer(line)
        question = JSON.parse(line)
        raise ::ArgumentError, 'a question is an object' unless question.is_a?(::Hash)

        JSON.generate(reply(question['do'], question['id']))
      rescue JSON::ParserError, ::ArgumentError => e
        JSON.generate(error: WaitReport.utf8(e.message))
      rescue *WaitReport::FAULTS => e # whatever an object of the program's does when it is asked for its name
        JSON.generate(error: "the program has #{e.class} for an answer: #{WaitReport.utf8(e.message)}")
      end

      def reply(word, id)
        case word
        when 'tree' then Tree.new.to_h
        when 'text' then { text: Tree.new.to_s }
        when 'html' then { html: Tree.new.to_html }
        when 'backtrace' then with(id) { |fiber| { fiber: title(fiber), backtrace: backtrace(fiber) } }
        when 'cancel' then with(id) { |fiber| { fiber: title(fiber), cancelled: cancel(fiber) } }
        else raise ::ArgumentError, "no such question: #{word.inspect}"
        end
      end

      def with(id)
        raise ::ArgumentError, "the id of a fiber is a number, got #{id.inspect}" unless id.is_a?(::Integer)

        fiber = ::Fiber.__all.find { |one| one.__timeline.first == id } or raise ::ArgumentError, "fiber #{id} has ended"
        yield fiber
      end

      def title(fiber)
        "#{WaitReport.title(fiber).delete_suffix('>')} (#{fiber.state})>"
      end

      # Where it is, then where it was spun.
      def backtrace(fiber)
        [*fiber.backtrace, *fiber.caller].compact.map { |line| WaitReport.utf8(line) }
      end

      # A stop: Polyphony::Cancel would be raised in the parent next, and end the program if nobody rescues it there. A main fiber
      # would end the program, or its thread: for that there are signals.
      def cancel(fiber)
        raise ::ArgumentError, 'the main fiber of a thread is not cancelled from outside: end the program with a signal' if fiber.main?

        fiber.stop ? true : false
      end
    end

    ProcessFork.in_child { Attach.after_fork }
  end
end
