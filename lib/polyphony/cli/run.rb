# frozen_string_literal: true

require 'rbconfig'

module Polyphony
  class CLI
    # +polyphony run+: a fresh Ruby, which understands its own options and complains in its own words. Its program is
    # lib/polyphony/cli/script.rb, which runs the script.
    # @api private
    class Run
      # What +polyphony run --help+ says.
      HELP = <<~TEXT
        usage: polyphony run [ruby's options] [script.rb | -] [arguments]

        Runs an unmodified Ruby script with Polyphony loaded, in a fiber: other fibers go on while it waits.
        Without a script, or with -, it is read from standard input. Of Ruby's own options, all are understood:

          -r LIBRARY, -I FOLDER, -e CODE, -w, -C FOLDER, -E ENCODING ...    (ruby --help)
          --                 ends the options; what follows is the script

        With -n, -p, -s, -S, -v and -x, and with options in its #! line, the script runs in the thread's first
        fiber, as with ruby -rpolyphony.
      TEXT

      # One-letter options whose value may be the next word.
      TAKES_WORD = 'eIrCXE'
      # One-letter options whose value is the rest of the word.
      TAKES_REST = 'FKWT0ix'
      # Long ones whose value may be the next word.
      LONG_WITH_WORD = %w[--enable --disable --dump --encoding --external-encoding --internal-encoding
                          --parser --crash-report].freeze
      # With these there is no script that could be run in a fiber, or none that we could read.
      LEFT_TO_RUBY = 'nphycsSxv'
      LONG_LEFT_TO_RUBY = /\A--(version|copyright|help|dump|yydebug)\b/.freeze
      # Bytes. Scripts recurse as deep as in the main fiber; it is address space, not memory.
      STACKS = { 'RUBY_FIBER_VM_STACK_SIZE' => 1 << 20, 'RUBY_FIBER_MACHINE_STACK_SIZE' => 4 << 20 }.freeze

      PROGRAM = "require 'polyphony/cli/script'"

      # @param words [Array<String>] behind +run+
      def initialize(words)
        @all = words
        @words = words.dup
        @options = []
        @code = nil
        @plain = false
        take_option(@words.shift) while option?(@words.first)
        @words.shift if @words.first == '--'
      end

      # @return [Boolean] whether they are to be told
      def help?
        @help
      end

      # @return [Array] for exec: environment and words
      def command
        return [{}, *ruby, *@all] if @plain

        [environment, *ruby, *@options, '-e', PROGRAM, '--', *@words]
      end

      private

      def option?(word)
        word&.start_with?('-') && word != '-' && word != '--'
      end

      def take_option(word)
        @help = true if %w[--help -h].include?(word)
        word.start_with?('--') ? take_long(word) : take_letters(word)
      end

      def take_long(word)
        @options << word
        @plain = true if LONG_LEFT_TO_RUBY.match?(word)
        @options << @words.shift if LONG_WITH_WORD.include?(word) && !@words.empty?
      end

      # Several may share a word: -we CODE. Code is ours to run.
      def take_letters(word)
        last = (1...word.size).find { |index| (TAKES_WORD + TAKES_REST).include?(word[index]) } || word.size
        @plain = true if word[1..last].each_char.any? { |letter| LEFT_TO_RUBY.include?(letter) }
        return take_code(word, last) if word[last] == 'e'

        @options << word
        @options << @words.shift if last == word.size - 1 && TAKES_WORD.include?(word[last]) && !@words.empty?
      end

      def take_code(word, index)
        @options << word[0...index] if index > 1
        code = word[index + 1..]
        return @plain = true if code.empty? && @words.empty? # Ruby says what is missing

        @code = "#{@code}#{code.empty? ? @words.shift : code}\n"
      end

      # What is set for Ruby's start only is taken away again by the script's side.
      def environment
        set = STACKS.reject { |name, _| ENV[name] }.transform_values(&:to_s)
        given = @all.first(@all.size - @words.size) # not the arguments: a variable cannot be that long
        plain = [*ruby, *given].map { |word| [word].pack('m0') }
        set.merge('POLYPHONY_RUN' => set.keys.join(' '), 'POLYPHONY_RUN_CODE' => @code,
                  'POLYPHONY_RUN_PLAIN' => plain.join(' '))
      end

      def ruby
        [RbConfig.ruby, *folders.map { |folder| "-I#{folder}" }, '-rpolyphony']
      end

      def folders
        gem = defined?(::Gem) && ::Gem.loaded_specs['polyphony']
        [File.expand_path('../..', __dir__), *(gem ? gem.full_require_paths : [])].uniq
      end
    end

    private_constant :Run
  end
end
