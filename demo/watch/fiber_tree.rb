# frozen_string_literal: true

module Demo
  module Watch
    # The fibers of this thread as they hang together, for the page: who was spun by whom, where, and what
    # each is doing. Brothers and sisters that look the same are counted from a certain number on.
    class FiberTree
      ROOT = "#{File.expand_path('../..', __dir__)}/".freeze
      ALIKE = 4 # are shown one by one
      DEPTH = 12

      def initialize(root)
        @root = root
        @count = 0
      end

      # How many there are, after #to_h.
      attr_reader :count

      def to_h
        @count = 0
        describe(@root, 0)
      end

      private

      def describe(fiber, depth)
        @count += 1
        children = fiber.children
        node = { tag: name(fiber), state: fiber.state, at: place(fiber) }
        node[:children] = groups(children, depth + 1) unless children.empty?
        node
      end

      def groups(fibers, depth)
        return [] if depth > DEPTH

        fibers.group_by { |fiber| [fiber.tag, fiber.location] }.each_value.flat_map do |alike|
          hidden = alike.drop(ALIKE)
          nodes = alike.first(ALIKE).map { |fiber| describe(fiber, depth) }
          nodes << { tag: name(hidden.first), more: hidden.size } unless hidden.empty?
          @count += hidden.sum { |fiber| weigh(fiber) }
          nodes
        end
      end

      # It and all below it.
      def weigh(fiber)
        1 + fiber.children.sum { |child| weigh(child) }
      end

      def name(fiber)
        fiber.main? ? 'main' : (fiber.tag || 'fiber').to_s
      end

      def place(fiber)
        fiber.location.to_s.delete_prefix(ROOT).sub(/:in .*/, '')
      end
    end
  end
end
