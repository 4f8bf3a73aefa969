# frozen_string_literal: true

# Processes are waited for by fibers with `require 'polyphony'` alone. Kept for programs that ask for it by this name.
require 'polyphony'
