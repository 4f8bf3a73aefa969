# frozen_string_literal: true

module Polyphony
  module HTTP
    # Where a server says what went wrong. Bad input comes in floods: of each reason a few lines a second are
    # written, and how many were left out.
    class Log
      # Lines of one kind a second.
      RATE = 5
      # How long a line may take to be written, in seconds: whoever should read the log may have stopped to.
      PATIENCE = 1
      private_constant :PATIENCE

      # @param io [IO, #write, nil] nil: nothing is written
      # @raise [ArgumentError] for what cannot be written to
      def initialize(io = $stderr)
        unless io.nil? || io.respond_to?(:write)
          raise ArgumentError, "a log is something to write to, as in File.open('server.log', 'a'), got #{io.inspect[0, 60]}"
        end

        @io = io
        @kinds = {}
        @writing = false
        @lost = 0
      end

      # @return [IO, nil]
      attr_accessor :io

      # Bad input of a client.
      # @param peer [String, nil] who
      # @param reason [String] for people; without anything of the request that could be a secret
      def refuse(peer, reason)
        limited(reason) { |left_out| line("refused #{peer || 'local client'}: #{reason}#{left_out}") }
      end

      # An error of the application's or our own.
      # @param error [Exception]
      # @param doing [String] what was being done
      def error(error, doing)
        limited(error.class.name) do |left_out|
          place = error.backtrace&.first(12)&.map { |frame| "\n    #{frame}" }&.join
          line("error in #{doing}: #{error.message} (#{error.class})#{left_out}#{place}")
        end
      end

      # @param text [String]
      def info(text)
        line(text)
      end

      private

      # While a line waits for somebody to read the log, others are lost: nobody must wait for it but one.
      def line(text)
        return unless @io
        return @lost += 1 if @writing

        @writing = true
        begin
          write("#{Time.now.strftime('%FT%T.%3N%:z')} [#{::Process.pid}] #{printable(text)}#{lost}\n")
        ensure
          @writing = false
        end
      end

      def write(bytes)
        Polyphony.backend_timeout(PATIENCE, nil, false) { @io.write(bytes) } or @lost += 1
      rescue ::SystemCallError, ::IOError
        @lost += 1 # a full disk, or a reader that is gone, must not stop the server
      end

      def lost
        return if @lost.zero?

        count, @lost = @lost, 0
        " (#{count} lines before this one were lost)"
      end

      # What a client sends must not look like a line of ours, nor move the cursor: what goes on in another line is
      # indented.
      def printable(text)
        text = text.scrub('?').gsub(/[\x00-\x08\x0b-\x1f\x7f]/) { |char| format('\x%02x', char.ord) }
        text.include?("\n") ? text.gsub(/\n(?! {4})/, "\n    ") : text
      end

      def limited(kind)
        now = Clock.now
        @kinds.clear if @kinds.size > 1_000
        since, written, skipped = @kinds[kind]
        since, written = now, 0 if since.nil? || now - since >= 1
        if written < RATE
          @kinds[kind] = [since, written + 1, 0]
          yield(skipped.to_i.positive? ? " (and #{skipped} more like it)" : '')
        else
          @kinds[kind] = [since, written, skipped.to_i + 1]
        end
      end
    end
  end
end
