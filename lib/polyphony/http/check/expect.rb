# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # What is accepted as an answer to an attack. There are three verdicts: what we ask for (+:pass+); another
      # choice, less strict or with another status, that harms nobody by itself (+:differs+); harm (+:fail+).
      class Expect
        # @return [String] for people
        attr_reader :text

        # @param text [String]
        # @param pass [Proc] gets the Outcome and the status of a good request
        # @param differs [Proc, nil] the same
        def initialize(text, pass, differs = nil)
          @text = text
          @pass = pass
          @differs = differs
        end

        # @param outcome [Outcome]
        # @param good [Integer] the status that a good request gets from this server
        # @return [Symbol] :pass, :differs or :fail
        def judge(outcome, good)
          return :fail if outcome.problem
          return :pass if @pass.call(outcome, good)

          @differs&.call(outcome, good) ? :differs : :fail
        end

        class << self
          # One answer with one of these statuses, and the connection is closed.
          # @param lenient [Boolean] whether a server may also take it as a good request, if it wants to
          def refused(*statuses, lenient: false)
            new("#{statuses.join('/')} and close",
                ->(o, _) { one_of?(o, statuses) },
                lambda do |o, _|
                  refusal?(o, statuses) || (lenient && o.statuses.size <= 2 && o.statuses.all? { |s| s < 500 || s == 501 })
                end)
          end

          # The same for a body: an application that does not read it may answer before anybody knows. What counts is
          # that nothing behind it is taken for a request.
          def refused_body(*statuses, lenient: false)
            whole = refused(*statuses, lenient: lenient)
            new(whole.text, ->(o, good) { whole.judge(o, good) == :pass },
                ->(o, good) { whole.judge(o, good) == :differs || one_of?(o, 200..399) })
          end

          # The same, but that the server may as well close without a word.
          def refused_or_closed(*statuses)
            new("#{statuses.join('/')} or close",
                ->(o, _) { o.closed && (o.statuses.empty? || (o.statuses.size == 1 && statuses.include?(o.statuses.first))) },
                ->(o, _) { refusal?(o, statuses) })
          end

          # These answers in this order, as many as there are. +:good+ is what a good request gets, +:any+ what the
          # application makes of it.
          # @param lists [Array<Array>] one of these
          def answers(*lists)
            new(lists.map { |list| list.join(' ') }.join(' or '),
                ->(o, good) { lists.any? { |list| match?(list, o.statuses, good) } },
                ->(o, _) { o.closed && o.statuses.size <= lists.map(&:size).max && (o.statuses.last || 400).between?(400, 499) })
          end

          # Whatever it answers: it closes in time.
          def closed(text = 'close in time')
            new(text, ->(o, _) { o.closed })
          end

          # Nothing is asked for but that others are served, and that nothing is reported as a problem.
          def survives(text = 'others are served')
            new(text, ->(_, _) { true })
          end

          # HTTP/2: the connection ends with one of these errors.
          def goaway(*names)
            new("GOAWAY #{names.join('/')}",
                ->(o, _) { names.include?(o.goaway) && o.closed },
                ->(o, _) { o.goaway || o.closed })
          end

          # HTTP/2: the stream ends with one of these errors, or gets one of these statuses.
          def stream(*names)
            statuses, names = names.partition { |name| name.is_a?(Integer) }
            new((names.map { |name| "RST #{name}" } + statuses).join(' or '),
                ->(o, _) { (o.resets & names).any? || (o.statuses.to_a & statuses).any? },
                ->(o, _) { o.goaway || o.closed || o.resets.any? || o.statuses.to_a.any? { |s| s.between?(400, 499) } })
          end

          # HTTP/2: the stream or the connection ends with one of these errors.
          def error(*names)
            new("RST or GOAWAY #{names.join('/')}",
                ->(o, _) { names.include?(o.goaway) || (o.resets & names).any? },
                ->(o, _) { o.goaway || o.closed || o.resets.any? })
          end

          # WebSocket: a close frame with one of these codes, and the end of the connection.
          def close_code(*codes)
            new("close #{codes.join('/')}",
                ->(o, _) { codes.include?(o.close_code) && o.closed },
                ->(o, _) { o.closed })
          end

          # The same if the server may have more patience than we have.
          def closed_sooner_or_later
            new('close in time', ->(o, _) { o.closed }, ->(_, _) { true })
          end

          private

          def one_of?(outcome, statuses)
            outcome.closed && outcome.statuses.size == 1 && statuses.include?(outcome.statuses.first)
          end

          # Another refusal than ours is one, too.
          def refusal?(outcome, statuses)
            return outcome.closed if outcome.statuses.empty?

            first, *others = outcome.statuses
            others.empty? && (first.between?(400, 499) || [501, 505, *statuses].include?(first))
          end

          def match?(list, statuses, good)
            list.size == statuses.size && list.zip(statuses).all? do |wanted, status|
              case wanted
              when :good then status == good
              when :any then status.between?(200, 499)
              else wanted == status
              end
            end
          end
        end
      end
    end
  end
end
