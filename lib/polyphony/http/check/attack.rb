# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # In which the code of a case runs: the server, how much of everything, and what most cases do.
      class Attack
        # @return [Target]
        attr_reader :target
        # @return [Options]
        attr_reader :options

        # @param target [Target]
        # @param options [Options]
        def initialize(target, options)
          @target = target
          @options = options
          @wires = []
        end

        # Ends what the case has left open.
        # @return [nil]
        def close
          @wires.each(&:reset)
          nil
        end

        private

        # --- how much ---------------------------------------------------------------------------

        # @return [Integer] the volume of the list, or the small one
        def many(full, quick)
          options.full ? full : quick
        end

        # @return [Numeric] seconds within which a time limit of the server's has to strike
        def patience
          options.wait
        end

        # @param limit [Numeric] what the server may have by default, if that is longer
        # @return [Numeric]
        def patience_for(limit)
          [patience, limit + 5].max
        end

        # --- what is sent -----------------------------------------------------------------------

        def host
          "Host: #{target.authority}\r\n"
        end

        # A request with a good first line and a good Host. Bodies go to where they are read.
        def head(verb, lines = '', path: verb == 'POST' ? options.sink : target.path, version: '1.1')
          "#{verb} #{path} HTTP/#{version}\r\n#{host}#{lines}\r\n"
        end

        def get(lines = '', **options)
          head('GET', lines, **options)
        end

        def chunked(body, lines = '')
          head('POST', "Transfer-Encoding: chunked\r\n#{lines}") + body
        end

        # A good request behind the bad one. Who answers it has not closed, or has taken it for something else.
        def second
          get("Connection: close\r\n")
        end

        # --- how it is sent ---------------------------------------------------------------------

        def connect(**options, &block)
          keep(target.connect(**options, &block))
        end

        def connect_plain
          keep(target.connect_plain)
        end

        def keep(wire)
          @wires << wire
          wire
        end

        # Sends all of it and looks at what comes, until the server closes. A server that answers and does not
        # close is not waited for.
        def exchange(bytes, verbs: [], wire: connect, within: 5)
          wire.send(bytes, within: within)
          look(wire, verbs: verbs, within: within)
        end

        def look(wire, verbs: [], within: 5, quiet: options.quiet)
          answered = nil
          wire.read(within) do
            answers = Answers.new(wire.received, verbs: verbs)
            answered = Clock.now if answers.finals.size > (answered ? @seen : 0)
            @seen = answers.finals.size
            answered && Clock.now - answered > quiet && answers.clean?
          end
          seen(wire, verbs)
        end

        # @return [Outcome] by what came on that connection
        def seen(wire, verbs = [])
          answers = Answers.new(wire.received, verbs: verbs, ended: wire.closed?)
          outcome = Outcome.new(statuses: answers.statuses, infos: answers.infos.map(&:status), closed: wire.closed?,
                                bytes: wire.received)
          strange(outcome, answers)
          outcome
        end

        # Without a head, and nothing else: that is how HTTP/0.9 answers, to a request of one line.
        def strange(outcome, answers)
          return if answers.rest.empty?
          return outcome.note = 'an answer of HTTP/0.9' if answers.finals.empty? && outcome.closed

          outcome.problem = "bytes that are no answer: #{answers.rest[0, 40].inspect}"
        end

        # Sends piece by piece, with a pause before each, until the server has had enough.
        # @return [Outcome]
        def drip(pieces, wire: connect)
          finish = Clock.now + patience
          until wire.closed? || Clock.now > finish
            wire.read(options.drip) { wire.received.bytesize.positive? }
            break look(wire) if wire.received.bytesize.positive?

            wire.send(pieces.next, within: 1)
          end
          seen(wire)
        end

        # Every so often there is nothing more to see than that it is over.
        def wait_for_end(wire)
          wire.read(patience)
          seen(wire)
        end
      end
    end
  end
end
