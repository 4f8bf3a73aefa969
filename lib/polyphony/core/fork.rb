# frozen_string_literal: true

module Polyphony
  # In a forked child only the forking fiber lives on, as the child's main fiber, with a fresh
  # driver. Ruby calls _fork for every fork it does.
  module ProcessFork
    # @!visibility private
    def _fork
      pid = super
      Polyphony.__after_fork__ if pid.zero?
      pid
    end

    # Ruby forks here without calling _fork.
    def daemon(...)
      super.tap { Polyphony.__after_fork__ }
    end
  end

  ::Process.singleton_class.prepend ProcessFork
end
