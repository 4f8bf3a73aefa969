# frozen_string_literal: true

require 'polyphony'
require 'readline'

module Polyphony
  # What is built on the library of that name.
  module Adapters
    # GNU Readline waits for keys by itself and knows nothing of fibers, so a thread waits with it. (Reline, which IRB
    # uses, is written in Ruby and needs none of this.)
    module Readline
      # As stock, while other fibers run. If the fiber is cancelled, the terminal is put back in order.
      # @return [String, nil] the line; nil at the end of the input
      def readline(*args)
        thread = ::Thread.new { super(*args) }
        thread.report_on_exception = false
        thread.value
      ensure
        thread&.kill&.join
      end
    end

    ::Readline.singleton_class.prepend Readline unless defined?(::Reline) && ::Readline == ::Reline
  end
end
