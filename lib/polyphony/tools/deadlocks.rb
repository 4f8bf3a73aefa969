# frozen_string_literal: true

require 'polyphony/tools/watcher'
require 'polyphony/tools/cycle'

module Polyphony
  # Looks for fibers that wait for each other while the rest of the program goes on.
  # @api private
  class Deadlocks < Watcher
    def initialize(limit, &block)
      StockLocks.noting = true
      super
    end

    def stop
      StockLocks.noting = false
      super
    end

    private

    def thread_name
      'deadlocks'
    end

    def word
      'report_deadlocks'
    end

    # Each is told once, as long as it lasts: fibers that wait again for each other are another one.
    def look
      now = Clock.now
      found = WaitCycles.find(::Fiber.__all.select { |fiber| waited(fiber, now) >= @limit })
      places = found.to_h { |fibers| [place(fibers), fibers] }
      @known.select! { |place, _| places.key?(place) }
      places.each do |place, fibers|
        next if @known.key?(place)

        @known[place] = true
        tell(Cycle.new(fibers, fibers.map { |fiber| waited(fiber, now) }.min, behind(fibers)))
      end
    end

    def begin_anew
      @known = {}
    end

    def place(fibers)
      fibers.map { |fiber| [fiber.__timeline.first, fiber.__wait.last] }.sort_by(&:first)
    end

    def waited(fiber, now)
      _, subject, since = fiber.__wait
      subject && since && fiber.state == :waiting ? now - since : 0
    end

    # Who waits for one of them, or for one that does.
    def behind(fibers)
      held = {}.compare_by_identity
      fibers.each { |fiber| held[fiber] = true }
      others = ::Fiber.__all.reject { |fiber| held.key?(fiber) }.to_h { |fiber| [fiber, WaitCycles.targets(fiber)] }
      loop do
        more = others.select { |fiber, targets| !held.key?(fiber) && targets.any? { |target| held.key?(target) } }.keys
        return held.keys - fibers if more.empty?

        more.each { |fiber| held[fiber] = true }
      end
    end
  end

  private_constant :Deadlocks
end
