# frozen_string_literal: true

require 'polyphony/extensions/openssl/ssl_socket'
require 'polyphony/extensions/openssl/ssl_server'

module Polyphony
  # What waits inside of OpenSSL asks the scheduler by itself; this is for the fibers where Ruby has none.
  # The others that wait are written in Ruby and call these.
  StandIn.for ::OpenSSL::SSL::SSLSocket, :connect, :accept
  StandIn.for ::OpenSSL::SSL::SSLSocket, :sysread, :syswrite, turns: true
  StandIn.for ::OpenSSL::SSL::SSLSocket, :sysread_nonblock, :syswrite_nonblock, turns: true, waits: false
  Patches.expect ::OpenSSL::SSL::SSLSocket, ::OpenSSL::SSL::SSLServer
end
