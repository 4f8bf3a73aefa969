# frozen_string_literal: true

Polyphony.__when_required('connection_pool') # see extensions/when_required.rb
