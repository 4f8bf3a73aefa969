# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # What goes over the socket between the pool and a worker: a kind, the number of a slot, and bytes, with their count in
    # front.
    # @api private
    class Frames
      # To the worker.
      RUN = 1      # a task for the slot
      ROOM = 2     # the task in the slot may report more
      # From the worker.
      DONE = 3     # the task in the slot has returned
      FAILED = 4   # it has raised
      SKIPPED = 5  # it was taken back before it began
      ENDED = 6    # it was cancelled, and is over
      PROGRESS = 7 # it reports
      # With RUN.
      LISTENS = 1  # somebody wants the reports
      SILENT = 2   # nobody wants the result

      # Marks of a slot, in memory that both see.
      FREE = 0
      OFFERED = 1   # sent, and may be taken back
      TAKEN = 2     # the worker has begun
      WITHDRAWN = 3 # taken back
      CANCELLED = 4 # the worker has begun, and is to end it

      HEAD = 'CCSQ'
      HEAD_SIZE = 12
      CHUNK = 65_536
      private_constant :HEAD, :HEAD_SIZE, :CHUNK

      # @return [Array<String>] what to write
      def self.build(kind, slot, payload = '', flags: 0)
        head = [kind, flags, slot, payload.bytesize].pack(HEAD)
        payload.empty? ? [head] : [head, payload]
      end

      # @param io [IO] to read from
      def initialize(io)
        @io = io
        @bytes = String.new
        @at = 0
      end

      # Until the other side has closed; a frame that it has not finished is dropped.
      # @yield [kind, slot, payload, flags]
      def each
        while fill(HEAD_SIZE)
          kind, flags, slot, length = @bytes.unpack(HEAD, offset: @at)
          @at += HEAD_SIZE
          payload = take(length) or break
          yield kind, slot, payload, flags
        end
      end

      private

      def left
        @bytes.bytesize - @at
      end

      # @return [Boolean] whether that many bytes are there
      def fill(count)
        while left < count
          more = read(String.new, CHUNK, false) or return false
          @bytes = left.zero? ? more : @bytes.byteslice(@at, left) << more
          @at = 0
        end
        true
      end

      # Bytes that are not there yet are read to where they belong: there may be many.
      def take(count)
        ready = [left, count].min
        bytes = @bytes.byteslice(@at, ready)
        @at += ready
        return bytes if ready == count

        read(bytes, count - ready, true)
        bytes if bytes.bytesize == count
      end

      def read(buffer, count, all)
        Polyphony.backend_read(@io, buffer, count, all, -1)
      rescue Errno::ECONNRESET
        nil # it died with something of ours unread
      end
    end
  end
end
