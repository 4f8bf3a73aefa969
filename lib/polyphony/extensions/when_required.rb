# frozen_string_literal: true

module Polyphony
  # Libraries that we extend, and that cost too much to load them for everybody. For each there is a folder
  # in when_required, first in $LOAD_PATH, with a file of the library's name. When that is found, in the
  # place of the library, it takes its folder out of the way, requires the real one and then our extension.
  # Where others tidy up $LOAD_PATH, the two can be required by hand, in that order.
  # @!visibility private
  module WhenRequired
    # constant: there when the library is loaded; feature: what loads it; extension: ours, loaded after it;
    # folder: with the file that is found in the library's place.
    Library = Struct.new(:constant, :feature, :extension, :folder, keyword_init: true)

    @libraries = {}

    class << self
      # Extends a library now if it is loaded, else when it is.
      # @param name [String] of its folder in +folders+
      def prepare(name, folders:, **library)
        library = Library.new(**library, folder: File.join(folders, name))
        return if @libraries.key?(name)

        @libraries[name] = library
        if there?(library.constant) then require library.extension
        else $LOAD_PATH.unshift(library.folder)
        end
      end

      # For the files in the folders.
      def load(name)
        library = @libraries.fetch(name)
        $LOAD_PATH.delete(library.folder)
        require library.feature
        require library.extension unless being_loaded?(library.extension)
      end

      private

      # It may be what requires the library.
      def being_loaded?(extension)
        caller_locations.any? { |place| place.absolute_path.to_s.end_with?("/lib/#{extension}.rb") }
      end

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
  def self.__when_required(name)
    WhenRequired.load(name)
  end

  # @!visibility private
  def self.__prepare_library(name, **library)
    WhenRequired.prepare(name, **library)
  end

  { 'openssl' => ['OpenSSL::SSL::SSLServer', 'openssl'], 'net_http' => ['Net::HTTP', 'net/http'],
    'zlib' => ['Zlib::GzipReader', 'zlib'] }.each do |name, (constant, feature)|
    __prepare_library(name, constant: constant, feature: feature, extension: "polyphony/extensions/#{name}",
                            folders: File.join(__dir__, 'when_required'))
  end
end
