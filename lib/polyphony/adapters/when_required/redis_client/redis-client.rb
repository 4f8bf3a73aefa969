# frozen_string_literal: true

Polyphony.__when_required('redis_client') # see extensions/when_required.rb
