# frozen_string_literal: true

module Polyphony
  # A library may put a method in the place of a stock one after we were loaded, and call what was there before
  # by another name, as resolv-replace does. Ours stands before both: without more, either theirs would never
  # be called, or each would call the other for ever. So theirs is called first, the other name means ours, and
  # beneath ours is the stock method again.
  # @!visibility private
  module Patches
    # A class, module or singleton class whose methods we precede.
    class Place
      def initialize(place, modules)
        @place = place
        @patches = {} # name => methods of others, the first of which is called
        @stock = names_in(modules).to_h { |name| [name, beneath(name)] }
        @front = Module.new # before ours, for theirs
        place.prepend @front
      end

      # A method was defined, perhaps as another name for one that is there.
      def added(name)
        quietly { @stock.key?(name) ? change_places(name) : keep(name) } unless @busy
      end

      private

      # Ruby would tell us of what we define, and warns where a method is replaced.
      def quietly
        verbose = $VERBOSE
        $VERBOSE = nil
        @busy = true
        yield
      ensure
        @busy = false
        $VERBOSE = verbose
      end

      def names_in(modules)
        modules.flat_map { |one| one.instance_methods(false) + one.private_instance_methods(false) }.uniq
      end

      # @return [UnboundMethod, nil] what the place itself has by that name
      def beneath(name)
        return unless @place.method_defined?(name) || @place.private_method_defined?(name)

        method = @place.instance_method(name)
        method = method.super_method until method.nil? || method.owner.equal?(@place)
        method
      end

      def change_places(name)
        theirs = beneath(name)
        @stock[name] ? @place.define_method(name, @stock[name]) : @place.remove_method(name)
        patches = (@patches[name] ||= [])
        theirs.nil? || ours?(theirs) ? patches.shift : patches.unshift(theirs)
        patches.empty? ? withdraw(name) : forward(@front, name, patches.first)
      end

      # The other name has become the first one again.
      def ours?(method)
        file, = method.source_location
        file.nil? || file.start_with?(__dir__)
      end

      def withdraw(name)
        @front.remove_method(name) if @front.method_defined?(name, false) || @front.private_method_defined?(name, false)
      end

      # In a module, though not in a class, super of a method by another name looks above the module.
      def keep(name)
        return unless @place.instance_of?(Module)

        original = @place.instance_method(name).original_name
        forward(@place, name, @place.instance_method(original)) if original != name && @stock.key?(original)
      end

      # Visible where the stock one is.
      def forward(target, name, method)
        visibility = @place.private_method_defined?(name) ? :private : :public
        target.define_method(name) { |*args, **options, &block| method.bind_call(self, *args, **options, &block) }
        target.__send__(visibility, name)
      end
    end

    # Ruby tells of new methods.
    module News
      private

      def method_added(name)
        Patches.added(self, name)
        super
      end

      def singleton_method_added(name)
        Patches.added(singleton_class, name)
        super
      end
    end

    @places = {}.compare_by_identity

    class << self
      # @param owners [Array<Module>] whose methods, or those of whose singleton classes, we precede
      def expect(*owners)
        owners.each do |owner|
          [owner, owner.singleton_class].each { |place| watch(place) }
          owner.singleton_class.prepend News unless owner.singleton_class < News # inherited
        end
      end

      def added(place, name)
        @places[place]&.added(name) if Thread.__polyphony_main_ractor?
      end

      private

      def watch(place)
        modules = place.ancestors.take_while { |one| !one.equal?(place) }
        @places[place] = Place.new(place, modules) unless modules.empty?
      end
    end

    expect ::Kernel, ::IO, ::File, ARGF.class, ::Process, ::Process::Status, ::Signal, ::Exception, ::Fiber,
           ::Thread, ::Process::Waiter, ::Mutex, ::ConditionVariable, ::Queue, ::SizedQueue, ::Monitor, ::Timeout,
           ::BasicSocket, ::IPSocket, ::TCPSocket, ::TCPServer, ::UDPSocket, ::UNIXSocket, ::UNIXServer, ::Socket,
           ::Addrinfo
  end
  private_constant :Patches
end
