# frozen_string_literal: true

require 'fileutils'
require 'yaml'
require_relative 'source'

module Polyphony
  module Compat
    # What there is to run, and with what.
    class Plan
      LIST = File.expand_path('files.yml', __dir__)
      CACHE = File.expand_path('../../tmp/compat', __dir__)

      # @return [String] the root of the interpreter's sources
      attr_reader :source
      # @return [String] a folder for RUBYLIB
      attr_reader :extensions
      # @return [Hash{String => String}] pattern of tests that are never run => why
      attr_reader :reasons_left_out
      # @return [Hash{String => String}] file => what it judges
      attr_reader :groups

      # @param filter [String, nil] a part of the files' names
      def initialize(filter)
        list = YAML.safe_load(File.read(LIST))
        found = Source.new(CACHE)
        @source = found.path
        @extensions = found.build_extensions(list.fetch('extensions'))
        @reasons_left_out = list.fetch('left_out')
        @groups = groups_of(list.fetch('files'), filter.to_s)
        # An empty file, which a patch of Debian's cannot bring.
        FileUtils.touch("#{@source}/test/openssl/fixtures/pkey/empty.pem")
      end

      # @return [Array<String>] for child.rb
      def left_out
        @reasons_left_out.keys.map { |pattern| "/#{pattern}/" }
      end

      # @return [Array<String>] those that take long first, so that no worker is left with one at the end
      def files
        @groups.keys.sort_by { |file| -File.size("#{@source}/test/#{file}") }
      end

      # @return [String] a folder of ours
      def folder(name)
        File.join(CACHE, name).tap { |path| FileUtils.mkdir_p(path) }
      end

      private

      def groups_of(lists, filter)
        lists.each_with_object({}) do |(group, patterns), groups|
          patterns.flat_map { |pattern| Dir.glob(pattern, base: "#{@source}/test").sort }.each do |file|
            groups[file] = group if file.include?(filter)
          end
        end
      end
    end
  end
end
