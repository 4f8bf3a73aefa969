# frozen_string_literal: true

Polyphony.__when_required('openssl') # see when_required.rb
