# frozen_string_literal: true

module Polyphony
  # Not loaded by `require 'polyphony'`; ask for it with `require 'polyphony/version'`.
  VERSION = '2.0.0.dev1'
end
