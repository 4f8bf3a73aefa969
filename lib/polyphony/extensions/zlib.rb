# frozen_string_literal: true

module Polyphony
  # Zlib.deflate, inflate, gzip and gunzip of long Strings are left to a thread of the blocking pool, and other fibers run meanwhile. Since
  # Ruby 3.4 zlib asks for that by itself, but not in a main fiber (see docs/decisions/050-work-for-other-threads.md).
  # @api private
  module ZlibExtensions
    # Bytes. With fewer the way to a thread and back takes as long as the work.
    LONG = 32 * 1024

    class << self
      # @param source [String] somebody else may change it meanwhile
      # @yield [String] does the work
      def aside(source)
        return yield(source) unless source.is_a?(::String) && source.bytesize >= LONG && others?

        bytes = source.dup
        Polyphony.blocking { yield bytes }
      end

      private

      # Who has neither is alone in its thread, which may be one of those that do the work.
      def others?
        fiber = ::Fiber.current
        fiber.parent || !fiber.children.empty?
      end
    end

    # Prepended to Zlib's own methods.
    module Functions
      def deflate(source, *level) = ZlibExtensions.aside(source) { |bytes| super(bytes, *level) }
      def inflate(source) = ZlibExtensions.aside(source) { |bytes| super(bytes) }
      def gzip(source, **options) = ZlibExtensions.aside(source) { |bytes| super(bytes, **options) }
      def gunzip(source) = ZlibExtensions.aside(source) { |bytes| super(bytes) }
    end

    # Prepended to those of Zlib::Deflate.
    module Deflate
      def deflate(source, *level) = ZlibExtensions.aside(source) { |bytes| super(bytes, *level) }
    end

    # Prepended to those of Zlib::Inflate.
    module Inflate
      def inflate(source) = ZlibExtensions.aside(source) { |bytes| super(bytes) }
    end

    ::Zlib.singleton_class.prepend Functions
    ::Zlib::Deflate.singleton_class.prepend Deflate
    ::Zlib::Inflate.singleton_class.prepend Inflate
    Patches.expect ::Zlib, ::Zlib::Deflate, ::Zlib::Inflate
  end

  private_constant :ZlibExtensions
end
