# frozen_string_literal: true

module Polyphony
  # Libraries that we extend, and that cost too much to load them for everybody. For each there is a folder
  # in when_required, first in $LOAD_PATH, with a file of the library's name. When that is found, in the
  # place of the library, it takes its folder out of the way, requires the real one and then our extension.
  # Where others tidy up $LOAD_PATH, the two can be required by hand, in that order.
  # @!visibility private
  module WhenRequired
    FOLDER = File.join(__dir__, 'when_required').freeze
    # Our extension => a constant which is there when the library is loaded, and what loads it.
    LIBRARIES = { 'openssl' => ['OpenSSL::SSL::SSLServer', 'openssl'], 'net_http' => ['Net::HTTP', 'net/http'] }.freeze

    class << self
      # Extends libraries that are loaded now, and the others when they are.
      def prepare
        LIBRARIES.each do |extension, (constant, _)|
          if there?(constant) then require "polyphony/extensions/#{extension}"
          else $LOAD_PATH.unshift(File.join(FOLDER, extension))
          end
        end
      end

      # For the files in the folders.
      def load(extension)
        $LOAD_PATH.delete(File.join(FOLDER, extension))
        require LIBRARIES.fetch(extension).last
        require "polyphony/extensions/#{extension}"
      end

      private

      # Asking does not load what is to be loaded when it is first named.
      def there?(path)
        path.split('::').inject(Object) do |scope, name|
          return false if scope.autoload?(name) || !scope.const_defined?(name, false)

          scope.const_get(name)
        end
        true
      end
    end
  end

  private_constant :WhenRequired

  # @!visibility private
  def self.__when_required(extension)
    WhenRequired.load(extension)
  end

  WhenRequired.prepare
end
