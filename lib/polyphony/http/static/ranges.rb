# frozen_string_literal: true

module Polyphony
  module HTTP
    class Static
      # Which parts of a file are asked for (RFC 9110, 14).
      # @!visibility private
      module Ranges
        # More parts than anybody needs are an attack.
        MOST = 16
        PART = /\A(?:(\d{1,18})-(\d{1,18})?|-(\d{1,18}))\z/.freeze

        module_function

        # @param header [String, nil]
        # @param size [Integer] of the file
        # @return [Array<Range>, nil] in the order of the file, those that overlap or touch joined; empty if there is nothing in it, or
        #   the header makes no sense; nil if all of the file is wanted
        def parse(header, size)
          unit, list = header.to_s.split('=', 2)
          return unless list && unit.strip.casecmp?('bytes')

          parts = list.split(',', MOST + 2).map(&:strip)
          return [] if parts.size > MOST

          ranges = parts.map { |part| range(part, size) }
          ranges.include?(nil) ? [] : join(ranges.reject { |range| range.size.zero? })
        end

        # @return [Range, nil] an empty one beyond the end; nil for what is none
        def range(part, size)
          match = PART.match(part) or return
          return [size - Integer(match[3], 10), 0].max...(match[3].to_i.zero? ? 0 : size) if match[3]

          first = Integer(match[1], 10)
          last = match[2] ? Integer(match[2], 10) : size - 1
          return if match[2] && last < first

          first...(first >= size ? first : [last + 1, size].min)
        end

        def join(ranges)
          ranges.sort_by(&:begin).each_with_object([]) do |range, joined|
            if joined.any? && range.begin <= joined.last.end
              joined[-1] = joined.last.begin...[joined.last.end, range.end].max
            else
              joined << range
            end
          end
        end
      end

      private_constant :Ranges
    end
  end
end
