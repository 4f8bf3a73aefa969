# frozen_string_literal: true

# For Rack 2, where rackup is a part of rack, and looks for names of constants.
require 'rack/handler'
require 'polyphony/http/rackup_handler'

module Rack
  module Handler
    # The server of +rackup -s polyphony+ and +rails server -u polyphony+.
    module Polyphony
      extend ::Polyphony::HTTP::RackupHandler
    end

    register :polyphony, 'Rack::Handler::Polyphony'
  end
end
