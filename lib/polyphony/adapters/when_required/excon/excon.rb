# frozen_string_literal: true

Polyphony.__when_required('excon') # see extensions/when_required.rb
