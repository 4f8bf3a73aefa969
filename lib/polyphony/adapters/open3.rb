# frozen_string_literal: true

# Open3 waits in fibers with `require 'polyphony'` alone. Kept for programs that ask for it by this name.
require 'polyphony'
