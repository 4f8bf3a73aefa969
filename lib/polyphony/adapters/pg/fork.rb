# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # A forked child has its parent's connections, and would log out of them when it ends.
      # @api private
      module Fork
        def _fork
          parent = ::Process.pid
          pid = super
          ::ObjectSpace.each_object(::PG::Connection) { |connection| connection.__disown(parent) } if pid.zero?
          pid
        end
      end
    end
  end
end
