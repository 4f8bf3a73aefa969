# frozen_string_literal: true

# examples/json_api on our server.

require 'polyphony/adapters/auto'
require_relative 'app'
run App.new
