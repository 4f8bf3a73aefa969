# frozen_string_literal: true

module Polyphony
  # Hooks of a tracer whose contexts are numbers, each kept where the fiber is.
  class NumberHooks < Telemetry::Hooks
    def capture
      Thread.current[:number]
    end

    def carry(number)
      before = Thread.current[:number]
      Thread.current[:number] = number
      yield
    ensure
      Thread.current[:number] = before
    end

    def apart(&block)
      carry(nil, &block)
    end

    def inject(headers)
      headers['number'] = capture.to_s if capture
      headers
    end

    def extract(headers)
      headers['number']&.to_i
    end
  end
end
