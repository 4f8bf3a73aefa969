# frozen_string_literal: true

# Files are opened and asked about off the loop with `require 'polyphony'` alone. Kept for programs that ask for it by this name.
require 'polyphony'
