# frozen_string_literal: true

require 'rackup/handler'
require 'polyphony/http/rackup_handler'

module Rackup
  module Handler
    # The server of +rackup -s polyphony+ and +rails server -u polyphony+.
    module Polyphony
      extend ::Polyphony::HTTP::RackupHandler
    end

    register :polyphony, Polyphony
  end
end
