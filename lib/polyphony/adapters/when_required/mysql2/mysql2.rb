# frozen_string_literal: true

Polyphony.__when_required('mysql2') # see extensions/when_required.rb
