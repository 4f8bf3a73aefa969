# frozen_string_literal: true

# Ruby's own takes http.rb from beside it.
require 'net/http'
require 'net/https'
