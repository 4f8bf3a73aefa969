# frozen_string_literal: true

require 'socket'

module Polyphony
  # A block of code in a page. What a reader brings along, and a test has to, stands in an HTML comment above it, or in several:
  #
  #   <!-- test before: CODE -->      Ruby that is run before the block
  #   <!-- test after: CODE -->       and after it
  #   <!-- test meanwhile: CODE -->   beside it, in another fiber; the block is over when that has ended
  #   <!-- test with: A => B -->      is replaced in the block: addresses, names of files
  #   <!-- test by: CODE -->          is run in place of the block, whose text is in +text+
  #   <!-- test alone -->             in a process of its own
  #   <!-- test program: OUTPUT -->   in a process of its own, as it is; what it prints has OUTPUT in it, where "…" is anything
  #   <!-- test elsewhere: FILE -->   run by that test
  #   <!-- test compiled: REASON -->  only compiled
  #
  # `<!-- test page elsewhere: FILE -->` holds for all blocks below it.
  DocBlock = Struct.new(:page, :line, :language, :code, :notes) do
    # @return [Array<Socket>] which hold ports while there are tests
    def self.held
      @held ||= []
    end

    # @param text [String]
    # @return [Array<DocBlock>]
    def self.in(text, page)
      whole = text.scan(/^<!-- test page (\w+): (.*?) -->$/).to_h
      found = []
      text.scan(/((?:^<!-- test (?!page).*?-->\n)*)^```(\w*)\n(.*?)^```$/m) do |notes, language, code|
        line = $~.pre_match.count("\n") + notes.count("\n") + 2
        notes = notes.scan(/<!-- test (\w+):?\s*(.*?)\s*-->/m).group_by(&:first).transform_values { |all| all.map(&:last).join("\n") }
        found << new(page, line, language, code, whole.merge(notes))
      end
      found
    end

    def self.compiles?(code)
      verbose, $VERBOSE = $VERBOSE, nil
      RubyVM::InstructionSequence.compile(code)
      true
    rescue SyntaxError
      false
    ensure
      $VERBOSE = verbose
    end

    def ruby?
      language == 'ruby'
    end

    # Whether it is run here, rather than by another test, or not at all.
    def here?
      (notes.keys & %w[elsewhere compiled]).empty?
    end

    def alone?
      notes.key?('alone')
    end

    def program?
      notes.key?('program')
    end

    # @return [Regexp] what it prints
    def printed
      Regexp.new(notes['program'].split('…', -1).map { |part| Regexp.escape(part) }.join('.*'), Regexp::MULTILINE)
    end

    # @return [Hash] all that a process needs to run it. Each has ports of its own.
    def to_run
      @ports = {}
      steps = notes.slice('before', 'after', 'meanwhile', 'by').transform_values { |text| replaced(text) }
      { page: page, line: line, code: checked(replaced(code)), text: replaced(code) }.merge(steps.transform_keys(&:to_sym))
    end

    # The code, with each value that has a comment handed to +check+.
    def checked(code = self.code)
      lines = code.lines(chomp: true)
      lines.each_index do |i|
        next unless (match = lines[i].match(/\A(.*?\S)\s+# => (.*)\z/))

        lines[i] = match[1]
        first = first_line(lines, i)
        lines[first] = "check(#{match[2].dump}, __LINE__) { #{lines[first]}"
        lines[i] += ' }'
      end
      lines.join("\n")
    end

    # @return [String] with what `with` says, and with free ports in place of those that are named
    def replaced(text)
      pairs = notes.fetch('with', '').lines(chomp: true).map { |line| line.split(' => ', 2) }
      pairs.inject(text) { |result, (from, to)| result.gsub(from, to) }
           .gsub(/(127\.0\.0\.1(?::|', )|localhost:)(\d{4})\b/) { "#{$1}#{port($2)}" }
    end

    private

    # One that nobody else gets: it is bound here, but nobody listens, so that a server may.
    # @param name [String] the port that the page names
    def port(name)
      (@ports ||= {})[name] ||= begin
        DocBlock.held << (socket = Socket.new(:INET, :STREAM))
        socket.setsockopt(:SOCKET, :REUSEADDR, true)
        socket.bind(Addrinfo.tcp('127.0.0.1', 0))
        socket.local_address.ip_port
      end
    end

    # Of the expression that ends in that line.
    def first_line(lines, last)
      last.downto(0).find { |first| DocBlock.compiles?(lines[first..last].join("\n")) } ||
        raise("#{page}:#{line + last}: nothing that could have a value")
    end
  end
end
