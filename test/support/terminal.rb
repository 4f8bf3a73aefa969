# frozen_string_literal: true

require 'pty'
require 'io/console'
require 'timeout'

# A program at a terminal, as its user sees it. The terminal answers what line editors ask it.
class Terminal
  # What it says without being asked: where the cursor is.
  ANSWERS = { "\e[6n" => "\e[1;1R" }.freeze
  ESCAPES = /\e\[[0-9;?]*[a-zA-Z]|\e[=>]|\r/.freeze

  # @yield [terminal] the program is ended afterwards
  def self.run(env, *command, limit: 30)
    terminal = new(env, command, limit)
    yield terminal
  ensure
    terminal&.hang_up
  end

  def initialize(env, command, limit)
    @limit = limit
    @seen = +''
    @screen, @keyboard, @pid = PTY.spawn(env, *command)
    @screen.winsize = [40, 200]
  end

  # Waits until the pattern is there, and forgets what came before its end.
  # @return [MatchData]
  def expect(pattern)
    Timeout.timeout(@limit) { read until (match = pattern.match(@seen)) || @over; match }
    match = pattern.match(@seen) or raise "#{pattern.inspect} did not come, but:\n#{@seen}"
    @seen = match.post_match
    match
  rescue Timeout::Error
    raise "#{pattern.inspect} did not come within #{@limit} s, but:\n#{@seen}"
  end

  def type(text)
    @keyboard.write(text)
    @keyboard.flush
  end

  # Waits for its end.
  # @return [Process::Status]
  def status
    Timeout.timeout(@limit) { read until @over }
    @status ||= Process.wait2(@pid)[1]
  end

  def hang_up
    return if @status

    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  ensure
    [@screen, @keyboard].each { |io| io.close unless io.closed? }
  end

  private

  def read
    text = @screen.readpartial(4096).force_encoding('UTF-8').scrub('?')
    ANSWERS.each { |question, answer| type(answer) if text.include?(question) }
    @seen << text.gsub(ESCAPES, '')
  rescue Errno::EIO, EOFError
    @over = true
  end
end
