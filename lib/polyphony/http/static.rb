# frozen_string_literal: true

module Polyphony
  module HTTP
    # Serves the files of a folder, and nothing outside of it: with parts (Range), conditional requests, and
    # compressed files that lie beside their originals.
    #
    # @example
    #   files = Polyphony::HTTP::Static.new('public', cache_control: 'max-age=3600')
    #   Polyphony::HTTP::Server.new('http://127.0.0.1:8080', app: files).run
    class Static
      # Shown although it begins with a dot (RFC 8615).
      WELL_KNOWN = '.well-known'
      # For how many seconds we believe that a path still leads where it led, and how many paths we remember.
      FRESH = 1
      MOST_KNOWN = 1_000
      # What a path leads to: a real path (or :folder, if a slash is missing), the compressed files beside it, and when to
      # look again.
      Found = Struct.new(:path, :siblings, :stale_at)
      private_constant :WELL_KNOWN, :FRESH, :MOST_KNOWN, :Found

      # @return [String] the folder, as an absolute path without links
      attr_reader :root

      # @param root [String] a folder
      # @param prefix [String] what the paths of requests begin with, as in +/assets+
      # @param index [String, nil] the file that stands for a folder; nil: there is none
      # @param hidden [Boolean] whether names that begin with a dot are shown; +/.well-known+ always is
      # @param cache_control [String, nil] for the answers, as in +max-age=3600+
      # @param headers [Hash{String => String}] for the answers
      # @param types [Hash{String => String}] content types by ending, beside TYPES
      # @param precompressed [Boolean] whether +page.html.br+, +.zst+ and +.gz+ stand for +page.html+
      # @raise [Errno::ENOENT] without such a folder
      def initialize(root, prefix: '', index: 'index.html', hidden: false, cache_control: nil, headers: {}, types: {},
                     precompressed: true)
        @root = ::File.realpath(root)
        raise Errno::ENOTDIR, root unless ::File.directory?(@root)

        @prefix = prefix.delete_suffix('/')
        @index = index
        @hidden = hidden
        @types = types.transform_keys { |ending| ending.to_s.delete_prefix('.').downcase }
        @options = { cache_control: cache_control, headers: headers, precompressed: precompressed }
        @known = {}
      end

      # Answers a request: with a file, or with 400, 404 or 405.
      # @param request [Request]
      # @return [nil]
      def call(request)
        return refuse(request, 405, 'allow' => 'GET, HEAD') unless %w[GET HEAD].include?(request.verb)

        serve(request) or refuse(request, 404)
        nil
      rescue BadPath => e
        request.connection.refuse(BadRequest.new("a path with #{e.message}"))
        refuse(request, 400)
      end

      # Answers a request if there is a file for it; else it is left to somebody else.
      # @param request [Request]
      # @param path [String] as in a URL, percent-encoded
      # @return [Boolean] whether it was answered
      # @raise [BadPath] for a path that nobody sends by mistake
      def serve(request, path = request.path, **options)
        return false unless path.start_with?("#{@prefix}/")

        found = find(path.delete_prefix(@prefix)) or return false
        return redirect(request) if found.path == :folder

        options = { type: Static.type_of(found.path, @types), **@options, **options }
        options[:precompressed] &&= found.siblings
        Static.__answer(request, found.path, **options)
      end

      # A path that has no place in a folder: with +..+, a zero byte, a backslash, bytes that are not UTF-8.
      class BadPath < ArgumentError; end

      # One for each root, for those who name it with each request.
      # @!visibility private
      def self.__of(root)
        @of ||= {}
        @of.clear if @of.size > MOST_KNOWN
        @of[root] ||= new(root, index: nil)
      end

      private

      # Asking the file system is most of the work for a small file.
      # @return [Found, nil]
      def find(path)
        now = Clock.now
        found = @known[path]
        return found if found && found.stale_at > now

        real = resolve(path) or return
        @known.clear if @known.size >= MOST_KNOWN
        siblings = @options[:precompressed] && real != :folder ? Static.__siblings(real) : {}
        @known[path] = Found.new(real, siblings, now + FRESH)
      end

      # @return [String, :folder, nil] the real path; :folder if a slash is missing
      def resolve(path)
        names = names_in(path) or return
        folder = names.last == ''
        real = real_path(names) or return
        return (real unless folder) unless ::File.directory?(real)
        return unless @index
        return :folder unless folder

        index = real_path([*names[0..-2], @index])
        index && !::File.directory?(index) ? index : nil
      end

      # @return [Array<String>, nil] the last is empty after a slash
      def names_in(path)
        names = path.split('/', -1).drop(1).map { |name| decode(name) }
        return if names[0..-2].include?('')

        names if @hidden || names.none? { |name| name.start_with?('.') && name != WELL_KNOWN }
      end

      # Once, and strictly.
      def decode(name)
        name = name.b.gsub(/%(\h\h)?/n) { Regexp.last_match(1)&.hex&.chr || raise(BadPath, 'a percent sign without two digits') }
        name.force_encoding(Encoding::UTF_8)
        raise BadPath, 'not UTF-8' unless name.valid_encoding?
        raise BadPath, 'a byte that is in no name' if name.match?(%r{[\x00-\x1f\x7f/\\]})
        raise BadPath, 'a way out' if %w[. ..].include?(name)

        name
      end

      # Where links lead counts, not what they are called.
      def real_path(names)
        real = ::File.realpath(::File.join(@root, *names))
        real if real == @root || real.start_with?(@root == '/' ? '/' : "#{@root}/")
      rescue ::SystemCallError
        nil # not there, or not for us
      end

      # Links of a page in a folder are relative to it.
      def redirect(request)
        target = "#{request.path}/#{"?#{request.query}" if request.query}"
        request.respond(nil, { 'location' => target }, status: 301)
        true
      end

      def refuse(request, status, headers = {})
        request.respond("#{Status::PHRASES[status]}\n", { 'content-type' => 'text/plain' }.merge(headers), status: status)
        nil
      end
    end
  end
end

require 'polyphony/http/static/types'
require 'polyphony/http/static/ranges'
require 'polyphony/http/static/answer'
