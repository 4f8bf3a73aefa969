# frozen_string_literal: true

require 'polyphony/adapters/libraries'

# What Sequel and Active Record talk to databases with.
Polyphony::Adapters.__prepare(%w[pg mysql2 trilogy sqlite3])
