# frozen_string_literal: true

require 'rbconfig'

module Bench
  # Starts an echo server, lets echo_load.c ask it, and stops it. Server and load are kept apart on
  # two processors where there are two: otherwise the scheduler now and then puts both on one, and
  # what is measured is its choice.
  module Echo
    module_function

    # @param seconds [Float] how long answers are counted
    # @return [Hash] the figures of echo_load.c
    def measure(command, connections, seconds)
      # taskset becomes the command, so the process is the server's.
      server = IO.popen(pin(0) + command)
      port = Integer(server.gets || raise('the echo server did not start'))
      load = pin(1) + [Native.program('echo_load'), port, connections, seconds, server.pid]
      output = IO.popen(load.map(&:to_s), &:read)
      raise "echo_load failed (#{$?})" unless $?.success?

      JSON.parse(output, symbolize_names: true)
    ensure
      stop(server)
    end

    def ours
      [RbConfig.ruby, '--disable-gems', File.join(__dir__, 'echo_server.rb')]
    end

    def with(name)
      [RbConfig.ruby, name == 'Thread' ? '--disable-gems' : '--enable-gems', File.join(__dir__, 'echo_peer.rb'), name]
    end

    def native(name)
      [Native.program(name)]
    end

    def pin(processor)
      return [] unless pinned?

      ['taskset', '-c', processor.to_s]
    end

    def pinned?
      @pinned ||= system('taskset', '-c', '0,1', 'true', out: File::NULL, err: File::NULL) ? :yes : :no
      @pinned == :yes
    end

    def stop(server)
      return unless server

      Process.kill(:KILL, server.pid)
      server.close
    end
  end
end
