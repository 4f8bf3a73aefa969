# frozen_string_literal: true

require 'rspec/core'
require 'polyphony/testing'

module Polyphony
  module Testing
    # For examples of RSpec that have the tag +:polyphony+: after each, nothing may be left behind; the words of the kit are methods. The tag
    # may have settings: +leaks:+ (true), +virtual_clock:+ (true, or its options), +shuffle:+ (true, or a seed).
    #
    # @example
    #   require 'polyphony/testing/rspec'
    #   RSpec.describe Client, polyphony: { virtual_clock: true } do
    #     it('gives up after an hour') { expect(Client.new.fetch).to be_nil }
    #   end
    module RSpec
      class << self
        # @!visibility private
        def around(example)
          settings = Settings.new(**(example.metadata[:polyphony].is_a?(Hash) ? example.metadata[:polyphony] : {}))
          leaks = Leaks.new if settings.leaks?
          settings.around { example.run }
          finish(example.example, leaks ? leaks.found : [], settings.seed)
        end

        private

        def finish(example, left, seed)
          Settings.clean_up
          failed = example.exception || left.any?
          if seed && failed
            $stderr.puts "\npolyphony: in #{example.full_description} #{Seed.words(seed, 'the order of fibers')}"
          end
          raise Leaks::Left, left, [place(example)] if left.any? && example.exception.nil?
        end

        # The lines that look for what it has left say nothing.
        def place(example)
          "#{example.metadata[:absolute_file_path]}:#{example.metadata[:line_number]}"
        end
      end

      ::RSpec.configure do |config|
        config.include Helpers, :polyphony
        config.around(:each, :polyphony) { |example| RSpec.around(example) }
      end
    end
  end
end
