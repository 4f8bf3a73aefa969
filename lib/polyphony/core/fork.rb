# frozen_string_literal: true

module Polyphony
  # In a forked child only the forking fiber lives on, as the child's main fiber, with a fresh
  # driver. Ruby calls _fork for every fork it does.
  module ProcessFork
    # @!visibility private
    def _fork
      pid = super
      ProcessFork.renew if pid.zero?
      pid
    end

    # Ruby forks here without calling _fork.
    def daemon(...)
      super.tap { Polyphony.__after_fork__ }
    end

    # What is raised here would be raised by fork, in the child: whoever rescues it there would go on in the parent's place.
    # @!visibility private
    def self.renew
      Polyphony.__after_fork__
    rescue SystemCallError, NoMemoryError, RuntimeError => e
      $stderr.write_nonblock("polyphony: a forked child ends, for it cannot wait for anything: #{e.message}\n", exception: false)
      exit!(1)
    end
  end

  ::Process.singleton_class.prepend ProcessFork

  class << self
    # @!visibility private
    # In a forked child: runs the block in a fresh fiber, as the child's main one, and shuts its children down.
    def __as_main(&block)
      forked = Fiber.current
      __drop_limits__
      Fiber.new(**fresh) { become_main(block) }.resume
    ensure
      forked.setup_main_fiber # for those at_exit
    end

    private

    # Where Ruby has a storage of its own, since 3.2, a fiber inherits it unless told.
    def fresh
      stock = Fiber.instance_method(:storage).owner == Fiber
      stock ? { blocking: true, storage: nil } : { blocking: true }
    end

    def become_main(block)
      main = Fiber.current.setup_main_fiber
      block.call
    ensure
      main.shutdown_all_children
    end
  end
end
