# frozen_string_literal: true

module Polyphony
  module HTTP
    class WebSocket
      # What is agreed upon about compression (RFC 7692).
      # @!visibility private
      module Extension
        NAME = 'permessage-deflate'
        TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/.freeze
        PARAMETER = /\A\s*(#{TOKEN})\s*(?:=\s*(?:"(#{TOKEN})"|(#{TOKEN}))\s*)?\z/.freeze
        FLAGS = %w[server_no_context_takeover client_no_context_takeover].freeze
        SIZES = %w[server_max_window_bits client_max_window_bits].freeze

        module_function

        # The server's side: takes the first offer that can be taken.
        # @param header [String, nil] what the client offers
        # @param context [Boolean] whether messages may refer to earlier ones. That makes small messages
        #   smaller, and costs 300 KB a connection
        # @return [Array(String, Array), nil] our answer, and what WebSocket#initialize wants
        def accept(header, context)
          return unless header && Codec.deflate?

          parse(header).each do |name, parameters|
            next unless name == NAME && parameters

            # A window of 8 bits is none that zlib could make.
            bits = Integer(parameters.fetch('server_max_window_bits', '15'), 10)
            return answer(parameters, context, bits) if bits >= 9
          end
          nil
        end

        # The client's side.
        # @return [String]
        def offer
          "#{NAME}; client_max_window_bits"
        end

        # @param header [String, nil] what the server answered to #offer
        # @return [Array, nil] what WebSocket#initialize wants
        # @raise [BadRequest] for what was not offered
        def agreed(header)
          return if header.nil? || header.empty?

          (name, parameters), *others = parse(header)
          raise BadRequest, 'an extension that was not offered' unless name == NAME && parameters && others.empty?

          bits = Integer(parameters.fetch('client_max_window_bits', nil) || '15', 10)
          raise BadRequest, 'a window of 8 bits, which zlib cannot make' if bits < 9

          [!parameters.key?('server_no_context_takeover'), !parameters.key?('client_no_context_takeover'), bits]
        end

        # @return [Array<Array(String, Hash)>] names and parameters; nil for parameters that are none
        def parse(header)
          header.split(',').first(16).map do |offer|
            name, *parameters = offer.split(';')
            [name.to_s.strip.downcase, parse_parameters(parameters)]
          end
        end

        def parse_parameters(list)
          list.each_with_object({}) do |text, found|
            match = PARAMETER.match(text) or return
            key = match[1]
            value = match[2] || match[3]
            return if found.key?(key) || !allowed?(key, value)

            found[key] = value
          end
        end

        def allowed?(key, value)
          return value.nil? if FLAGS.include?(key)
          return false unless SIZES.include?(key)

          value ? value.match?(/\A(?:[89]|1[0-5])\z/) : key == 'client_max_window_bits'
        end

        def answer(parameters, context, bits)
          ours = context && !parameters.key?('server_no_context_takeover')
          theirs = context && !parameters.key?('client_no_context_takeover')
          text = NAME.dup
          text << '; server_no_context_takeover' unless ours
          text << '; client_no_context_takeover' unless theirs
          text << "; server_max_window_bits=#{bits}" if parameters.key?('server_max_window_bits')
          [text, [theirs, ours, bits]]
        end
      end

      private_constant :Extension
    end
  end
end
