# frozen_string_literal: true

Polyphony.__when_required('httpx') # see extensions/when_required.rb
