# frozen_string_literal: true

module Polyphony
  module HTTP
    class Check
      # Attacks on files: line 45. Without a folder of files to attack, the paths are tried all the same.
      module Static
        extend Catalogue

        # What must never come out.
        PASSWD = /^root:[^:]*:0:0:/n.freeze

        # Where no file is known, an application may answer to any path.
        APPLICATION = 'by the application'

        # What those attacks do over and over.
        module Helpers
          private

          # @return [String] the folder of the file that is served
          def folder
            (options.files || '/').sub(%r{[^/]*\z}, '')
          end

          # @return [Outcome] to which a file from outside is a problem
          def fetch(path, lines = '')
            exchange(get("#{lines}Connection: close\r\n", path: path)).tap do |outcome|
              outcome.problem = 'a file from outside the root' if outcome.bytes.match?(PASSWD)
              outcome.note = APPLICATION if options.files.nil? && outcome.statuses == [options.good]
            end
          end
        end
        Attack.include(Helpers)

        # @return [Expect] one of these, if it is about files at all
        def self.none(*statuses)
          Expect.new(statuses.join('/'),
                     ->(o, _) { o.statuses.size == 1 && (statuses.include?(o.statuses.first) || o.note == APPLICATION) },
                     ->(o, _) { o.statuses.size == 1 && o.statuses.first < 500 })
        end
        private_class_method :none

        ranges = Expect.new('416 or the whole file', ->(o, g) { [[416], [g], [400]].include?(o.statuses) },
                            ->(o, _) { o.statuses == [206] })

        line 45, 'files', none(400, 403, 404)
        { '/../' => '../' * 8, '%2e%2e%2f' => '%2e%2e%2f' * 8, '%2E./' => '%2E./' * 8, '..%5c' => '..%5c' * 8, '..\\' => '..\\' * 8,
          '%252e' => '%252e%252e%252f' * 8, 'overlong UTF-8' => '%c0%ae%c0%ae%c0%af' * 8, '....//' => '....//' * 8,
          'an absolute path' => '/', 'an encoded absolute path' => '%2f' }.each do |title, dots|
          try(title) { fetch("#{folder}#{dots}etc/passwd") }
        end
        try('%00') { fetch("#{options.files || '/index.html'}%00.txt") }
        try('%00 behind a way out') { fetch("#{folder}#{'../' * 8}etc/passwd%00.html") }
        try('half an escape', none(400, 404)) do
          fetch("#{folder}a%2")
        end
        try('a name of 5,000 bytes', none(400, 404, 414)) do
          fetch("#{folder}#{'a' * 5_000}")
        end
        try('1,000 ranges', ranges, needs: :files) do
          fetch(options.files, "Range: bytes=#{Array.new(1_000) { |i| "#{i}-#{i}" }.join(',')}\r\n")
        end
        try('ranges on top of each other', ranges, needs: :files) do
          fetch(options.files, "Range: bytes=#{(['0-'] * 100).join(',')}\r\n")
        end
        ['bytes=5-1', 'bytes=99999999999-', 'bytes=-', 'bytes=a-b', 'bytes=0-0,', 'bytes=-0', 'lines=1-2'].each do |range|
          try("Range: #{range}", ranges, needs: :files) do
            fetch(options.files, "Range: #{range}\r\n")
          end
        end
      end
    end
  end
end
