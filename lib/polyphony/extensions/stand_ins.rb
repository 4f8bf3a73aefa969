# frozen_string_literal: true

require 'io/wait'
begin
  require 'io/console'
rescue LoadError
  nil # not everywhere; then there is nothing to be done for it
end

module Polyphony
  # Which stock methods may wait. Those that call one of these, such as puts, need not be named; nor
  # those written in Ruby.
  StandIn.for ::IO, :gets, :readline, last_line: true, needs: :line, takes: true
  StandIn.for ::IO, :getbyte, :readbyte, :readpartial, :eof, :eof?, needs: :byte
  StandIn.for ::IO, :getc, :readchar, needs: :character, takes: true
  StandIn.for ::IO, :read, needs: :length, takes: true
  StandIn.for ::IO, :readlines, takes: true
  StandIn.for ::IO,
              :sysread, :pread, :syswrite, :pwrite, :each_line, :each, :each_byte, :each_char,
              :each_codepoint, :flush, :set_encoding_by_bom, :fsync, :fdatasync, :close, :close_read,
              :close_write, :getch, :getpass, :wait, :wait_readable, :wait_writable, :wait_priority
  StandIn.for ::IO.singleton_class, :read, :readlines, :binread, path: 0
  StandIn.for ::IO.singleton_class, :write, :binwrite, path: 0, text: 1
  StandIn.for ::IO.singleton_class, :foreach, last_line: :each, path: 0
  StandIn.for ::Kernel, :gets, :readline, last_line: true, takes: true
  StandIn.for ::Kernel, :readlines, :system
  StandIn.for ::Kernel.singleton_class, :gets, :readline, last_line: true, takes: true
  StandIn.for ::Kernel.singleton_class, :readlines, :system
  StandIn.for ARGF.class, :gets, :readline, last_line: true, takes: true
  StandIn.for ARGF.class, :read, :readpartial, :readlines, :to_a, :each_line, :each, :each_byte,
              :each_char, :each_codepoint, :getc, :getbyte, :readchar, :readbyte, :eof, :eof?
end
