# frozen_string_literal: true

Polyphony.__when_required('pg') # see when_required.rb
