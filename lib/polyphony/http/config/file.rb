# frozen_string_literal: true

module Polyphony
  module HTTP
    class Config
      # A config file: Ruby, in which each setting is a word.
      #
      # @example
      #   bind 'https://0.0.0.0:443'
      #   tls cert: 'tls/cert.pem', key: 'tls/key.pem'
      #   workers 2
      #   limits body: 64 << 20
      #   on_worker_start { |number| Database.reconnect }
      class File
        # Words that may be said several times: each adds something.
        REPEATED = %i[bind tls on_start on_worker_start on_worker_stop trusted_proxies].freeze
        # Words with a block.
        BLOCKS = %i[on_start on_worker_start on_worker_stop].freeze
        # Words with nothing behind them mean yes.
        FLAGS = %i[preload early_hints proxy_protocol quiet verbose metrics health ready].freeze

        # Made where the constants are those of any Ruby file: File, not Config::File.
        EVALUATE = ::TOPLEVEL_BINDING.eval('->(words, code, path) { words.instance_eval(code, path) }')
        private_constant :EVALUATE

        # @return [Hash{Symbol => Object}] what it says
        attr_reader :settings

        # @param path [String]
        # @raise [ConfigError]
        def initialize(path)
          @path = path
          @settings = {}
          EVALUATE.call(Words.new(self, path), ::File.read(path), path)
        rescue ConfigError
          raise
        rescue ::ScriptError, ::StandardError => e
          raise ConfigError, "#{place(e)}: #{e.message} (#{e.class})"
        end

        # @param word [Symbol]
        # @param args [Array]
        # @param options [Hash]
        # @!visibility private
        def say(word, args, options, block)
          case word
          when *BLOCKS then add(word, block || raise(ConfigError, "#{here}: #{word} needs a block"))
          when :limits then limits(args, options)
          when :bind then binds(args, options)
          when :tls then add(:tls, options.empty? ? args.first : options)
          when :access_log then access_log(args.first, **options)
          else one(word, args, options)
          end
        end

        # @return [String] file and line, for messages
        # @!visibility private
        def here
          place(nil, caller_locations)
        end

        private

        def add(word, *values)
          (@settings[word] ||= []).concat(values)
          nil
        end

        def limits(args, options)
          unless args.empty?
            raise ConfigError, "#{here}: limits are said with their names, as in limits body: 64 << 20, got #{args.first.inspect}"
          end

          (@settings[:limits] ||= {}).merge!(options)
        end

        def binds(addresses, options)
          raise ConfigError, "#{here}: bind needs an address" if addresses.empty?

          unknown = options.keys - %i[tls proxy mode]
          raise ConfigError, "#{here}: bind has no #{unknown.first}: there are tls, proxy and mode" unless unknown.empty?

          add(:bind, *addresses.map { |address| options.empty? ? address : { address: address, **options } })
        end

        def access_log(path, format: nil, query: nil, **others)
          unless others.empty?
            raise ConfigError, "#{here}: access_log has no #{others.keys.first}: there are format and query"
          end

          @settings[:access_log] = path
          @settings[:access_format] = format if format
          @settings[:access_query] = query unless query.nil?
        end

        def one(word, args, options)
          args = [true] if args.empty? && FLAGS.include?(word)
          return add(word, *args) if REPEATED.include?(word)
          raise ConfigError, "#{here}: #{word} takes one value, got #{args.size}" if args.size != 1 || options.any?

          @settings[word] = args.first
        end

        def place(error, locations = error.backtrace_locations || [])
          location = locations.find { |one| one.path == @path }
          location ? "#{@path}:#{location.lineno}" : @path
        end

        # Where the file is evaluated. Its methods are the settings.
        class Words
          HIDDEN = %i[access_format access_query].freeze

          def initialize(file, path)
            @__file = file
            @__path = path
          end

          (SETTINGS.keys - HIDDEN).each do |word|
            define_method(word) { |*args, **options, &block| @__file.say(word, args, options, block) }
          end

          # As in any Ruby file, which code in a string is not.
          def require_relative(path)
            require ::File.expand_path(path, ::File.dirname(@__path))
          end

          private

          def method_missing(word, *)
            known = SETTINGS.keys - HIDDEN
            near = ::DidYouMean::SpellChecker.new(dictionary: known).correct(word).first if defined?(::DidYouMean)
            raise ConfigError, "#{@__file.here}: no such setting: #{word}#{near && "; did you mean #{near}?"}\n" \
                               "There are #{known.join(', ')}"
          end

          def respond_to_missing?(*)
            false
          end
        end
        private_constant :Words
      end
    end
  end
end
