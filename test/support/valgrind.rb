# frozen_string_literal: true

module Polyphony
  # Valgrind's memcheck, and which of the thousands of things it says of a Ruby are about us.
  module Valgrind
    # A step of the stack pointer that is longer is a switch of fibers: what it passes over is not forgotten.
    OPTIONS = %W[--quiet --error-limit=no --num-callers=40 --fullpath-after= --max-stackframe=32768 --smc-check=all-non-file
                 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
                 --suppressions=#{__dir__}/valgrind.supp].freeze
    # What stands above us in a stack and acts on our behalf: allocators, string functions, the libraries below us.
    BETWEEN = %r{vg_replace_|vgpreload_|\(in [^)]*/(?:libc|libm|libev|liburing|libpthread|ld-linux)[-.\w]*\)|/glibc|sysdeps|nptl|csu}.freeze
    OURS = %r{ext/polyphony(?:_http)?/}.freeze
    FRAME = /^==\d+==    (?:at|by) 0x\h+: (.*)$/.freeze

    module_function

    # @return [String, nil] why it cannot be had
    def refusal
      'not installed' unless ENV.fetch('PATH').split(':').any? { |folder| File.executable?("#{folder}/valgrind") }
    end

    # What the kernel writes through a ring is not seen: there all bytes that were read would be taken for unwritten ones.
    # @param reports [String] the beginning of the names of files
    # @return [Array<String>] before the command
    def command(reports, driver)
      ['valgrind', *OPTIONS, "--undef-value-errors=#{driver == 'io_uring' ? 'no' : 'yes'}", "--log-file=#{reports}.%p"]
    end

    # A report may have several stacks: where it happened, where the memory was had, who gave it back. One is ours if the innermost
    # frame is that is nobody else's.
    # @param log [String] that valgrind has written
    # @return [Array<String>] what is said of our own code
    def reports(log)
      log.split(/^==\d+== \n/).select { |text| text.split(/^==\d+==  (?=\w)/).any? { |stack| ours?(stack) } }
    end

    def ours?(stack)
      frame = stack.scan(FRAME).flatten.find { |line| !line.match?(BETWEEN) }
      frame&.match?(OURS)
    end
  end
end
