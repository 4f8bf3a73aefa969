# frozen_string_literal: true

module RandomPrograms
  # Makes programs whose fibers do whatever they like with each other: all words between fibers, no descriptor and no
  # thread. Then the order of everything is given.
  class Generator
    DEPTH = 4
    # How often each statement comes, beside the others.
    LEAVES = { note: 2, snooze: 4, sleep: 4, suspend: 2, await: 4, tell: 7, restart: 1, receive: 2, push: 3, shift: 3, signal: 2, wait: 2,
               boom: 1, await_children: 1, shut_down_children: 1, time: 1 }.freeze
    BLOCKS = { spin: 8, limit: 3, cancel_after: 1, shield: 2, rescue: 3, ensure: 2, lock: 2, enter: 2, several: 2, map: 1, scope: 2 }.freeze

    def initialize(seed) = @random = Random.new(seed)

    # @return [Array] the body of the program
    def program
      @left = 15 + rand(40)
      body(0, least: 3) + [[:await_children]]
    end

    private

    def rand(limit) = @random.rand(limit)
    def pick(list) = list[rand(list.size)]

    def weighted(table)
      at = rand(table.values.sum)
      table.each { |word, weight| return word if (at -= weight).negative? }
    end

    def body(depth, least: 1)
      Array.new(least + rand(4)) { statement(depth) }
    end

    def bodies(depth) = Array.new(1 + rand(3)) { body(depth + 1) }

    def statement(depth)
      @left -= 1
      leaf = depth >= DEPTH || @left.negative? || rand(5) < 3
      word = weighted(leaf ? LEAVES : BLOCKS)
      [word, *__send__(word, depth)]
    end

    # --- what follows the word

    def note(_) = [rand(100)]
    def snooze(_) = []
    def sleep(_) = [1 + rand(12)]
    def suspend(_) = []
    def await(_) = [rand(30)]
    def receive(_) = []
    def push(_) = [rand(3), rand(100)]
    def shift(_) = [rand(3)]
    def signal(_) = [rand(2), rand(100)]
    def wait(_) = [rand(2)]
    def boom(_) = [rand(100)]
    def await_children(_) = []
    def shut_down_children(_) = []
    def time(_) = []
    def restart(_) = [rand(30), rand(100)]
    def tell(_) = [rand(30), pick(%i[stop cancel raise terminate schedule schedule_first send send]), rand(100)]
    def spin(depth) = [body(depth + 1)]
    def limit(depth) = [1 + rand(12), body(depth + 1)]
    def cancel_after(depth) = [1 + rand(12), body(depth + 1)]
    def rescue(depth) = [body(depth + 1)]
    def lock(depth) = [rand(2), body(depth + 1)]
    def enter(depth) = [body(depth + 1)]
    # Nobody may wait for ever where nothing can end it.
    def shield(depth) = [[[:limit, 1 + rand(12), body(depth + 1)]]]
    def ensure(depth) = [body(depth + 1), Array.new(1 + rand(2)) { pick([[:note, 1], [:snooze], [:sleep, 1 + rand(5)], [:tell, *tell(0)]]) }]
    def several(depth) = [pick(%i[await_all select race]), bodies(depth)]
    def map(depth) = [pick([nil, 1, 2]), bodies(depth)]
    def scope(depth) = [pick([nil, nil, :stop, :cancel]), bodies(depth), body(depth + 1)]
  end
end
