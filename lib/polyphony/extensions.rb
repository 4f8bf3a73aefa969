# frozen_string_literal: true

require 'polyphony/extensions/exception'
require 'polyphony/extensions/scheduler'
require 'polyphony/extensions/stand_ins'
require 'polyphony/extensions/kernel'
require 'polyphony/extensions/io'
require 'polyphony/extensions/dns'
require 'polyphony/extensions/thread'
require 'polyphony/extensions/process'
require 'polyphony/extensions/timeout'
require 'polyphony/extensions/signals'
require 'polyphony/extensions/exit'
require 'polyphony/extensions/when_required'
