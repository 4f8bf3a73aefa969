# frozen_string_literal: true

require 'json'

module Polyphony
  # Pages for the browser with their data in them, in a script element that is not run.
  # @api private
  module Embed
    MARK = '"POLYPHONY_DATA"'

    # @param template [String] a file
    def self.page(template, data)
      ::File.read(template, encoding: 'UTF-8').sub(MARK) { JSON.generate(data).gsub('</', '<\\/').gsub("<!--", "<\\u0021--") }
    end
  end

  private_constant :Embed
end
