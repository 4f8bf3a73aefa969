# frozen_string_literal: true

module RandomPrograms
  # Makes programs of threads and fibers that talk through pipes, sockets and queues, while some are stopped or run out of
  # time. Who is first in the kernel is nobody's to say, so what each fiber sees must not depend on it:
  #
  # * every channel has one that writes and one that reads; between threads it is a queue, for a thread that the kernel has
  #   woken but not yet run looks as if it waited, and time would jump;
  # * every duration is another power of two, so nothing happens at the same time as anything else;
  # * a fiber stops another, fails or ends right after it has slept, when all others wait, and sleeps again after a stop.
  #
  # So each fiber's own story is given, whatever the order. A time comes when everybody waits, and only then does it go on.
  class Apart
    MOST_DURATIONS = 26
    STREAMS = %i[pipe socket tcp].freeze
    QUEUES = %i[queue stock_queue].freeze

    def initialize(seed)
      @random = Random.new(seed)
      @durations = Array.new(MOST_DURATIONS) { |i| 1 << i }.shuffle(random: @random)
      @count = 0
    end

    # @return [Array] the body of the program
    def program
      @names = []
      tree = (1..1 + rand(3)).map { |i| grow("top.#{i}", 0, rand(3).zero?) }
      plan_channels
      [*tree.map { |node| [node.thread ? :thread : :spin, fill(node)] }, [:await_quietly]]
    end

    private

    # home: the thread
    Node = Struct.new(:name, :children, :thread, :home, :writes, :reads)

    def rand(limit) = @random.rand(limit)
    def pick(list) = list[rand(list.size)]

    def grow(name, depth, thread, home = thread && name)
      node = Node.new(name, [], thread, home, [], [])
      @names << node
      rand(depth < 2 ? 3 : 1).times { |i| node.children << grow("#{name}.#{i + 1}", depth + 1, false, home) }
      node
    end

    def plan_channels
      (2 + rand(5)).times do |number|
        writer, reader = @names.sample(2, random: @random)
        return unless reader

        channel = [number, pick(writer.home == reader.home ? STREAMS + QUEUES : QUEUES)]
        writer.writes << channel
        reader.reads << channel
      end
    end

    # Children first, then some talk, and nobody leaves while others are at work.
    def fill(node)
      node.children.map { |child| [:spin, fill(child)] } + talk(node, 2 + rand(4), 0) + [parting]
    end

    def parting
      return [:await_quietly] if @durations.size < 2 || rand(3).positive?

      rand(3).zero? ? [:sleep_boom, duration, rand(100)] : [:nap, duration]
    end

    def duration = @durations.pop

    def talk(node, count, depth)
      Array.new(count) { statement(node, depth) }.compact
    end

    def statement(node, depth)
      case rand(depth > 2 ? 9 : 14)
      when 0..3 then node.writes.empty? ? nil : [:write, *pick(node.writes), rand(1000)]
      when 4..6 then node.reads.empty? ? nil : [:read, *pick(node.reads)]
      when 7 then timed { |units| [:nap, units] }
      when 8 then timed { |units| timed { |rest| [:stop_after, units, pick(@names).name, rest] } }
      when 9..10 then timed { |units| [:limit, units, talk(node, 1 + rand(3), depth + 1)] }
      when 11 then [:keep, talk(node, 1 + rand(3), depth + 1)]
      when 12 then timed { |units| [:ensure, talk(node, 1 + rand(3), depth + 1), [[:nap, units]]] }
      else timed { |units| [:shield, [[:limit, units, talk(node, 1 + rand(3), depth + 1)]]] }
      end
    end

    def timed = @durations.empty? ? nil : yield(duration)
  end
end
