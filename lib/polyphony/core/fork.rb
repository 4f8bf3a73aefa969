# frozen_string_literal: true

module Polyphony
  # In a forked child only the forking fiber lives on, as the child's main fiber, with a fresh
  # driver. Ruby calls _fork for every fork it does. Decision 205.
  # @!visibility private
  module ProcessFork
    @hooks = [] # what is to be done in a child => whether in a daemon, too

    class << self
      # Has something done in each forked child, before anything of anybody else's runs there. It must not wait.
      # @param daemon [Boolean] also by Process.daemon, where the parent does not go on
      # @yield [Integer] pid of the parent
      def in_child(daemon: false, &block)
        @hooks << [block, daemon]
      end

      # Nothing is collected on the way: what belongs to the parent would say goodbye in its name.
      def fork
        parent = ::Process.pid
        disabled = ::GC.disable
        pid = ::Process.__polyphony_fork
        renew(parent) if pid.zero?
        pid
      ensure
        ::GC.enable unless disabled
      end

      # As Process.fork with a block, of which a child never comes back: what is raised there by a hook of somebody's would be raised by fork, and
      # whoever rescues it would go on in the parent's place.
      def child(&block)
        parent = ::Process.pid
        ::Process.fork(&block)
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- whatever it is
        ::Process.pid == parent ? raise : give_up(e)
      end

      # In a child.
      def renew(parent, daemon: false)
        locked = ::ObjectSpace.each_object(::Thread::Mutex).select(&:locked?)
        Polyphony.__give_up_locks__(locked) unless locked.empty?
        Polyphony.__after_fork__
        @hooks.each { |hook, also| hook.call(parent) if also || !daemon }
      rescue ::Exception => e # rubocop:disable Lint/RescueException -- see child
        give_up(e)
      end

      private

      def give_up(error)
        $stderr.write_nonblock("polyphony: a forked child ends, for it cannot begin: #{error.message} (#{error.class})\n", exception: false)
      ensure
        exit!(1)
      end
    end

    # Ruby forks here without calling _fork.
    def daemon(...)
      parent = ::Process.pid
      super.tap { ProcessFork.renew(parent, daemon: true) }
    end

    # In the place of Ruby's own, and not in front of it, as elsewhere: hooks of gems that were loaded before, as connection_pool's and Active
    # Record's, run after what they call, and they wait.
    ::Process.singleton_class.class_eval do
      stock = ::Process.method(:_fork)
      stock = stock.super_method while stock.super_method
      define_method(:__polyphony_fork, stock.unbind)
      remove_method :_fork

      def _fork
        ProcessFork.fork
      end

      prepend ProcessFork
    end
  end

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
