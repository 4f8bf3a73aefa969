# frozen_string_literal: true

module Polyphony
  # Where fibers were spun, as text.
  module Backtrace
    # Frames of files below this folder are ours, and left out.
    DIR = "#{File.expand_path('..', __dir__)}/"
    # How Ruby writes a line of a backtrace.
    LINE = RUBY_VERSION >= '3.4' ? "%s:%d:in '%s'" : "%s:%d:in `%s'"
    private_constant :LINE

    class << self
      # @!visibility private
      # A C function stands at the line that called it, as in Ruby's own backtraces.
      # @param frames [Array] of [path, line, label, label with class, method name], innermost first
      # @return [Array<String>]
      def lines(frames)
        place = nil
        lines = frames.reverse.filter_map do |path, line, label, full_label, method|
          next if path && line.zero? # stands for the file itself

          native = path.nil? || path == '<cfunc>'
          place = [path, line] unless native
          format(LINE, *place, label_of(native, label, full_label, method)) if place
        end
        sanitize(lines.reverse.drop(1)) # without spin itself
      end

      # @!visibility private
      # A block of ours that calls a user's in a loop over something foreign has it in the variable +users_block+. The
      # place where such a fiber was spun may be a line of another library: Active Support's Range#each for one.
      # @return [String, nil] where the block is written; nil if not in Ruby
      def place_of(block)
        place = block.source_location&.join(':')
        return place unless place&.start_with?(DIR) && block.binding.local_variable_defined?(:users_block)

        block.binding.local_variable_get(:users_block).source_location&.join(':') || place
      end

      # @!visibility private
      def sanitize(lines)
        return lines if ::Exception.__disable_sanitized_backtrace__

        lines.reject { |line| line.start_with?(DIR) }
      end

      private

      def label_of(native, label, full_label, method)
        return full_label || method if RUBY_VERSION >= '3.4'

        native ? method : label
      end
    end
  end

  # Where a fiber comes from.
  module FiberBacktrace
    # Where the fiber was spun, then where its parent was, and so on.
    # @return [Array<String>] lines of a backtrace, without the library's own
    def caller
      lines = []
      __each_caller { |own| lines.concat(own) }
      lines
    end

    # The first line of that, without making the others.
    # @!visibility private
    # @return [String, nil]
    def __origin
      __each_caller { |own| return own.first unless own.empty? }
      nil
    end

    # @!visibility private
    # @yield [Array<String>] lines of each: of the fiber, then of its parents
    def __each_caller
      fiber = self
      while fiber
        yield fiber.__caller || Backtrace.lines(fiber.__spawn_frames)
        fiber = fiber.parent || fiber.__former_parent
      end
    end

    # Says where the fiber was spun instead of what the library noted.
    # @param lines [Array<String>, nil] nil: what was noted
    # @return [self]
    def set_caller(lines)
      unless lines.nil? || (lines.is_a?(Array) && lines.all?(String))
        Kernel.raise TypeError, "expected an Array of Strings, got #{lines.inspect}"
      end
      self.__caller = lines
      self
    end
  end

  ::Fiber.include FiberBacktrace
  ::Exception.const_set(:POLYPHONY_DIR, Backtrace::DIR)
  # Set to see the library's own frames in backtraces.
  ::Exception.singleton_class.attr_accessor :__disable_sanitized_backtrace__
  private_constant :Backtrace
end
