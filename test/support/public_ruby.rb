# frozen_string_literal: true

require 'rbconfig'
require 'set'

module Polyphony
  # What Ruby's public headers declare, whose names all begin alike.
  module PublicRuby
    NAME = /\A(?:rb|ruby|st|onig|onigenc)_/.freeze

    module_function

    # @return [Array<String>] those that the headers do not have. What a comment mentions need not be for us.
    def strangers(names)
      @known ||= Dir[File.join(RbConfig::CONFIG['rubyhdrdir'], '**/*.h')].flat_map do |header|
        text = File.read(header, encoding: 'BINARY')
        text.gsub(%r{/\*.*?\*/}mn, ' ').gsub(%r{//.*}n, '').scan(/\b(?:rb|ruby|st|onig|onigenc)_\w+/n)
      end.to_set
      names.grep(NAME).reject { |name| @known.include?(name) }
    end
  end
end
