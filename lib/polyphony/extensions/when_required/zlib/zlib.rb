# frozen_string_literal: true

Polyphony.__when_required('zlib') # see when_required.rb
