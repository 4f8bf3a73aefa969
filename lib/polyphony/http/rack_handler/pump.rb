# frozen_string_literal: true

require 'socket'

module Polyphony
  module HTTP
    class RackHandler
      # Gives an application a real socket where there is none to be had: behind TLS, on a stream of HTTP/2, in a
      # body with chunks. The socket is one end of a pair; fibers of ours carry the bytes between the other end
      # and the client. So whoever gets it may hand it to another thread, to a selector, or keep it for later,
      # as people do with what they hijack.
      class Pump
        # How many bytes are carried at once.
        SIZE = 16_384

        # @return [UNIXSocket] for the application, which closes it
        attr_reader :socket

        # @param source [#fill, #write, #close_write, #close, #reset] the client
        def initialize(source)
          @source = source
          @ours, @socket = ::UNIXSocket.pair
        end

        # Begins, in a child of the current fiber.
        # @return [self]
        def start
          @fiber = spin(:hijack) { run }
          self
        end

        # Waits until the application or the client has closed.
        # @return [Exception, nil] why it ended early
        def wait
          @fiber.await
        end

        private

        def run
          receiver = spin(:hijack_in) { to_application }
          to_client
          receiver.await if application_reads?
          nil
        rescue Error => e
          @source.reset
          e
        ensure
          receiver&.stop
          @ours.close
          @source.close
        end

        # Until the application closes, or at least says that it has nothing more to say.
        def to_client
          buffer = String.new(capacity: SIZE, encoding: Encoding::BINARY)
          @source.write(buffer) while read(buffer)
          @source.close_write
        end

        def read(buffer)
          @ours.readpartial(SIZE, buffer)
        rescue ::EOFError, ::SystemCallError
          false
        end

        # Until the client says that it has nothing more to say; then the application is told.
        def to_application
          buffer = String.new(capacity: SIZE, encoding: Encoding::BINARY)
          while @source.fill(buffer)
            @ours.write(buffer)
            buffer.clear
          end
          @ours.close_write
        rescue ::SystemCallError, ::IOError
          nil # the application has closed
        rescue Error
          @ours.shutdown # the client is gone: ends #to_client
        end

        # The other end of a pair that was closed cannot be written to, not even nothing.
        def application_reads?
          @ours.send('', 0)
          true
        rescue ::SystemCallError
          false
        end
      end
    end
  end
end
