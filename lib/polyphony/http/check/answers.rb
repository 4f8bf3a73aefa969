# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # What an HTTP/1 server answered, taken apart without mercy: what does not belong to an answer is told
      # as such, since a client behind a proxy would take it for the next one.
      class Answers
        # An answer. +whole+ is whether its body has come to its end.
        Answer = Struct.new(:status, :version, :headers, :body, :whole)

        HEAD = /\AHTTP\/(1\.[01]) (\d{3})(?: ([^\r\n]*))?\r\n((?:[^\r\n]+\r\n)*)\r\n/n.freeze
        private_constant :HEAD

        # @return [Array<Answer>] final ones, in order
        attr_reader :finals
        # @return [Array<Answer>] those that announce another (1xx)
        attr_reader :infos
        # @return [String] what is left over and is no answer
        attr_reader :rest

        # @param bytes [String] all that came
        # @param verbs [Array<String>] of the requests, in order: an answer to HEAD has no body
        # @param ended [Boolean] whether the server has closed
        def initialize(bytes, verbs: [], ended: false)
          @rest = bytes.b
          @verbs = verbs
          @ended = ended
          @finals = []
          @infos = []
          parse
        end

        # @return [Array<Integer>]
        def statuses
          @finals.map(&:status)
        end

        # @return [Boolean] whether there is nothing but whole answers
        def clean?
          @rest.empty? && @finals.all?(&:whole)
        end

        private

        def parse
          while (match = HEAD.match(@rest))
            answer = Answer.new(Integer(match[2], 10), match[1], fields(match[4]), +'', true)
            @rest = match.post_match
            next @infos << answer if answer.status < 200 && answer.status != 101

            @finals << answer
            take_body(answer)
            break unless answer.whole
          end
        end

        def fields(block)
          block.split("\r\n").each_with_object({}) do |line, all|
            name, value = line.split(':', 2)
            name = name.downcase
            all[name] = all.key?(name) ? "#{all[name]}, #{value.to_s.strip}" : value.to_s.strip
          end
        end

        def take_body(answer)
          verb = @verbs[@finals.size - 1]
          if answer.status == 101 || verb == 'HEAD' || [204, 304].include?(answer.status) then return
          elsif answer.headers['transfer-encoding'] then take_chunks(answer)
          elsif answer.headers['content-length'] then take_bytes(answer, answer.headers['content-length'].to_i)
          else take_all(answer)
          end
        end

        def take_bytes(answer, length)
          answer.body << @rest.slice!(0, length - answer.body.bytesize)
          answer.whole = answer.body.bytesize == length
        end

        def take_all(answer)
          answer.body << @rest
          @rest = +''
          answer.whole = @ended
        end

        def take_chunks(answer)
          while (match = /\A(\h{1,8})[^\r\n]*\r\n/n.match(@rest))
            size = match[1].hex
            return take_trailers(answer, match.post_match) if size.zero?
            break if match.post_match.bytesize < size + 2

            answer.body << match.post_match.byteslice(0, size)
            @rest = match.post_match.byteslice(size + 2..)
          end
          answer.whole = false
          @rest = +'' unless @ended
        end

        def take_trailers(answer, rest)
          match = /\A(?:[^\r\n]+\r\n)*\r\n/n.match(rest)
          answer.whole = !match.nil?
          @rest = match ? match.post_match : +''
        end
      end
    end
  end
end
