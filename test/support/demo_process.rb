# frozen_string_literal: true

require 'rbconfig'
require 'tmpdir'

module Polyphony
  # The demo in a process of its own, on ports that the kernel chooses.
  class DemoProcess
    FOLDER = File.expand_path('../../demo', __dir__)

    attr_reader :urls, :pid

    def initialize(database: nil)
      @folder = Dir.mktmpdir('polyphony-demo')
      @database = database || File.join(@folder, 'messages.sqlite3')
    end

    def start
      @output = File.join(@folder, 'output')
      command = [RbConfig.ruby, '-W1', "-I#{POLYPHONY_LIB}", File.join(FOLDER, 'demo.rb'), '--serve', '--port', '0',
                 '--tls-port', '0', '--database', @database]
      @pid = ::Process.spawn(*command, in: File::NULL, out: @output, err: %i[child out])
      wait_until('it listens') { (@urls = output.scan(%r{https?://\S+})).size == 2 && output.include?('Ctrl-C') }
      self
    end

    def output
      File.exist?(@output) ? File.read(@output) : ''
    end

    # @return [::Process::Status]
    def stop(signal = :INT)
      ::Process.kill(signal, @pid)
      status = nil
      wait_until('it ends') { (_, status = ::Process.wait2(@pid, ::Process::WNOHANG)) && status }
      @pid = nil
      status
    end

    # Whatever has become of it.
    def remove
      if @pid
        ::Process.kill(:KILL, @pid)
        ::Process.wait(@pid)
      end
      FileUtils.rm_rf(@folder)
    end

    private

    def wait_until(what)
      deadline = Time.now + (30 * TestCase::PATIENCE)
      until yield
        raise "the demo was to be waited for until #{what}:\n#{output}" if Time.now > deadline

        sleep 0.01
      end
    end
  end
end
