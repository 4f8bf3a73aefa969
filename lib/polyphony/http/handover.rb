# frozen_string_literal: true

require 'json'
require 'rbconfig'

module Polyphony
  module HTTP
    # Becomes a new program without a new process: exec, with open sockets and running workers. The number of the process
    # stays, so whoever watches it (systemd, a container) notices nothing.
    # @!visibility private
    class Handover
      # Tells the new program what is there.
      VARIABLE = 'POLYPHONY_HANDOVER'

      # @return [Handover] what the process before us left, and how to start ourselves again
      # @param command [Array<String>, nil] script and arguments; nil: it cannot be done
      # @param env [Hash] the environment
      def initialize(command, env = ENV)
        @command = command
        @folder = folder_of(env)
        @left = parse(env.delete(VARIABLE))
      end

      # @return [Boolean] whether there was a process before us
      def any?
        !@left.empty?
      end

      # @return [Hash{String => Array(Integer, Boolean)}] address => descriptor, and whether the file is ours
      def sockets
        @left.fetch('sockets', {})
      end

      # @return [Array<Hash>] workers that run
      def workers
        @left.fetch('workers', [])
      end

      # Has workers end that a process with workers has left to one without.
      def dismiss_workers
        workers.each do |left|
          channel = ::UNIXSocket.for_fd(left['channel'])
          channel.close # which tells it
          spin { ::Process.wait(left['pid']) }
        end
        ::IO.for_fd(scoreboard).close if scoreboard
      end

      # @return [Integer, nil] descriptor of the scoreboard
      def scoreboard
        @left['scoreboard']
      end

      # @return [Integer]
      def generation
        @left.fetch('generation', 0)
      end

      # @return [Boolean] whether it can be done
      def possible?
        !@command.nil?
      end

      # Loads configuration and application in a process of its own, to see whether that would work.
      # @return [String, nil] what goes wrong
      def trial
        reader, writer = ::IO.pipe
        pid = ::Process.spawn({ 'NOTIFY_SOCKET' => nil }, *words, '--check-config', chdir: @folder, in: ::File::NULL,
                                                                                    out: writer, err: writer)
        writer.close
        text = reader.read
        ::Process.wait2(pid).last.success? ? nil : text.lines.last(20).join.strip
      rescue ::SystemCallError => e
        e.message
      ensure
        reader&.close
        writer&.close
      end

      # Does not come back, unless it fails.
      # @param ios [Array<IO, Integer>] to be kept open
      # @param state [Hash] for the new program
      # @raise [SystemCallError]
      def exec(ios, **state)
        ios = ios.map { |io| io.is_a?(Integer) ? ::IO.for_fd(io, autoclose: false) : io }
        ios.each { |io| io.close_on_exec = false }
        ::Kernel.exec({ VARIABLE => JSON.generate(pid: ::Process.pid, **state) }, *words, chdir: @folder)
      ensure
        ios.each { |io| io.close_on_exec = true unless io.closed? }
      end

      private

      def parse(text)
        left = JSON.parse(text.to_s)
        left['pid'] == ::Process.pid ? left : {}
      rescue JSON::ParserError
        {}
      end

      # As the shell calls it: where a release is a link, the link leads to another by then.
      def folder_of(env)
        named = env['PWD'].to_s
        !named.empty? && ::File.identical?(named, '.') ? named : Dir.pwd
      end

      # A gem is found again, in the version that is there by then; a working tree is not.
      def words
        script, *args = @command
        gem = defined?(::Gem) && ::Gem.loaded_specs['polyphony']
        folders = gem ? [] : ["-I#{::File.expand_path('../..', __dir__)}"]
        [RbConfig.ruby, *folders, ::File.expand_path(script, @folder), *args]
      end
    end
    private_constant :Handover
  end
end
