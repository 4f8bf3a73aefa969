# frozen_string_literal: true

module Polyphony
  # Others change Ruby's methods, too: they keep the old one under another name and define a new one, as
  # resolv-replace does, or stubs in tests. What they keep is ours then, which is prepended and goes on to whatever
  # the class has: to theirs, which calls ours again. So the class gets back what it had, and theirs goes on top.
  # @!visibility private
  module Redefinitions
    # Whose methods we have changed, and whose class methods.
    CLASSES = [::Kernel, ::Exception, ::Fiber, ::Thread, ::Process::Waiter, ::IO, ::File, ARGF.class, ::Timeout, ::Addrinfo,
               ::BasicSocket, ::IPSocket, ::TCPSocket, ::TCPServer, ::UDPSocket, ::UNIXSocket, ::UNIXServer, ::Socket,
               ::Thread::Mutex, ::Thread::ConditionVariable, ::Thread::Queue, ::Thread::SizedQueue, ::Monitor].freeze
    OBJECTS = [::Kernel, ::IO, ::Process, ::Process::Status, ::Signal, ::Thread, ::Timeout, ::Addrinfo, ::Socket,
               ::IPSocket, ::TCPSocket].freeze

    # Prepended to the singleton classes of those.
    module Hook
      # @!visibility private
      def method_added(name)
        super
        Redefinitions.defined(self, name)
      end

      # @!visibility private
      def singleton_method_added(name)
        super
        Redefinitions.defined(singleton_class, name)
      end

      private :method_added, :singleton_method_added
    end

    # A class, what it had when we came, and what others have defined since.
    class Guard
      def initialize(klass)
        @class = klass
        @stock = names.to_h { |name| [name, own(name)] }
      end

      # Somebody has defined a method of that name.
      def defined(name)
        return unless @stock.key?(name)

        theirs = own(name) or return
        give_back(name)
        ours?(theirs) ? step_down(name) : put_on_top(name, theirs)
      end

      private

      def names
        prepended.flat_map { |mod| mod.instance_methods(false) + mod.private_instance_methods(false) }
                 .uniq.reject { |name| name.start_with?('__') }
      end

      def prepended
        @class.ancestors.take_while { |mod| mod != @class }
      end

      # @return [UnboundMethod, nil] the class's own, below all that is prepended
      def own(name)
        method = @class.instance_method(name)
        method = method.super_method until method.nil? || method.owner == @class
        method
      rescue NameError
        nil
      end

      def private?(name)
        @class.private_method_defined?(name)
      end

      def give_back(name)
        hidden = private?(name)
        if @stock[name] then @class.define_method(name, @stock[name])
        else @class.__send__(:remove_method, name)
        end
        @class.__send__(:private, name) if hidden && @stock[name]
      end

      # An alias that is taken back. What is written in C is Ruby's or ours.
      def ours?(method)
        file, = method.source_location
        file.nil? || file.start_with?(POLYPHONY_DIR)
      end

      def step_down(name)
        @top.__send__(:remove_method, name) if @top&.method_defined?(name) || @top&.private_method_defined?(name)
      end

      def put_on_top(name, theirs)
        hidden = private?(name)
        @class.prepend(@top = Module.new) unless @top
        @top.define_method(name) { |*args, &block| theirs.bind_call(self, *args, &block) }
        @top.__send__(:ruby2_keywords, name)
        @top.__send__(:private, name) if hidden
      end
    end

    POLYPHONY_DIR = File.expand_path('../..', __dir__).freeze

    @guards = {}.compare_by_identity

    class << self
      def guard(klass, hooked = klass)
        @guards[klass] = Guard.new(klass)
        hooked.singleton_class.prepend(Hook) unless hooked.singleton_class.include?(Hook) # of its superclass
      end

      def defined(klass, name)
        return if @busy || !(guard = @guards[klass])

        quietly { guard.defined(name) }
      end

      private

      # Ruby warns when a method is replaced, and would ask us again.
      def quietly
        verbose = $VERBOSE
        $VERBOSE = nil
        @busy = true
        yield
      ensure
        @busy = false
        $VERBOSE = verbose
      end
    end

    CLASSES.each { |klass| guard(klass) }
    OBJECTS.each { |object| guard(object.singleton_class, object) }
  end
  private_constant :Redefinitions
end
