# frozen_string_literal: true

module Polyphony
  module HTTP
    class Request
      # Answers with a file: all of it, the parts that were asked for, or 304 if the client has it. The kernel
      # copies it where that can be.
      # @param path [String] of the file; with +root+: as in a URL, percent-encoded, and what leads out of the
      #   root is not found
      # @param root [String, nil] a folder that must not be left: for paths that come from the client
      # @param type [String, nil] the content type; nil: by the ending
      # @param cache_control [String, nil]
      # @param headers [Hash{String => String}]
      # @param precompressed [Boolean] whether a file with +.br+, +.zst+ or +.gz+ beside it stands for it
      # @return [Boolean] whether there is such a file; else it was answered with 404, or 400 for a bad path
      # @example
      #   request.serve_file('public/logo.svg', cache_control: 'max-age=86400')
      # @example A path of the client's
      #   request.serve_file(request.path, root: 'public')
      def serve_file(path, root: nil, type: nil, cache_control: nil, headers: {}, precompressed: true)
        options = { type: type || Static.type_of(path), cache_control: cache_control, headers: headers, precompressed: precompressed }
        if root then found = Static.__of(root).serve(self, path, **options)
        else
          options[:precompressed] &&= Static.__siblings(path)
          found = Static.__answer(self, path, **options)
        end
        respond("Not Found\n", { 'content-type' => 'text/plain' }, status: 404) unless found
        found
      rescue Static::BadPath => e
        connection.refuse(BadRequest.new("a path with #{e.message}"))
        respond("Bad Request\n", { 'content-type' => 'text/plain' }, status: 400)
        false
      end
    end
  end
end
