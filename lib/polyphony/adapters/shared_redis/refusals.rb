# frozen_string_literal: true

module Polyphony
  module Adapters
    class SharedRedis
      # Commands that concern all who share the connection.
      # @api private
      module Refusals
        BLOCKING = %w[BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP WAIT WAITAOF].freeze
        TRANSACTION = %w[MULTI EXEC DISCARD].freeze
        WATCHING = %w[WATCH UNWATCH].freeze
        SUBSCRIBING = %w[SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR SYNC PSYNC].freeze
        STATE = %w[AUTH HELLO SELECT QUIT RESET READONLY READWRITE ASKING].freeze
        # These change what the connection answers, or how.
        SUBCOMMANDS = { 'CLIENT' => %w[REPLY TRACKING CACHING NO-EVICT NO-TOUCH SETNAME], 'SCRIPT' => %w[DEBUG] }.freeze

        KINDS = [
          *BLOCKING.map { |name| [name, :refuse_blocking] },
          *TRANSACTION.map { |name| [name, :refuse_transaction] },
          *WATCHING.map { |name| [name, :refuse_watching] },
          *SUBSCRIBING.map { |name| [name, :refuse_subscribing] },
          *STATE.map { |name| [name, :refuse_state] },
          *SUBCOMMANDS.keys.map { |name| [name, :look_at_subcommand] },
          ['XREAD', :look_for_block], ['XREADGROUP', :look_for_block]
        ].to_h.freeze
        private_constant :KINDS

        class << self
          # @param command [Array<String>] as redis-client's builder made it
          # @raise [Refused] for what cannot be shared
          def check(command)
            kind = KINDS[command.first.upcase]
            send(kind, *command) if kind
          end

          # @return [Boolean] whether redis-client has put MULTI and EXEC around them
          def transaction?(commands)
            commands.size > 2 && commands.first == ['MULTI'] && commands.last == ['EXEC']
          end

          def refuse_blocking(name, *)
            refuse name, 'makes all who share the connection wait', 'use a client of its own (config.new_client) or a pool (config.new_pool)'
          end

          def refuse_watching(name = 'WATCH', *)
            refuse name, 'belongs to one user of a connection', 'use a client of its own (config.new_client) or a pool (config.new_pool)'
          end

          private

          def refuse_transaction(name, *)
            refuse name, 'would take in commands of others', 'use multi { |transaction| ... }'
          end

          def refuse_subscribing(name, *)
            refuse name, 'turns a connection into one for news only', 'use pubsub, which has a connection of its own'
          end

          def refuse_state(name, *)
            refuse name, 'changes the connection for all who share it', 'say it in the configuration (db:, username:, password:)'
          end

          def look_at_subcommand(name, subcommand = '', *)
            return unless SUBCOMMANDS[name.upcase].include?(subcommand.upcase)

            refuse "#{name} #{subcommand}", 'changes the connection for all who share it', 'use a client of its own (config.new_client)'
          end

          # BLOCK stands before STREAMS; behind it, it is a name.
          def look_for_block(name, *words)
            options = words.take_while { |word| !word.casecmp?('STREAMS') }
            refuse_blocking("#{name} BLOCK") if options.any? { |word| word.casecmp?('BLOCK') }
          end

          def refuse(name, reason, way_out)
            raise Refused, "#{name} cannot be used on a shared connection, since it #{reason}: #{way_out}"
          end
        end
      end
    end
  end
end
