# frozen_string_literal: true

# IRB lets other fibers run with `require 'polyphony'` alone. Kept for programs that ask for it by this name.
require 'polyphony'
