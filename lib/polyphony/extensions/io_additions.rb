# frozen_string_literal: true

require 'polyphony/extensions/compression'

module Polyphony
  # What IO has beside the stock methods.
  module IOAdditions
    # Calls the block with each chunk until EOF.
    # @param maxlen [Integer] how many bytes at most
    # @yield [String] a new one each time
    # @return [self]
    def read_loop(maxlen = 8192, &block)
      raise ArgumentError, 'read_loop needs a block to call with each chunk' unless block

      Polyphony.backend_read_loop(self, maxlen, &block)
    end

    # Calls +receiver.method+ with each chunk until EOF, and hands the block on to it.
    # @param receiver [Object] a parser, for instance
    # @param method [Symbol]
    # @return [self]
    def feed_loop(receiver, method = :call, &block)
      Polyphony.backend_feed_loop(self, receiver, method, &block)
    end

    # @param source [IO, Pipe]
    # @param maxlen [Integer] at most so many bytes, once; negative: until EOF, in chunks of so many
    # @return [Integer] bytes moved here without copying them to Ruby
    def splice_from(source, maxlen)
      Polyphony.backend_splice(source, self, maxlen)
    end

    # @param source [IO, Pipe] a pipe, as this must be one
    # @return [Integer] bytes duplicated; they stay in the source
    def tee_from(source, maxlen)
      Polyphony.backend_tee(source, self, maxlen)
    end

    # @return [Symbol] which operation of the backend reads from it
    def __read_method__
      :backend_read
    end

    # @return [Symbol] which operation of the backend writes to it
    def __write_method__
      :backend_write
    end

    # Class methods.
    module Splicing
      # Moves bytes without copying them to Ruby. Neither end need be a pipe.
      # @param maxlen [Integer] at most so many, once; negative: until EOF, in chunks of so many
      # @return [Integer] bytes moved
      def splice(source, target, maxlen)
        Polyphony.backend_splice(source, target, maxlen)
      end

      # Moves everything until EOF.
      # @return [Integer] bytes moved
      def double_splice(source, target)
        Polyphony.backend_double_splice(source, target)
      end

      # Duplicates bytes from one pipe to another. They stay in the source.
      # @return [Integer] bytes duplicated
      def tee(source, target, maxlen)
        Polyphony.backend_tee(source, target, maxlen)
      end

      # Moves everything until EOF as the chunked body of an HTTP/1.1 message.
      # @param maxlen [Integer] at most so many bytes in a chunk
      # @return [IO] the target
      def http1_splice_chunked(source, target, maxlen)
        size = ->(length) { "#{length.to_s(16)}\r\n" }
        ::Thread.current.backend.splice_chunks(source, target, nil, "0\r\n\r\n", size, "\r\n", maxlen)
        target
      end
    end

    ::IO.include self
    ::IO.extend Splicing
  end
end
