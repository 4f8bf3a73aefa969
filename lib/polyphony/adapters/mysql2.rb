# frozen_string_literal: true

require 'socket'
require 'mysql2'
require 'polyphony/adapters/mysql'

module Polyphony
  module Adapters
    # mysql2 waits in C, mostly without Ruby's lock: a fiber that calls it would stop all fibers of its thread. Statements are sent
    # without waiting and their answers awaited by the backend; whatever else waits does so in a thread. Decision 068.
    module Mysql2
      MySQL.check(::Mysql2::Client, ::Mysql2::VERSION, %i[_query connect async_result socket thread_id next_result store_result])
      MySQL.check(::Mysql2::Statement, ::Mysql2::VERSION, %i[_execute close])
      MySQL.check(::Mysql2::Result, ::Mysql2::VERSION, %i[each free])
    end
  end
end

require 'polyphony/adapters/mysql2/answer'
require 'polyphony/adapters/mysql2/stream'
require 'polyphony/adapters/mysql2/statements'
require 'polyphony/adapters/mysql2/client'
require 'polyphony/adapters/mysql2/statement'
require 'polyphony/adapters/mysql2/result'

Mysql2::Client.prepend Polyphony::Adapters::Mysql2::Client
Mysql2::Statement.prepend Polyphony::Adapters::Mysql2::Statement
Mysql2::Result.prepend Polyphony::Adapters::Mysql2::Result
