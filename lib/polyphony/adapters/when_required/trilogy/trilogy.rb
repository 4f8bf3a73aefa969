# frozen_string_literal: true

Polyphony.__when_required('trilogy') # see extensions/when_required.rb
