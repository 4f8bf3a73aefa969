# frozen_string_literal: true

module Polyphony
  module Adapters
    module Mysql2
      # The prepared statements of a connection. When one is collected as garbage, mysql2 writes to the connection, in the middle of what
      # a thread does with it. So they are kept, until they are closed. Those which were just dropped are looked for now and
      # then, when nobody uses the connection.
      # @api private
      class Statements
        FEW = 256
        private_constant :FEW

        def initialize
          @kept = {}.compare_by_identity
          @most = FEW
        end

        def add(statement)
          collect if @kept.size >= @most
          @kept[statement] = true
        end

        def delete(statement)
          @kept.delete(statement)
        end

        # @return [Integer]
        def size
          @kept.size
        end

        private

        def collect
          seen = ::ObjectSpace::WeakMap.new
          @kept.each_key { |statement| seen[statement] = statement }
          @kept.clear
          ::GC.start
          seen.each_key { |statement| @kept[statement] = true }
          @most = [FEW, @kept.size * 2].max
        end
      end
      private_constant :Statements
    end
  end
end
