# frozen_string_literal: true

require_relative 'doc_block'

module Polyphony
  # Runs blocks of pages that need gems, in a program that has them: see doc_block.rb.
  module GuideRunner
    RUNNER = File.expand_path('doc_runner.rb', __dir__)

    # @param page [String]
    # @param env [Hash{String => String}] for the program
    # @yield [DocBlock] whether it is to be run; all if there is no block
    def assert_runs(page, **env, &chosen)
      blocks = DocBlock.in(File.read(File.join(POLYPHONY_ROOT, page)), page).select(&:ruby?)
      blocks = blocks.select(&chosen) if chosen
      refute_empty blocks
      Tempfile.create('blocks') do |input|
        input.binmode.write(Marshal.dump(blocks.map(&:to_run)))
        input.rewind
        program = start_command({ 'RUBYOPT' => '-rbundler/setup', **env }, RbConfig.ruby, '-W1', "-I#{POLYPHONY_LIB}", RUNNER, in: input)
        out, err, status = program.finish(self, patient(30))
        assert_predicate status, :success?, out + err
      end
    ensure
      DocBlock.held.each(&:close).clear
    end
  end
end
