# frozen_string_literal: true

require 'polyphony/core'
require 'polyphony/extensions'
