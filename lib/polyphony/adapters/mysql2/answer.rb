# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # Looks at the first bytes of an answer, which libmysqlclient has not read yet: whether it is there to its end, so that
      # reading it does not wait. Where this cannot be seen (TLS, compression, more bytes than looked at) it says no.
      # @api private
      module Answer
        # How many bytes are worth looking at: past that a thread is no slower.
        LOOK = 4096
        HEADER = 4
        OK = 0x00
        ERROR = 0xff
        END_OF_LIST = 0xfe
        LONGEST_END = 9
        MOST_COLUMNS = 0xfa
        private_constant :HEADER, :OK, :ERROR, :END_OF_LIST, :LONGEST_END, :MOST_COLUMNS

        class << self
          # @param bytes [String, Symbol, nil] what came from a socket
          # @return [Boolean]
          def whole?(bytes)
            return false unless bytes.is_a?(::String)

            columns = nil
            each_packet(bytes) do |number, kind, length|
              return true if kind == ERROR
              return kind == OK if number.zero? && !(1..MOST_COLUMNS).cover?(kind)
              next columns = kind if number.zero?

              # The columns, then the end of their list, then the rows and the end of theirs.
              return true if number > columns + 1 && kind == END_OF_LIST && length < LONGEST_END
            end
            false
          end

          private

          # @yield [number, first byte, length] of each packet that is there to its end
          def each_packet(bytes)
            at = number = 0
            while at + HEADER < bytes.bytesize
              length = bytes.getbyte(at) | (bytes.getbyte(at + 1) << 8) | (bytes.getbyte(at + 2) << 16)
              first = at + HEADER
              at = first + length
              return if at > bytes.bytesize

              yield number, bytes.getbyte(first), length
              number += 1
            end
          end
        end
      end
      private_constant :Answer
    end
  end
end
