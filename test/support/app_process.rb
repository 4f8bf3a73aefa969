# frozen_string_literal: true

require 'rbconfig'
require 'tempfile'

module Polyphony
  # An application of test/apps under a server, in a process of its own with the gems of its own bundle.
  class AppProcess
    ROOT = File.expand_path('../..', __dir__)
    GEMS = File.join(ROOT, 'vendor/apps')

    class << self
      # @return [String, nil] why the applications of this bundle cannot be run
      def refusal(gemfile = 'Gemfile')
        return if File.directory?(GEMS) && File.exist?("#{ROOT}/test/apps/#{gemfile}.lock")

        "the gems of test/apps/#{gemfile} are not installed: run bin/setup --all"
      end

      # The environment of a command that uses the bundle.
      def env(gemfile, more = {})
        # Settings of the bundle that the tests run in must not reach the child.
        ours = ENV.keys.grep(/\A(BUNDLE|BUNDLER|GEM|RUBY)_?/).to_h { |name| [name, nil] }
        ours.merge('BUNDLE_GEMFILE' => "#{ROOT}/test/apps/#{gemfile}", 'BUNDLE_PATH' => GEMS, 'RUBYOPT' => '-rbundler/setup',
                   'RUBYLIB' => POLYPHONY_LIB, 'BUNDLE_FROZEN' => 'true').merge(more)
      end
    end

    attr_reader :pid, :status

    # @param command [Array<String>] of ruby
    # @param said [Regexp] what is written when it listens; its group 1 is the port
    def initialize(*command, gemfile: 'Gemfile', env: {}, dir: "#{ROOT}/test/apps", said: /listens at http:\/\/127\.0\.0\.1:(\d+)/)
      @said = said
      @output = Tempfile.new('app')
      @pid = ::Process.spawn(self.class.env(gemfile, env), RbConfig.ruby, *command, chdir: dir, in: File::NULL,
                           out: @output.path, err: @output.path)
    end

    # Waits until it listens.
    # @return [Integer] its port
    def port(within: 30)
      @port ||= begin
        deadline = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) + within
        until (match = output.match(@said))
          late = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) > deadline
          raise "the application does not listen:\n#{output}" if late || ended?

          sleep 0.02
        end
        Integer(match[1])
      end
    end

    # @return [String] what it wrote
    def output
      @written || File.read(@output.path)
    end

    def ended?
      @status ||= ::Process.wait2(@pid, ::Process::WNOHANG)&.last
    end

    # @return [::Process::Status]
    def stop(signal = :TERM, within: 20)
      ::Process.kill(signal, @pid) unless ended?
      deadline = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) + within
      until ended?
        ::Process.kill(:KILL, @pid) if ::Process.clock_gettime(::Process::CLOCK_MONOTONIC) > deadline
        sleep 0.01
      end
      @written = output
      @output.close!
      @status
    end
  end
end
