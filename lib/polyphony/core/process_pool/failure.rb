# frozen_string_literal: true

module Polyphony
  class ProcessPool
    # An exception on its way to another process, with its backtrace and its causes. One that cannot be sent, or whose
    # class is not known where it arrives, becomes a RemoteError that describes it.
    # @api private
    module Failure
      OWN_FRAMES = File.expand_path('../..', __dir__)
      private_constant :OWN_FRAMES

      class << self
        # @param error [Exception]
        # @return [String]
        def dump(error)
          Marshal.dump(record(error, {}.compare_by_identity))
        end

        # @param bytes [String]
        # @return [Exception] with the caller's frames below its own
        def load(bytes)
          error = revive(Marshal.load(bytes)) # rubocop:disable Security/MarshalLoad -- from our own child
          error.set_backtrace([*error.backtrace, *foreign(caller)])
          error
        end

        # @return [Array<String>] without those of the pool
        def foreign(frames)
          frames.to_a.reject { |frame| frame.start_with?(OWN_FRAMES) }
        end

        private

        def record(error, seen)
          seen[error] = true
          cause = error.cause
          { bytes: bytes(error), name: error.class.name || error.class.inspect, message: text(error),
            backtrace: foreign(error.backtrace).map(&:dup), cause: (record(cause, seen) if cause && !seen.key?(cause)) }
        end

        # @return [String, nil] nil if it cannot be sent
        def bytes(error)
          Marshal.dump(error)
        rescue ::StandardError
          nil
        end

        def text(error)
          String.new(error.message.to_s)
        rescue ::StandardError => e
          "(its message raised #{e.class})"
        end

        def revive(record)
          error = instance(record) || RemoteError.new(record[:name], record[:message])
          error.set_backtrace(record[:backtrace])
          record[:cause] ? with_cause(error, revive(record[:cause])) : error
        end

        def instance(record)
          error = record[:bytes] && Marshal.load(record[:bytes]) # rubocop:disable Security/MarshalLoad -- see load
          error if error.is_a?(::Exception)
        rescue ::StandardError
          nil
        end

        # Only raising it gives an exception a cause.
        def with_cause(error, cause)
          backtrace = error.backtrace
          raise error, cause: cause
        rescue ::Exception => e # rubocop:disable Lint/RescueException -- it is the one that is raised here
          raise unless e.equal?(error)

          error.set_backtrace(backtrace)
          error
        end
      end
    end
  end
end
