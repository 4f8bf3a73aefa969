# frozen_string_literal: true

module Polyphony
  module Compat
    # How a file is run. The modes:
    #
    # stock::  without Polyphony, which is what the others are compared with
    # main::   Polyphony loaded and a fiber beating, the tests in the root fiber; processes that the tests
    #          start have both as well
    # spun::   the same, each test in a fiber of its own; processes that the tests start are stock
    # loaded:: only when asked for: Polyphony loaded, nothing spun. Tells whether a difference of main
    #          comes from the beat
    class Setting < Struct.new(:mode, :driver)
      MODES = %w[main spun loaded].freeze
      USUAL = %w[main spun].freeze
      LIB = File.expand_path('../../lib', __dir__)
      PRELOAD = File.expand_path('preload.rb', __dir__)

      # @return [Array<Setting>] of these modes on these drivers
      def self.all(modes, drivers)
        modes.flat_map { |mode| drivers.map { |driver| new(mode, driver) } }
      end

      # @return [Setting] the n-th run without Polyphony
      def self.stock(turn)
        new('stock', turn.to_s)
      end

      # @return [Setting] from what to_s made
      def self.named(name)
        new(*name.split('-', 2))
      end

      def stock?
        mode == 'stock'
      end

      def to_s
        [mode, driver].join('-')
      end

      # @return [Hash] for the environment of the process
      def environment
        return {} if stock?

        env = { 'POLYPHONY_BACKEND' => driver }
        env['RUBYOPT'] = "-I#{LIB} -r#{PRELOAD}" unless mode == 'spun'
        env['COMPAT_BEAT'] = 'no' if mode == 'loaded'
        env
      end

      # @return [Array<String>] for the command line
      def options
        mode == 'spun' ? ["-I#{LIB}", "-r#{PRELOAD}"] : []
      end

      # @return [String] for child.rb
      def how
        mode == 'spun' ? 'spun' : 'plain'
      end
    end
  end
end
