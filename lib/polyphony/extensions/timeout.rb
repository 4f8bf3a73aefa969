# frozen_string_literal: true

require 'timeout'
require 'polyphony/extensions/timeout_watch'

module Polyphony
  # Timeout.timeout ends a block where it waits, while other fibers run; one that does not wait, too.
  module TimeoutExtensions
    FOLDER = File.expand_path('..', __dir__)
    WATCH = Watch.new
    private_constant :FOLDER, :WATCH

    # What is raised in a block whose limit is over, unless a class was given. Not a StandardError, so
    # that a plain +rescue+ does not swallow it; outside the block it is a Timeout::Error.
    Expired = Class.new(defined?(::Timeout::ExitException) ? ::Timeout::ExitException : ::Exception)

    # Runs the block for at most that long. As stock, except that other fibers run meanwhile. A block
    # that waits is ended where it waits, one that computes in the middle of it.
    # @param sec [Numeric, nil] nil or 0: no limit
    # @param klass [Class, nil] what is raised in the block; without it, the block gets something that
    #   a plain +rescue+ does not see, and the caller a Timeout::Error
    # @param message [String]
    # @yield [sec]
    # @return [Object] what the block returns
    # @raise [Timeout::Error] when the time is over
    # @raise [ArgumentError] if it is negative
    # @raise [TypeError] if it is no number
    def timeout(sec, klass = nil, message = nil)
      return yield(sec) if sec.nil? || sec.zero?
      raise TypeError, "can't convert #{sec.class} into time interval" unless sec.respond_to?(:divmod)
      raise ArgumentError, "Timeout sec must be a non-negative number, got #{sec}" if sec.negative?
      return super unless Thread.__polyphony_ours?

      message ||= 'execution expired'
      return TimeoutExtensions.limit(sec, [klass, message]) { yield sec } if klass

      TimeoutExtensions.limit_unrescued(sec, message) { yield sec }
    end

    # For those who include Timeout.
    module Included
      private

      # @see TimeoutExtensions#timeout
      def timeout(...)
        ::Timeout.timeout(...)
      end
    end

    class << self
      # @!visibility private
      # A mask around it (Thread.handle_interrupt) may hold it back for longer than the block takes; it comes
      # at the end of the mask then, as in stock Ruby.
      def limit(seconds, error, late = error, &block)
        held_back = false
        CancelScope.cancel_after(seconds, error) do |scope|
          scope.__obey_masks
          WATCH.watch(scope, seconds, &block)
        ensure
          held_back = scope.expired? && scope.__held_back?
        end
      ensure
        Thread.current.raise(*late) if held_back
      end

      # @!visibility private
      # Limits may be nested: the one that has expired knows its exception, by its first copy.
      def limit_unrescued(seconds, message, &block)
        error = Expired.new(message)
        error.instance_variable_set(:@__polyphony_limit, error)
        limit(seconds, error, [::Timeout::Error, message], &block)
      rescue Expired => e
        raise unless e.instance_variable_get(:@__polyphony_limit).equal?(error)

        lines = e.backtrace.reject { |line| line.start_with?(FOLDER) }
        raise(::Timeout::Error, message, lines, cause: e.cause)
      end
    end
  end

  ::Timeout.singleton_class.prepend TimeoutExtensions
  ::Timeout.prepend TimeoutExtensions::Included
end
