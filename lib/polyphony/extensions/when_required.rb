# frozen_string_literal: true

module Polyphony
  # Libraries that we extend and that cost too much to load them for everybody: each has a file of the
  # same name in the folder when_required, which stands first in $LOAD_PATH until it is found there. It
  # then requires the real one, and our extension.
  # @!visibility private
  module WhenRequired
    FOLDER = File.join(__dir__, 'when_required').freeze

    class << self
      # @return [Boolean] whether somebody has loaded it before us; asking does not load it
      def openssl?
        !Object.autoload?(:OpenSSL) && defined?(::OpenSSL::SSL::SSLServer) ? true : false
      end

      # Extends the library now or when it is loaded.
      def extend_openssl
        openssl? ? require('polyphony/extensions/openssl') : $LOAD_PATH.unshift(FOLDER)
      end
    end
  end

  private_constant :WhenRequired
  WhenRequired.extend_openssl
end
