# frozen_string_literal: true

require 'fiddle'

module Polyphony
  # What malloc keeps of what is free depends on how much was needed at once some time, which is another amount in each run.
  module Malloc
    # What is free goes back to the kernel, so that the memory of the process tells what is not.
    # @return [Boolean] whether this malloc can do that
    def self.trim
      Fiddle::Function.new(Fiddle::Handle::DEFAULT['malloc_trim'], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT).call(0)
      true
    rescue Fiddle::DLError
      false
    end
  end
end
