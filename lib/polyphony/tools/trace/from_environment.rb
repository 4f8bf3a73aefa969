# frozen_string_literal: true

if (path = ENV['POLYPHONY_TRACE'].to_s) != ''
  begin
    require 'polyphony/tools/trace'
    # A program that this one starts is another one, and would write into the same file.
    ENV.delete('POLYPHONY_TRACE')
    Polyphony::Trace.to_the_end(path, ENV['POLYPHONY_TRACE_EVENTS'].to_s)
  rescue SystemCallError, ArgumentError => e
    warn "polyphony: nothing is traced: #{e.message}"
  end
end
