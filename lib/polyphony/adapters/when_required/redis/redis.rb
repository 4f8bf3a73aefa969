# frozen_string_literal: true

Polyphony.__when_required('redis') # see extensions/when_required.rb
