# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # What a server did. Only what a case has looked at is set.
      class Outcome
        # @return [Array<Integer>, nil] final answers on an HTTP/1 connection
        attr_accessor :statuses
        # @return [Array<Integer>] informational answers
        attr_accessor :infos
        # @return [Boolean, nil] whether the server closed the connection
        attr_accessor :closed
        # @return [String, nil] the name of the error in its GOAWAY
        attr_accessor :goaway
        # @return [Array<String>] the names of the errors in its RST_STREAMs
        attr_accessor :resets
        # @return [Integer, nil] the code in a WebSocket's close frame
        attr_accessor :close_code
        # @return [String, nil] what is wrong by itself, whatever else was expected
        attr_accessor :problem
        # @return [String, nil] what people want to know besides
        attr_accessor :note
        # @return [String] everything that came, to be searched for what must not be told
        attr_accessor :bytes

        def initialize(**values)
          @infos = []
          @resets = []
          @bytes = ''
          values.each { |name, value| public_send(:"#{name}=", value) }
        end

        # @return [String]
        def to_s
          [*answers, *(goaway && "GOAWAY #{goaway}"), *resets.tally.map { |name, n| "RST #{name}#{" x#{n}" if n > 1}" },
           *(close_code && "close #{close_code}"), *ending, *note, *problem].join(', ')
        end

        private

        def answers
          return if statuses.nil?

          statuses.empty? ? 'no answer' : shorten(statuses)
        end

        # Thousands of answers are told by number.
        def shorten(list)
          list.chunk { |status| status }.map { |status, same| same.size > 3 ? "#{same.size}x #{status}" : same.join(' ') }
              .join(' ')
        end

        def ending
          closed ? 'closed' : 'open' unless closed.nil?
        end
      end
    end
  end
end
