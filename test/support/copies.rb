# frozen_string_literal: true

module Polyphony
  # Finds lines that stand twice: runs of at least six that are the same but for blanks. Empty lines, comments, lone
  # punctuation and what every file begins with do not count.
  module Copies
    LEAST = 6
    THIN = /\A(?:[\W_]*|end\W*|else\W*|begin|ensure|private|break;|return;|require(?:_relative)? .*|module \w+|#\s*(?:include|endif|else).*)\z/.freeze

    module_function

    # @param files [Array<String>]
    # @return [Array<Array(String, Integer, String, Integer, Integer)>] file and line, the other file and line, how many lines
    def in(files)
      lines = files.to_h { |file| [file, telling(file)] }
      places = Hash.new { |hash, key| hash[key] = [] }
      lines.each { |file, all| all.each_cons(LEAST).with_index { |some, i| places[some.map(&:first)] << [file, i] } }
      pairs = places.values.select { |found| found.size > 1 }.flat_map { |found| found.combination(2).to_a }
      longest(pairs.to_h { |pair| [pair, true] }, lines)
    end

    # @return [Array<Array(String, Integer)>] text and number of each line that says something
    def telling(file)
      text = File.read(file).gsub(%r{/\*.*?\*/}m) { |comment| comment.gsub(/[^\n]/, '') }
      text.lines.filter_map.with_index(1) do |line, number|
        plain = line.sub(file.end_with?('.rb') ? /(?:\A|\s)#(?!\{).*/ : %r{//.*}, '').strip.squeeze(' ')
        [plain, number] unless plain.match?(THIN)
      end
    end

    # Windows that follow each other are one run.
    def longest(pairs, lines)
      pairs.keys.filter_map do |(one, i), (other, j)|
        next if pairs.key?([[one, i - 1], [other, j - 1]]) || (one == other && j - i < LEAST)

        size = LEAST
        size += 1 while pairs.key?([[one, i + size - LEAST + 1], [other, j + size - LEAST + 1]])
        [one, lines[one][i].last, other, lines[other][j].last, size]
      end
    end
  end
end
