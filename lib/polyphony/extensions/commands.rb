# frozen_string_literal: true

module Polyphony
  # Commands run while other fibers go on: output, +$?+ and errors are as in stock Ruby. What system does is
  # stock, but for its wait; the same holds for IO#close.
  module CommandExtensions
    private

    # As stock. If it is cut short, the child goes on, and is reaped when it ends.
    # @return [String] what the command has written
    def `(command)
      # "-" is no command: it forks.
      return super unless command.is_a?(String) && command != '-' && Thread.__polyphony_may_wait?

      Polyphony.__clear_last_status__
      CommandExtensions.output_of(command)
    end

    # As stock. For +open('|command') { }+ see Popen#popen.
    def open(*arguments, **options, &block)
      path = arguments.first if block
      command = path.is_a?(String) && path.start_with?('|') && StandIn.wanted?
      command ? super(*arguments, **options, &CommandExtensions.closing(block)) : super
    end

    # @!visibility private
    # Of a child that was made by forking, there is no IO; and a thread that is killed does not wait for its
    # children.
    # @return [Proc]
    def self.closing(block)
      lambda do |io|
        block.call(io)
      ensure
        io.close if io && Thread.current.status != 'aborting'
      end
    end

    # Stock does not convert what it reads to the default internal encoding either.
    # @!visibility private
    def self.output_of(command)
      reader, writer = ::IO.pipe(binmode: true)
      pid = ::Process.spawn(command, out: writer)
      writer.close
      with_claim(pid) { reader.read.tap { ::Process.wait(pid) } }.force_encoding(Encoding.default_external)
    ensure
      [reader, writer].each { |io| io.close if io && !io.closed? }
    end

    # Nobody who waits for any child gets this one; if we cannot, it is reaped when it ends.
    # @!visibility private
    def self.with_claim(pid)
      Polyphony.__process_claim__(pid, 1)
      output = yield
    ensure
      Polyphony.__process_claim__(pid, -1)
      ::Process.detach(pid) unless output
    end

    # For IO itself.
    module Popen
      # As stock. With a block, the wait for the child at its end lets other fibers run: where Ruby would
      # not ask our scheduler, the IO is closed before stock does it.
      # @return [IO, nil, Object] what the block returns, if there is one
      def popen(*arguments, **options, &block)
        return super unless block && StandIn.wanted?

        super(*arguments, **options, &CommandExtensions.closing(block))
      end
    end

    ::Kernel.prepend self
    ::Kernel.singleton_class.prepend(dup.module_eval { public :`, :open; self })
    ::IO.singleton_class.prepend Popen
  end
end
