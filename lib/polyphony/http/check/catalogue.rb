# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # One attack. +id+ is the number of its line in the list and a letter; +needs+ is what the server has to
      # offer (:http2, :websocket, :tls, :plain, :large, :files); +slow+ tells that it waits for a time limit of
      # the server's.
      Case = Struct.new(:id, :line, :group, :title, :sent, :expect, :needs, :slow, :action, keyword_init: true)

      # How the attacks are written down; extended by the modules that hold them.
      module Catalogue
        # @return [Array<Case>]
        def cases
          @cases ||= []
        end

        private

        # What the following cases belong to.
        # @param from [String] the first letter, if others have cases of this line, too
        def line(number, title, expect = nil, from: 'a', **common)
          @line = number
          @line_title = title
          @expect = expect
          @common = common
          @letter = from
        end

        # An attack.
        # @param title [String] what is wrong with it
        # @param expect [Expect]
        # @yieldreturn [Outcome] evaluated in an Attack
        def try(title, expect = @expect, sent: nil, **more, &action)
          values = { needs: nil, slow: false }.merge(@common, more)
          cases << Case.new(id: "#{@line}#{@letter}", line: @line, group: group, title: "#{@line_title}: #{title}",
                            sent: sent, expect: expect, action: action, **values)
          @letter = @letter.succ
        end

        # Bytes that are sent on a connection of HTTP/1, and what comes back is looked at.
        # @yieldreturn [String]
        def bytes(title, expect = @expect, verbs: [], **more, &block)
          try(title, expect, **more) { exchange(instance_exec(&block), verbs: verbs) }
        end

        # @return [String] as in +http1+
        def group
          name[/\w+\z/].downcase
        end
      end
    end
  end
end
