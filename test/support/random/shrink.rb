# frozen_string_literal: true

module RandomPrograms
  # Makes a program smaller as long as it fails.
  module Shrink
    module_function

    # @yield [Array] a smaller program: whether it still fails
    # @return [Array] one of which nothing can be left out
    def smallest(body, &fails)
      while (smaller = variants(body).find(&fails))
        body = smaller
      end
      body
    end

    # Without one statement, without what is around another's body, or with one inside made smaller; the largest steps first.
    def variants(body)
      halves(body) + without_one(body) + unwrapped(body) + within(body)
    end

    def halves(body)
      return [] if body.size < 4 || body.last.first == :await_quietly

      [body.first(body.size / 2), body.drop(body.size / 2)]
    end

    # Programs that are apart keep their rules: nobody leaves while others are at work.
    def without_one(body)
      body.each_index.reject { |i| body[i].first == :await_quietly }.map { |i| body[0...i] + body[i + 1..] }
    end

    def unwrapped(body)
      body.each_with_index.flat_map do |statement, i|
        bodies(statement).map { |inner| body[0...i] + inner + body[i + 1..] }
      end
    end

    def within(body)
      body.each_with_index.flat_map do |statement, i|
        statement.each_with_index.flat_map do |part, k|
          smaller_parts(part).map { |smaller| body[0...i] + [replace(statement, k, smaller)] + body[i + 1..] }
        end
      end
    end

    def replace(list, index, value) = list.dup.tap { |copy| copy[index] = value }

    # Of a body, or of a list of bodies.
    def smaller_parts(part)
      return [] unless part.is_a?(Array)
      return variants(part) if body?(part)

      without_one(part).reject(&:empty?) + part.each_with_index.flat_map { |one, i| variants(one).map { |smaller| replace(part, i, smaller) } }
    end

    def body?(part) = part.is_a?(Array) && part.all? { |one| one.is_a?(Array) && one.first.is_a?(Symbol) }

    def bodies(statement)
      statement.grep(Array).flat_map { |part| body?(part) ? [part] : part.select { |one| body?(one) } }.reject(&:empty?)
    end
  end
end
