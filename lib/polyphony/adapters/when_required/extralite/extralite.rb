# frozen_string_literal: true

Polyphony.__when_required('extralite') # see extensions/when_required.rb
