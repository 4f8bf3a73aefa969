# frozen_string_literal: true

Polyphony.__when_required('net_http') # see when_required.rb
