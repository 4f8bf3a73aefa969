# frozen_string_literal: true

Polyphony.__when_required('active_record')
