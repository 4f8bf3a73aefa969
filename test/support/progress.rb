# frozen_string_literal: true

module Polyphony
  # For commands that take long: says where they are, since when, and shows a table at the end.
  module Progress
    def say(text)
      @began ||= now
      puts format("\n== [%d:%02d] %s", *(now - @began).divmod(60), text)
    end

    # @return [String] a table in Markdown
    def table_of(header, rows)
      [header, header.map { '---' }, *rows].map { |cells| "| #{cells.join(' | ')} |\n" }.join
    end

    # @return [Float]
    def now
      ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
