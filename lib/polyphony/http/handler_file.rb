# frozen_string_literal: true

module Polyphony
  module HTTP
    # Loads what is to be served: +config.ru+ for Rack, or a Ruby file whose last value can be called with a Request, or
    # which says +run+.
    #
    # @example app.rb
    #   run do |request|
    #     request.respond("Hello from #{request.path}\n")
    #   end
    module HandlerFile
      class << self
        # @param path [String]
        # @param rack [Hash] for RackHandler
        # @return [#call] gets a Request
        # @raise [ConfigError] if there is none in it
        def load(path, **rack)
          raise ConfigError, "no such file: #{path}#{hint(path)}" unless ::File.file?(path)

          ::File.extname(path) == '.ru' ? rack(path, rack) : native(::File.expand_path(path))
        end

        private

        def hint(path)
          return ", it is a folder: polyphony serve --directory #{path} serves the config.ru in it" if ::File.directory?(path)

          path == Config::DEFAULT_APP ? '. Say what to serve: polyphony serve FILE' : " in #{Dir.pwd}"
        end

        def rack(path, options)
          begin
            require 'rack'
          rescue LoadError
            raise ConfigError, "#{path} is a Rack application, which needs the gem rack: gem install rack, or gem 'rack' in the Gemfile"
          end
          RackHandler.load(path, **options)
        rescue ArgumentError => e
          raise e unless e.message.start_with?('a Rack application ')

          raise ConfigError, "#{path}: #{e.message}; say `run` with one"
        end

        # The file is a program: constants and methods are what they are in any.
        def native(path)
          said = nil
          main = ::TOPLEVEL_BINDING.receiver
          main.define_singleton_method(:run) { |handler = nil, &block| said = handler || block }
          value = ::RubyVM::InstructionSequence.compile_file(path).eval
          [said, value].find { |one| one.respond_to?(:call) } or raise ConfigError, nothing_in(path, said || value)
        ensure
          main.singleton_class.remove_method(:run) if main&.singleton_methods(false)&.include?(:run)
        end

        def nothing_in(path, value)
          "#{path} has no handler: its last value must be something to call with a request, or say " \
            "`run { |request| ... }`; it was #{value.inspect[0, 60]}"
        end
      end
    end
  end
end
