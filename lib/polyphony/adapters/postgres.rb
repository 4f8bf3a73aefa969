# frozen_string_literal: true

# The adapter by the name of the database.
require 'polyphony/adapters/pg'
