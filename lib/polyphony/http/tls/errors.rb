# frozen_string_literal: true

begin
  require 'openssl'
rescue LoadError => e
  raise LoadError, "https needs Ruby's openssl library: #{e.message}"
end

module Polyphony
  module HTTP
    class TLS
      # A certificate, a key or a list of authorities that cannot be used. The message names the file, and the
      # way out.
      class Error < HTTP::Error; end
    end
  end
end
