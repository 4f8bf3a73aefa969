# frozen_string_literal: true

module Polyphony
  module HTTP
    # The fibers that serve connections. Whoever has something to say gets one; who waits for his next request has none, and
    # costs neither a stack nor a switch. One fiber can serve all, one after the other, as long as no handler waits; as
    # soon as one does, another fiber takes over.
    #
    # A fiber on which a handler has left something (children, fiber-locals, messages) stays with its connection and ends with
    # it.
    # @!visibility private
    class Crew
      # A fiber that nobody needs for so long ends, in seconds.
      IDLE = 1
      # How many connections a fiber serves before others have their turn.
      TURN = 16
      # How long to wait for memory for a fiber, in seconds.
      PAUSE = 1
      private_constant :IDLE, :TURN, :PAUSE

      # @param server [Server] whose fiber this is
      def initialize(server)
        @server = server
        @limits = server.limits
        @lobby = Lobby.new
        @parent = Fiber.current
        @storage = RUBY_VERSION < '3.2' ? @parent.__storage : @parent.storage # as its children have it, too
        @idle = []     # WaitLists of fibers without work, the last one to have had some at the end
        @called = nil  # who was told that there is work, and has not begun
        @dismissed = false
        looking = @parent.spin(:lobby) { look_out }
      ensure
        @lobby&.close unless looking
      end

      # @param connection [Connection]
      # @param socket [BasicSocket]
      # @return [Lobby::Guest]
      def enter(connection, socket)
        guest = @lobby.enter(connection, socket.fileno)
        call_for_help
        @lobby.watch unless @called
        guest
      end

      # @return [Hash, nil] fiber storage that every fiber of the crew begins with
      attr_reader :storage

      # Nobody is called any more: all are about to be stopped.
      # @return [nil]
      def dismiss
        @dismissed = true
        nil
      end

      # @return [nil]
      def close
        @lobby.close
      end

      private

      # Fibers that are at work look for themselves.
      def look_out
        news = ::IO.for_fd(@lobby.descriptor, autoclose: false)
        loop do
          news.wait_readable(patience)
          send_home
          call_for_help if @lobby.look
        end
      end

      # Whoever begins to wait meanwhile has at least as long as the shorter of the limits.
      def patience
        return PAUSE if @lobby.ready? && !@called # there was nobody to call

        time = [@lobby.patience(@limits.header_time, @limits.keep_alive), @limits.header_time, @limits.keep_alive].compact.min
        time + 0.001 if time.finite?
      end

      # Those who have said nothing for too long.
      def send_home
        while (connection = @lobby.expired(@limits.header_time, @limits.keep_alive))
          connection.__expire
        end
      end

      # There is more to do than whoever calls this can. Once is enough: who comes calls the next.
      def call_for_help
        return if @called || @dismissed

        nil until (desk = @idle.pop).nil? || desk.wake # somebody else may have woken its fiber
        desk ? @called = desk : hire
      end

      # If there is no memory for another fiber, those who are there have to do.
      def hire
        desk = WaitList.new(self, 'a connection that has something to say')
        @parent.spin(:connection) { work(desk) }
        @called = desk
      rescue ::FiberError, ::NoMemoryError => e
        @server.log.error(e, 'a fiber for connections')
      end

      def work(desk)
        begin
          @called = nil if @called.equal?(desk)
          return unless serve_all

          @idle << desk
        end while desk.park(IDLE)
      rescue StandardError => e # of somebody who knows the fiber from a request that is over
        @server.log.error(e, 'a fiber for connections')
      ensure
        @lobby.pause
        @called = nil if @called.equal?(desk)
        @idle.delete(desk)
        if @lobby.ready?
          forget_storage
          call_for_help
        end
      end

      # Who is hired from here inherits it.
      def forget_storage
        started = @storage || {}
        { **(Fiber.current.storage || {}), **started }.each_key { |key| Fiber[key] = started[key] }
      end

      # Until nobody has anything to say.
      # @return [Boolean] whether this fiber can serve others
      def serve_all
        served = 0
        while (connection = @lobby.take(@called))
          call_for_help if !@called && @lobby.ready?
          @server.__serve(connection) || Polyphony.__as_new?(@storage) or return false

          rest if ((served += 1) % TURN).zero?
        end
        true
      end

      def rest
        @lobby.pause
        snooze
      end
    end
  end
end
