# frozen_string_literal: true

Polyphony.__when_required('http') # see extensions/when_required.rb
