# frozen_string_literal: true

module Demo
  module Chat
    # What people may call themselves and their rooms, and what they may say. Everything from outside goes
    # through here once; from then on it is trusted to be short and printable. The page shows it with textContent.
    module Rules
      NAME = /\A[\p{L}\p{N}][\p{L}\p{M}\p{N} ._'-]{0,23}\z/
      ROOM = /\A[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?\z/
      SESSION = /\A[0-9a-f]{32}\z/
      TEXT = 2_000 # characters
      LINES = 40
      # Control characters, and those that turn the direction of what follows, us included.
      UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/

      # What is wrong, in words for the person who typed it.
      class Broken < StandardError
        attr_reader :code

        def initialize(code, message)
          @code = code
          super(message)
        end
      end

      class << self
        def name(value)
          name = string(value).unicode_normalize(:nfc).strip.squeeze(' ')
          return name if name.match?(NAME)

          raise Broken.new('name', 'A name has 1 to 24 letters, digits, spaces or . _ \' - and begins with a letter or digit.')
        end

        # Two names that look alike to most people are the same.
        def key(name)
          name.unicode_normalize(:nfkc).downcase(:fold).delete(" ._'-")
        end

        def room(value)
          room = string(value).strip.downcase
          return room if room.match?(ROOM)

          raise Broken.new('room', 'A room has 1 to 24 letters a to z, digits or dashes.')
        end

        def text(value)
          text = string(value).gsub("\r\n", "\n").gsub(UNPRINTABLE, '').strip
          raise Broken.new('text', 'There is nothing to send.') if text.empty?
          raise Broken.new('text', "A message has at most #{TEXT} characters, this one #{text.size}.") if text.size > TEXT
          raise Broken.new('text', "A message has at most #{LINES} lines.") if text.count("\n") >= LINES

          text
        end

        # Lets a tab that was cut off come back under its own name.
        def session(value)
          return value if value.is_a?(String) && value.match?(SESSION)

          raise Broken.new('session', 'The session is not one of ours; reload the page.')
        end

        private

        def string(value)
          return value if value.is_a?(String) && value.valid_encoding?

          raise Broken.new('format', 'That was not understood.')
        end
      end
    end
  end
end
