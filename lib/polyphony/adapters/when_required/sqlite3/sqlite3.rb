# frozen_string_literal: true

Polyphony.__when_required('sqlite3') # see extensions/when_required.rb
