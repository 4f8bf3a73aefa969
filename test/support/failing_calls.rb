# frozen_string_literal: true

require 'fileutils'
require 'rbconfig'
require 'tmpdir'

module Polyphony
  # Runs failing_workload.rb with failing_calls.c: system calls of the drivers that fail, by seed.
  module FailingCalls
    SOURCE = File.expand_path('failing_calls.c', __dir__)
    WORKLOAD = File.expand_path('failing_workload.rb', __dir__)

    # @return [String] of a program that it is preloaded for
    def self.path(name)
      File.expand_path(name, __dir__)
    end

    # @return [String, nil] the compiled library; nil where that is not possible
    def self.build(folder)
      path = File.join(folder, 'failing_calls.so')
      path if system('cc', '-shared', '-fPIC', '-o', path, SOURCE, '-ldl', '-luring', out: File::NULL, err: File::NULL)
    end

    # Words and environment of a process that goes through those seeds.
    # @param entries [Integer] of the ring: a few only, so that it overflows; 0: as many as usual
    def self.environment(library, entries: 4)
      { 'LD_PRELOAD' => [ENV['LD_PRELOAD'], library].compact.join(':'), 'FAILING_CALLS_RING' => entries.to_s }
    end
  end
end
