# frozen_string_literal: true

require 'io/console'
require_relative 'tree'

module Polyphony
  class CLI
    # +polyphony top+: the fibers of a running program, live. Plain Ruby that waits for keys and for the next look.
    # @api private
    class Top < Tree
      ORDERS = %w[tree time switches state name].freeze
      KEYS = 's sort  / filter  Enter backtrace  c cancel  space pause  q quit'
      ARROWS = { "\e[A" => :up, "\e[B" => :down, "\eOA" => :up, "\eOB" => :down, "\e[5~" => :page_up, "\e[6~" => :page_down,
                 "\e[H" => :first, "\e[F" => :last }.freeze
      NAMED = { 'k' => :up, 'j' => :down, 'g' => :first, 'G' => :last, 'q' => :quit, "\u0003" => :quit, "\u0004" => :quit, 's' => :sort,
                '/' => :filter, "\r" => :backtrace, "\n" => :backtrace, 'c' => :cancel, ' ' => :pause, "\e" => :back,
                "\u007f" => :back }.freeze

      # A line of the list.
      Row = Struct.new(:id, :depth, :name, :state, :waits_for, :seconds, :switches, :rate, :place, keyword_init: true)

      # @param input [IO] the keyboard
      def initialize(words, out: $stdout, err: $stderr, input: $stdin)
        super(words, out: out, err: err)
        @input = input
        @order = 'tree'
        @filter = ''
        @chosen = 0
        @top = 0
        @before = {}
        @every ||= 1.0
      end

      private

      def parser
        @parser ||= OptionParser.new do |options|
          options.banner = "usage: polyphony top PID [options]\n\n" \
                           "The fibers of a running program, live. Keys: #{KEYS}\n\n"
          options.on('--every SECONDS', Float, 'how often to look; 1 if not said') { |seconds| @every = [seconds, 0.05].max }
          options.on('--wait SECONDS', Float, 'how long to wait for the first answer; 15 if not said') { |seconds| @wait = seconds }
          options.on('--json', 'one look as JSON, without a terminal') { @as = 'tree' }
          options.on('--html', 'one look as a page for the browser') { @as = 'html' }
          options.on('-h', '--help', 'this text') { @help = true }
        end
      end

      def show(pid)
        return super unless @as == 'text'
        raise Attach::Client::Refused, 'this is no terminal: polyphony tree prints once' unless @input.tty? && @out.tty?

        @pid = pid
        @client = Attach::Client.new(pid, wait: @wait)
        in_terminal { live }
      ensure
        @client&.close
      end

      # The screen as it was comes back, whatever happens.
      def in_terminal
        @out.write("\e[?1049h\e[?25l\e[?7l") # lines with wide letters are longer than they look, and are cut by the terminal
        @input.raw { yield }
      ensure
        @out.write("\e[?7h\e[?25h\e[?1049l")
        @out.flush
      end

      def live
        look
        until @quit
          draw
          wait = [@next - now, 0].max
          if @input.wait_readable(@paused ? nil : wait) then keys(@input.read_nonblock(256))
          else look
          end
        end
      rescue EOFError
        nil # the terminal has gone
      end

      def now
        ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      end

      # --- what there is ------------------------------------------------------------------------

      # A picture of many thousand fibers takes the program a while: it has at least four fifths of its time for itself.
      def look
        began = now
        @tree = @client.ask('tree')
        @next = now + [@every, (now - began) * 4].max
        @looked, @passed = now, @looked && (now - @looked)
        @all = []
        @tree[:threads].each { |thread| rows_of(thread) }
        @before = @all.select(&:id).to_h { |row| [row.id, row.switches] }
        arrange
      end

      def rows_of(thread)
        line = thread[:thread][/\A#<(.*)>\z/m, 1] || thread[:thread]
        @all << Row.new(depth: 0, name: line, state: '', waits_for: thread[:at] && "in #{thread[:at]}", place: '')
        thread[:fibers].each { |fiber| add(fiber, 1) }
      end

      def add(fiber, depth)
        before = @before[fiber[:id]]
        rate = before && @passed&.positive? ? (fiber[:switches] - before) / @passed : nil
        held = fiber[:held_by].empty? ? '' : ", held by #{fiber[:held_by].join(', ')}"
        @all << Row.new(id: fiber[:id], depth: depth, name: fiber[:tag] || (depth == 1 ? 'main' : 'fiber'), state: fiber[:state],
                        waits_for: fiber[:waits_for] && "#{fiber[:waits_for]}#{held}", seconds: fiber[:seconds], switches: fiber[:switches],
                        rate: rate, place: fiber[:spun_at])
        fiber[:children].each { |child| add(child, depth + 1) }
      end

      # The chosen one stays chosen, wherever it goes.
      def arrange
        id = @rows && @rows[@chosen]&.id
        @rows = @filter.empty? ? @all : @all.select { |row| matches?(row) }
        sort unless @order == 'tree'
        @chosen = (id && @rows.index { |row| row.id == id }) || @chosen.clamp(0, [@rows.size - 1, 0].max)
      end

      def matches?(row)
        row.id && [row.id, row.name, row.state, row.waits_for, row.place].join(' ').downcase.include?(@filter.downcase)
      end

      def sort
        @rows = @rows.select(&:id)
        @rows = case @order
                when 'time' then @rows.sort_by { |row| -(row.seconds || 0) }
                when 'switches' then @rows.sort_by { |row| [-(row.rate || 0), -row.switches] }
                when 'state' then @rows.sort_by { |row| [%w[running runnable waiting].index(row.state) || 3, row.id] }
                else @rows.sort_by { |row| [row.name, row.id] }
                end
      end

      # --- the screen ---------------------------------------------------------------------------

      def draw
        @height, @width = @out.winsize
        @height, @width = 24, 80 if @height.zero?
        lines = @backtrace ? page : list
        shown = Array.new(@height) { |index| "#{lines[index]}\e[K" }
        @out.write("\e[H#{shown.join("\r\n")}\e[0m")
        @out.flush
      end

      def list
        room = [@height - 3, 1].max
        @top = @top.clamp([@chosen - room + 1, 0].max, [@chosen, 0].max)
        body = (@rows[@top, room] || []).each_with_index.map { |row, index| line(row, @top + index == @chosen) }
        body << nil while body.size < room
        [summary, paint(cut(format('%6s  %-9s %8s %9s %9s  %s', 'ID', 'STATE', 'SECONDS', 'SWITCHES', 'PER S', 'FIBER')), 7), *body, footer]
      end

      def summary
        states = @all.select(&:id).group_by(&:state).transform_values(&:size)
        counts = %w[running runnable waiting].map { |state| "#{states.fetch(state, 0)} #{state}" }
        cut("#{printable(@tree[:program])} (#{@pid}): #{count(states.values.sum, 'fiber')}, #{counts.join(', ')} · #{count(@tree[:threads].size, 'thread')}" \
            "#{' · paused' if @paused} · sorted by #{@order}#{" · filter: #{printable(@filter)}" unless @filter.empty?}")
      end

      def count(number, word)
        "#{number} #{word}#{'s' unless number == 1}"
      end

      def line(row, chosen)
        text = row.id ? fiber_line(row) : "#{row.name} #{row.waits_for}"
        text = cut(printable(text))
        return paint(text.ljust(@width), 7) if chosen
        return paint(text, 1) unless row.id

        { 'running' => paint(text, 32), 'runnable' => paint(text, 33) }.fetch(row.state, text)
      end

      def fiber_line(row)
        name = "#{'  ' * (row.depth - 1) if @order == 'tree'}#{row.name}"
        format('%6d  %-9s %8s %9d %9s  %s%s%s', row.id, row.state, row.seconds && format('%.1f', row.seconds), row.switches,
               row.rate && format('%.1f', row.rate), name, row.waits_for && ": #{row.waits_for}", row.place && " · #{row.place}")
      end

      def footer
        return paint(cut("filter: #{printable(@typing)}_  (Enter: done, Esc: none)"), 7) if @typing
        return paint(cut("cancel #{printable(@asked.name)} (#{@asked.id})? y/n"), 31) if @asked

        cut(@message ? printable(@message) : KEYS)
      end

      def page
        room = [@height - 2, 1].max
        @scroll = @scroll.clamp(0, [@backtrace.size - room, 0].max)
        body = @backtrace[@scroll, room].map { |text| cut(printable(text)) }
        body << nil while body.size < room
        [paint(cut(printable(@title)), 7), *body, cut('Esc or Enter: back  j k: scroll  q: quit')]
      end

      def paint(text, code)
        "\e[#{code}m#{text}\e[0m"
      end

      def cut(text)
        text.size > @width ? "#{text[0, @width - 1]}…" : text
      end

      # --- the keyboard -------------------------------------------------------------------------

      def keys(text)
        text.force_encoding(Encoding::UTF_8).scrub('').scan(/\e\[\d*[A-Za-z~]|\eO[A-Z]|./m) do |key|
          @message = nil
          if @typing then type(key)
          elsif @asked then confirm(key)
          else press(ARROWS[key] || NAMED[key])
          end
        end
      end

      def type(key)
        case key
        when "\r", "\n" then @typing = nil
        when "\e", "\u0003" then @typing = nil; @filter = ''
        when "\u007f", "\b" then @filter = @typing = @typing[0...-1]
        else @filter = @typing += key unless key.start_with?("\e")
        end
        arrange
      end

      def confirm(key)
        row, @asked = @asked, nil
        return @message = 'not cancelled' unless %w[y Y].include?(key)

        answer = @client.ask('cancel', row.id)
        @message = answer[:cancelled] ? "#{row.name} (#{row.id}) has been told to end" : "#{row.name} (#{row.id}) had ended"
      rescue Attach::Client::Refused => e
        @message = e.message
      end

      def press(word)
        return @quit = true if word == :quit
        return read_on(word) if @backtrace

        case word
        when :up then move(-1)
        when :down then move(1)
        when :page_up then move(3 - @height)
        when :page_down then move(@height - 3)
        when :first then move(-@rows.size)
        when :last then move(@rows.size)
        when :sort then @order = ORDERS[(ORDERS.index(@order) + 1) % ORDERS.size]; arrange
        when :pause then @paused = !@paused
        when :filter then @filter = @typing = +''; arrange
        when :back then @filter = ''; arrange
        when :cancel then @asked = chosen
        when :backtrace then open_backtrace
        end
      end

      def move(count)
        @chosen = (@chosen + count).clamp(0, [@rows.size - 1, 0].max)
      end

      def chosen
        row = @rows[@chosen]
        return row if row&.id

        @message = 'choose a fiber first'
        nil
      end

      def open_backtrace
        row = chosen or return
        answer = @client.ask('backtrace', row.id)
        @title = answer[:fiber]
        @backtrace = answer[:backtrace]
        @scroll = 0
      rescue Attach::Client::Refused => e
        @message = e.message
      end

      def read_on(word)
        case word
        when :up then @scroll -= 1
        when :down then @scroll += 1
        when :page_up then @scroll -= @height - 3
        when :page_down then @scroll += @height - 3
        when :back, :backtrace then @backtrace = nil
        end
      end
    end

    private_constant :Top
  end
end
