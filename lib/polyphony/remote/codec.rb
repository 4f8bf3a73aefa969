# frozen_string_literal: true

require 'json'

module Polyphony
  class Remote
    # Messages as bytes. Nothing but plain data goes in, so nothing else comes out: JSON and MessagePack would both write what they
    # do not know as something else. Every message says how it is written.
    # @api private
    class Codec
      # How deep a message may be, as in JSON.
      DEPTH = 100
      MARKS = { json: 'j', msgpack: 'm' }.freeze
      INTEGERS = (-2**63...2**64).freeze
      private_constant :DEPTH, :INTEGERS

      # @param format [Symbol] :json or :msgpack
      # @param max_bytes [Integer]
      def initialize(format, max_bytes)
        unless MARKS.key?(format)
          raise ArgumentError, "format must be :json or :msgpack, got #{format.inspect}"
        end

        Codec.load_msgpack if format == :msgpack
        @format = format
        @max_bytes = max_bytes
      end

      # @return [Array(String, String)] the mark of the format, and the bytes
      # @raise [Unserialisable]
      # @raise [TooLarge]
      def encode(message)
        check(message, [])
        bytes = @format == :json ? ::JSON.generate(message) : ::MessagePack.pack(message)
        if bytes.bytesize > @max_bytes
          raise TooLarge, "the message has #{bytes.bytesize} bytes, #{@max_bytes} are allowed (max_bytes): #{Codec.brief(message)}"
        end

        [MARKS.fetch(@format), bytes]
      end

      # @raise [Unreadable]
      def self.decode(mark, bytes)
        case mark
        when 'j' then ::JSON.parse(bytes.dup.force_encoding(Encoding::UTF_8), max_nesting: DEPTH + 1)
        when 'm' then load_msgpack && ::MessagePack.unpack(bytes.b)
        else raise Unreadable, "it is in no known format, but #{mark.inspect}"
        end
      rescue ::JSON::ParserError, ::EncodingError, ::LoadError, *(defined?(::MessagePack) ? [::MessagePack::UnpackError, ::EOFError] : []) => e
        raise Unreadable, "it cannot be read: #{e.class}: #{cut(e.message.scrub)}"
      end

      # @raise [LoadError]
      def self.load_msgpack
        require 'msgpack'
        true
      rescue ::LoadError
        raise ::LoadError, 'messages in MessagePack need the gem msgpack: add it to the Gemfile, or use format: :json'
      end

      def self.brief(value)
        cut(value.inspect)
      end

      def self.cut(text)
        text.size > 100 ? "#{text[0, 97]}..." : text
      end

      private

      def check(value, path)
        refuse(value, path, "it is more than #{DEPTH} deep, or contains itself") if path.size > DEPTH
        case value
        when nil, true, false then nil
        when ::String, ::Symbol then check_text(value, path)
        when ::Integer then check_integer(value, path)
        when ::Float then refuse(value, path, 'it is no number') unless value.finite?
        when ::Array then value.each_with_index { |item, i| check(item, [*path, "[#{i}]"]) }
        when ::Hash then check_hash(value, path)
        else refuse(value, path, "a #{value.class} is no plain data: send what it consists of")
        end
      end

      def check_hash(hash, path)
        hash.each do |key, value|
          refuse(key, path, 'keys must be Strings or Symbols') unless key.is_a?(::String) || key.is_a?(::Symbol)
          check_text(key, path)
          check(value, [*path, "[#{key.inspect}]"])
        end
      end

      def check_text(text, path)
        return if text.encoding == Encoding::BINARY && @format == :msgpack && text.is_a?(::String)

        utf8 = text.to_s.encode(Encoding::UTF_8)
        refuse(text, path, 'it is no valid text') unless utf8.valid_encoding?
      rescue ::EncodingError
        refuse(text, path, "it is no text in UTF-8#{', and only format: :msgpack has bytes' if @format == :json}")
      end

      def check_integer(number, path)
        refuse(number, path, 'MessagePack has 64 bits') if @format == :msgpack && !INTEGERS.cover?(number)
      end

      def refuse(value, path, reason)
        place = path.size > 5 ? "#{path.first(3).join}...#{path.last}" : path.join
        raise Unserialisable, "#{Codec.brief(value)}#{" at #{place} of the message" unless path.empty?} cannot be sent: #{reason}"
      end
    end
  end
end
