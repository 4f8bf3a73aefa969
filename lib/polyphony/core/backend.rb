# frozen_string_literal: true

module Polyphony
  # The event loop and run queue of a thread, written in C; what is here tells about it. Every
  # operation is also a function of Polyphony: +Polyphony.backend_read+ is #read on the backend of
  # the current thread, made at its first use.
  #
  # An +io+ is an IO, an object that has one in +@io+ or answers to +to_io+, a Polyphony::Pipe, or
  # the number of a descriptor. Each operation is a switchpoint: other fibers run meanwhile, also
  # when it need not wait. Exceptions scheduled on the fiber end it; a plain wake does not.
  #
  # @example
  #   reader, writer = IO.pipe
  #   spin { Polyphony.backend_write(writer, 'hello') }
  #   Polyphony.backend_read(reader, nil, 100, false, 0)  #=> "hello"
  class Backend
    # @!method self.available
    #   Asks every driver that is compiled in whether it works here, the best one first.
    #   @return [Array<Hash>] +name+, +available+ and, when it is refused, the +reason+

    # @!method initialize
    #   Opens the loop of the current thread. There is one per thread; Thread#backend has it.
    #   @raise [ThreadError] if the thread has one
    #   @raise [RuntimeError] if no driver works, or the one that was asked for does not

    # @!method kind
    #   @return [Symbol, nil] +:io_uring+ or +:libev+; nil when it has been closed

    # @!method stats
    #   The counters +op_count+, +switch_count+ and +poll_count+ begin at 0 again when they are
    #   read, and +runqueue_max_length+ at the present length.
    #   @return [Hash{Symbol => Integer}] those, and +runqueue_size+, +runqueue_length+,
    #     +pending_ops+, +pending_timers+

    # @!method trace_proc=(proc)
    #   What is called with every event of the scheduler. It is not called again while it runs. An
    #   exception in it is raised where the event happened. The fiber it is called on may be about to
    #   wait: it must not wait itself, and gets a ThreadError if it tries.
    #   @param proc [#call, nil] gets +:spin, fiber, caller+; +:schedule, fiber, value, first, caller+;
    #     +:block, fiber, caller+; +:unblock, fiber, value, caller+; +:enter_poll, fiber+;
    #     +:leave_poll, fiber+; +:terminate, fiber, result+
    #   @raise [TypeError] for what cannot be called

    # @!method trace(*event)
    #   Gives an event of your own to the trace_proc.
    #   @return [self]

    # @!method idle_gc_period=(seconds)
    #   Garbage is collected only when there is nothing to run, at most once in that time.
    #   @param seconds [Numeric] 0 goes back to Ruby's own ways
    #   @return [Numeric]

    # @!method idle_proc=(proc)
    #   What is called each time the run queue is empty, before waiting. See Thread#on_idle.
    #   @param proc [#call, nil]
    #   @raise [TypeError] for what cannot be called

    # @!method poll(blocking)
    #   Looks for events. Waiting fibers do that by themselves.
    #   @param blocking [Boolean] waits for one if no fiber is runnable
    #   @return [self]
    #   @raise [ThreadError] in another thread than its own

    # @!method break
    #   Ends a poll of its thread; may be called in any thread.
    #   @return [true, nil] nil if it was not polling

    # @!method finalize
    #   @api private
    #   Gives back descriptors and memory. Called when the thread ends; fibers that still wait in it
    #   are not resumed any more.
    #   @return [self]

    # @!method post_fork
    #   @api private
    #   Called in a forked child. See Polyphony::ProcessFork.
    #   @return [self]

    # @!group Reading and writing

    # @!method read(io, buffer, length, to_eof, pos)
    #   Reads into a buffer. What is in the buffer behind +pos+ is dropped.
    #   @param buffer [String, IO::Buffer, Integer, nil] nil: a new binary String; Integer: a raw
    #     buffer, see Polyphony.__with_raw_buffer__
    #   @param length [Integer, nil] at most so many bytes; nil: until EOF, or until an IO::Buffer
    #     or raw buffer is full
    #   @param to_eof [Boolean] goes on until +length+ or EOF instead of taking what is there
    #   @param pos [Integer] where in the buffer; -1 appends
    #   @return [String, Integer, nil] the String; how many bytes for other buffers; nil at EOF

    # @!method read_loop(io, maxlen)
    #   Reads until EOF.
    #   @yield [String] each chunk, a new String
    #   @return [io]

    # @!method feed_loop(io, receiver, method, &block)
    #   Reads until EOF and calls +receiver.method(chunk, &block)+ with each chunk.
    #   @return [io]

    # @!method write(io, *buffers)
    #   Writes all of them, in one system call if the kernel takes them.
    #   @param buffers [Array<String, IO::Buffer, Integer, #to_s>]
    #   @return [Integer] bytes written

    # @!method splice(source, target, maxlen)
    #   Moves bytes without copying them to Ruby (Linux). Neither end need be a pipe.
    #   @param maxlen [Integer] at most so many, once; negative: until EOF, in chunks of so many
    #   @return [Integer] bytes moved

    # @!method tee(source, target, maxlen)
    #   Duplicates bytes from one pipe to another (Linux). They stay in the source.
    #   @return [Integer] bytes duplicated

    # @!method double_splice(source, target)
    #   Moves everything until EOF through a private pipe (Linux).
    #   @return [Integer] bytes moved

    # @!method splice_chunks(source, target, prefix, postfix, chunk_prefix, chunk_postfix, chunk_size)
    #   Moves everything until EOF and writes something around it and around each chunk (Linux).
    #   @param prefix [String, nil]
    #   @param postfix [String, nil]
    #   @param chunk_prefix [String, #call, nil] called with the length of the chunk
    #   @param chunk_postfix [String, #call, nil] the same
    #   @param chunk_size [Integer] at most so many bytes in a chunk
    #   @return [Integer] bytes written, with what is around them

    # @!method chain(*operations)
    #   Does several operations in order; with io_uring, those that write go to the kernel together.
    #   @param operations [Array<Array>] +[:write, io, string]+, +[:send, io, string, flags]+,
    #     +[:splice, source, target, length]+
    #   @return [Integer, nil] what the last one returns; nil without any
    #   @raise [RuntimeError] for anything else, before the first is begun

    # @!method close(io)
    #   Closes it. Fibers that wait on it get an IOError.
    #   @return [nil] also when it was closed before

    # @!group Sockets

    # @!method recv(io, buffer, length, pos)
    #   As #read, with recv(2): once, at most +length+ bytes.
    #   @return [String, Integer, nil] nil at EOF

    # @!method recv_within(io, buffer, length, pos, seconds)
    #   As #recv, for some time: what a scope around it does, for less.
    #   @param seconds [Numeric, nil] nil: for ever
    #   @return [String, Integer, nil, false] nil at EOF; false when the time is over

    # @!method recv_at_once(io, buffer, length, pos)
    #   As #recv, if something is there; and it is no switchpoint.
    #   @return [String, Integer, nil, false] nil at EOF; false when nothing is there

    # @!method recv_loop(io, maxlen)
    #   As #read_loop.
    #   @yield [String]
    #   @return [io]

    # @!method recv_feed_loop(io, receiver, method, &block)
    #   As #feed_loop.
    #   @return [io]

    # @!method recvmsg(io, buffer, maxlen, pos, flags, maxcontrollen, options)
    #   Receives a message and who sent it. Control data is left out.
    #   @return [Array(Object, Array, Integer), nil] buffer or length, address as of IPSocket#addr,
    #     flags; nil at the end of a stream

    # @!method send(io, buffer, flags)
    #   Sends all of it. (Object#send is hidden by it: use +__send__+ or +public_send+.)
    #   @return [Integer] bytes sent

    # @!method send_within(io, buffer, flags, seconds)
    #   As #send, for some time; and it is a switchpoint only if it has to wait.
    #   @param seconds [Numeric, nil] nil: for ever
    #   @return [Integer, false] bytes sent; false when the time is over: then nobody knows how many

    # @!method sendv(io, buffers, flags)
    #   Sends them one after the other, as one.
    #   @param buffers [Array]
    #   @return [Integer] bytes sent

    # @!method sendmsg(io, buffer, flags, destination, controls)
    #   @param destination [String, Addrinfo, nil] a packed address
    #   @param controls [Array, nil] of +[level, type, data]+ or Socket::AncillaryData
    #   @return [Integer] bytes sent

    # @!method accept(server, socket_class)
    #   @param socket_class [Class] for instance TCPSocket; what answers to +for_fd+
    #   @return [Object] a new one of that class

    # @!method accept_loop(server, socket_class, batch = 1)
    #   Accepts for ever. Short of descriptors, it warns, pauses and goes on.
    #   @param batch [Integer] so many connections that are there already are yielded before others run; more
    #     if many others do
    #   @yield [Object] each connection, of that class. The next one is accepted when the block has
    #     returned, so it should spin.

    # @!method connect(socket, host, port)
    #   @param host [String, Addrinfo] a name or number; with a port of nil a packed address, or the
    #     path of a UNIX socket
    #   @param port [Integer, String, nil] a number or the name of a service
    #   @return [socket]

    # @!group Names

    # @!method getaddrinfo(host, service, family = 0, socktype = 0, protocol = 0, flags = 0)
    #   As getaddrinfo(3), which is called in another thread unless both are numbers. A cancel does not wait
    #   for it.
    #   @param host [String, nil]
    #   @param service [String, Integer, nil]
    #   @return [Array<Array>] packed address, family, socktype, protocol, canonical name or nil
    #   @raise [SocketError] with stock Ruby's message

    # @!method address_resolve(hostname)
    #   @return [Array<String>] its addresses as numbers, with a scope (+%eth0+) where there is one
    #   @raise [SocketError]

    # @!method getnameinfo(address, flags = 0)
    #   As getnameinfo(3), in the same way.
    #   @param address [String] a packed one
    #   @param flags [Integer] of Socket::NI_NUMERICHOST and the like
    #   @return [Array(String, String)] host and service
    #   @raise [SocketError]

    # @!group Time

    # @!method sleep(seconds)
    #   @return [Object] what the fiber was scheduled with meanwhile, normally nil

    # @!method timer_loop(seconds)
    #   Calls the block at a fixed rate, for ever. Ticks that a slow block or another fiber made it
    #   miss are left out; a wake-up that is late by less than 20 ms is made up for.
    #   @yield
    #   @return [Enumerator] without a block

    # @!method timeout(seconds, exception, move_on_value = nil)
    #   Runs the block for at most that long.
    #   @param seconds [Numeric, nil] nil: no limit
    #   @param exception [nil, Class, Array, String, Exception] what is raised; nil: nothing is,
    #     +move_on_value+ is returned instead
    #   @yield
    #   @return [Object] what the block returns, or +move_on_value+

    # @!group Waiting

    # @!method wait_io(io, write)
    #   Waits until it can be read from, or written to.
    #   @param write [Boolean]
    #   @return [io]

    # @!method select(readables, writables = nil, exceptables = nil, timeout = nil)
    #   As IO.select. What a cancelled operation has kept, bytes or a connection, counts as readable.
    #   @param readables [Array<#to_io>, nil]
    #   @param writables [Array<#to_io>, nil]
    #   @param exceptables [Array<#to_io>, nil]
    #   @param timeout [Numeric, nil] seconds
    #   @return [Array(Array, Array, Array), nil] what is ready; nil when the time is over
    #   @raise [IOError] if one is closed, also meanwhile

    # @!method wait_event(raise)
    #   Waits until the fiber is scheduled.
    #   @param raise [Boolean] whether an exception is raised or returned
    #   @return [Object] what it was scheduled with

    # @!method waitpid(pid)
    #   Waits for a child process. It is reaped only when its status is returned.
    #   @param pid [Integer] as for waitpid(2): -1 any child, 0 and below -1 any of a group
    #   @return [Array(Integer, Integer)] pid and raw status: +status >> 8+ is the exit status
    #   @raise [Errno::ECHILD] if there is no such child

    # @!group Files

    # @!method open(path, flags = File::RDONLY, mode = 0666)
    #   @return [Integer] a descriptor, which is yours to close

    # @!method stat(path_or_io)
    #   @return [Hash{Symbol => Object}] +mode nlink uid gid size blocks ino atime mtime ctime+

    # @!method fsync(io, datasync = false)
    #   @return [Integer] 0

    # @!endgroup
  end

  # @!group Backend of the current thread

  # @!method self.backend_kind
  #   @return [Symbol] +:io_uring+ or +:libev+

  # @!method self.backend_verify_blocking_mode(io, blocking)
  #   Sets or clears O_NONBLOCK. Neither driver needs it; descriptors keep the flags they have.
  #   @return [io]

  # @!method self.backend_read(io, buffer, length, to_eof, pos)
  #   Backend#read on the backend of the current thread.
  #   @see Backend#read

  # @!method self.backend_read_loop(io, maxlen)
  #   Backend#read_loop on the backend of the current thread.
  #   @see Backend#read_loop

  # @!method self.backend_feed_loop(io, receiver, method, &block)
  #   Backend#feed_loop on the backend of the current thread.
  #   @see Backend#feed_loop

  # @!method self.backend_write(io, *buffers)
  #   Backend#write on the backend of the current thread.
  #   @see Backend#write

  # @!method self.backend_recv(io, buffer, length, pos)
  #   Backend#recv on the backend of the current thread.
  #   @see Backend#recv

  # @!method self.backend_recv_within(io, buffer, length, pos, seconds)
  #   Backend#recv_within on the backend of the current thread.
  #   @see Backend#recv_within

  # @!method self.backend_recv_at_once(io, buffer, length, pos)
  #   Backend#recv_at_once on the backend of the current thread.
  #   @see Backend#recv_at_once

  # @!method self.backend_recv_loop(io, maxlen)
  #   Backend#recv_loop on the backend of the current thread.
  #   @see Backend#recv_loop

  # @!method self.backend_recv_feed_loop(io, receiver, method, &block)
  #   Backend#recv_feed_loop on the backend of the current thread.
  #   @see Backend#recv_feed_loop

  # @!method self.backend_recvmsg(io, buffer, maxlen, pos, flags, maxcontrollen, options)
  #   Backend#recvmsg on the backend of the current thread.
  #   @see Backend#recvmsg

  # @!method self.backend_send(io, buffer, flags)
  #   Backend#send on the backend of the current thread.
  #   @see Backend#send

  # @!method self.backend_send_within(io, buffer, flags, seconds)
  #   Backend#send_within on the backend of the current thread.
  #   @see Backend#send_within

  # @!method self.backend_sendv(io, buffers, flags)
  #   Backend#sendv on the backend of the current thread.
  #   @see Backend#sendv

  # @!method self.backend_sendmsg(io, buffer, flags, destination, controls)
  #   Backend#sendmsg on the backend of the current thread.
  #   @see Backend#sendmsg

  # @!method self.backend_accept(server, socket_class)
  #   Backend#accept on the backend of the current thread.
  #   @see Backend#accept

  # @!method self.backend_accept_loop(server, socket_class, batch = 1)
  #   Backend#accept_loop on the backend of the current thread.
  #   @see Backend#accept_loop

  # @!method self.backend_connect(socket, host, port)
  #   Backend#connect on the backend of the current thread.
  #   @see Backend#connect

  # @!method self.backend_getaddrinfo(host, service, family = 0, socktype = 0, protocol = 0, flags = 0)
  #   Backend#getaddrinfo on the backend of the current thread.
  #   @see Backend#getaddrinfo

  # @!method self.backend_address_resolve(hostname)
  #   Backend#address_resolve on the backend of the current thread.
  #   @see Backend#address_resolve

  # @!method self.backend_getnameinfo(address, flags = 0)
  #   Backend#getnameinfo on the backend of the current thread.
  #   @see Backend#getnameinfo

  # @!method self.backend_splice(source, target, maxlen)
  #   Backend#splice on the backend of the current thread.
  #   @see Backend#splice

  # @!method self.backend_tee(source, target, maxlen)
  #   Backend#tee on the backend of the current thread.
  #   @see Backend#tee

  # @!method self.backend_double_splice(source, target)
  #   Backend#double_splice on the backend of the current thread.
  #   @see Backend#double_splice

  # @!method self.backend_splice_chunks(source, target, prefix, postfix, chunk_prefix, chunk_postfix, chunk_size)
  #   Backend#splice_chunks on the backend of the current thread.
  #   @see Backend#splice_chunks

  # @!method self.backend_chain(*operations)
  #   Backend#chain on the backend of the current thread.
  #   @see Backend#chain

  # @!method self.backend_sleep(seconds)
  #   Backend#sleep on the backend of the current thread.
  #   @see Backend#sleep

  # @!method self.backend_timer_loop(seconds)
  #   Backend#timer_loop on the backend of the current thread.
  #   @see Backend#timer_loop

  # @!method self.backend_timeout(seconds, exception, move_on_value = nil)
  #   Backend#timeout on the backend of the current thread.
  #   @see Backend#timeout

  # @!method self.backend_wait_io(io, write)
  #   Backend#wait_io on the backend of the current thread.
  #   @see Backend#wait_io

  # @!method self.backend_select(readables, writables = nil, exceptables = nil, timeout = nil)
  #   Backend#select on the backend of the current thread.
  #   @see Backend#select

  # @!method self.backend_wait_event(raise)
  #   Backend#wait_event on the backend of the current thread.
  #   @see Backend#wait_event

  # @!method self.backend_waitpid(pid)
  #   Backend#waitpid on the backend of the current thread.
  #   @see Backend#waitpid

  # @!method self.backend_close(io)
  #   Backend#close on the backend of the current thread.
  #   @see Backend#close

  # @!method self.backend_fsync(io, datasync = false)
  #   Backend#fsync on the backend of the current thread.
  #   @see Backend#fsync

  # @!method self.backend_open(path, flags = File::RDONLY, mode = 0666)
  #   Backend#open on the backend of the current thread.
  #   @see Backend#open

  # @!method self.backend_stat(path_or_io)
  #   Backend#stat on the backend of the current thread.
  #   @see Backend#stat

  # @!endgroup

  # @!group Raw buffers

  # @!method self.__with_raw_buffer__(size)
  #   Lends memory outside of Ruby's heap to the block. Reading and writing operations take its
  #   handle for a buffer.
  #   @yield [Integer] the handle, valid within the block
  #   @return [Object] what the block returns

  # @!method self.__raw_buffer_get__(handle, length = nil)
  #   @return [String] what is in it: as much as was put there, or +length+ bytes

  # @!method self.__raw_buffer_set__(handle, string)
  #   @return [Integer] the handle

  # @!method self.__raw_buffer_size__(handle)
  #   @return [Integer] how many bytes it has room for

  # @!endgroup
end
