# frozen_string_literal: true

require 'polyphony/adapters/libraries'

# With `require 'polyphony/adapters/auto'` each gem gets its adapter by itself: now if the gem is loaded, else when the program
# requires it. Gems that nobody requires are not loaded.
Polyphony::Adapters.__prepare
