# frozen_string_literal: true

require 'socket'
require 'polyphony/extensions/dns/lookup'
require 'polyphony/extensions/dns/addresses'
require 'polyphony/extensions/dns/names'
require 'polyphony/extensions/dns/hosts'
require 'polyphony/extensions/dns/services'
