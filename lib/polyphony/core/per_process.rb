# frozen_string_literal: true

module Polyphony
  # Something that counts on fibers and threads which a forked child does not have. The child gets
  # its own, made by whoever asks for it first there.
  # @api private
  class PerProcess
    # @yield [Object, nil] makes it, now and in each forked child; gets the parent process's
    def initialize(&make)
      @make = make
      @lock = ::Thread::Mutex.new
      renew
    end

    # @return [Object] the one of this process
    def value
      return @value if @pid == ::Process.pid

      @lock.synchronize { renew unless @pid == ::Process.pid }
      @value
    end

    private

    # The number comes last: who finds it right takes the value without the lock.
    def renew
      @value = @make.call(@value)
      @pid = ::Process.pid
    end
  end

  private_constant :PerProcess
end
