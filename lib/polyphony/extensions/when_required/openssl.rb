# frozen_string_literal: true

# Found in the place of Ruby's own file, once: see ../when_required.rb.
$LOAD_PATH.delete(__dir__)
require 'openssl'
require 'polyphony/extensions/openssl'
