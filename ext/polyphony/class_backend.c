/* class_backend.c - Polyphony::Backend, and Polyphony.backend_X for each of its operations on the
 * backend of the current thread. Layer 2: arguments only. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include "cancel_scope.h"
#include "driver.h"
#include "errors.h"
#include "fork_locks.h"
#include "io.h"
#include "io_resolve.h"
#include "offload.h"
#include "stall.h"
#include "timeline.h"

static VALUE cBackend = Qnil;

/* ---- the object ----------------------------------------------------------------------------- */

/* Two in one thread would each believe that its fibers are theirs. */
static VALUE Backend_initialize(VALUE self) {
  VALUE thread = rb_thread_current();
  struct backend_base *present = backend_base_of_thread(thread);

  if (present && present->open)
    rb_raise(rb_eThreadError, "this thread has a backend already: Thread.current.backend");
  backend_base_open(backend_base_of(self));
  rb_ivar_set(thread, id_backend, self);
  return self;
}

static struct backend_base *own(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  if (backend->open && backend->thread != rb_thread_current())
    rb_raise(rb_eThreadError, "this backend belongs to %"PRIsVALUE, rb_inspect(backend->thread));
  return backend;
}

static struct backend_base *own_open(VALUE self) {
  struct backend_base *backend = own(self);

  if (!backend->open) rb_raise(rb_eIOError, "this backend is closed");
  return backend;
}

static VALUE Backend_finalize(VALUE self) {
  struct backend_base *backend = own(self);

  if (backend->open && backend_base_fiber(backend) != backend->root)
    rb_raise(eFiberError, "only the main fiber of a thread can close its backend");
  backend_base_finalize(backend);
  return self;
}

static VALUE Backend_post_fork(VALUE self) {
  backend_base_after_fork(own_open(self));
  return self;
}

static VALUE kind_symbol(const struct driver *driver) { return ID2SYM(rb_intern(driver->name)); }

static VALUE Backend_kind(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  return backend->open ? kind_symbol(backend->loop.driver) : Qnil;
}

static VALUE Backend_poll(VALUE self, VALUE blocking) {
  backend_base_poll(own_open(self), RTEST(blocking));
  return self;
}

static VALUE Backend_break(VALUE self) {
  return backend_base_wake(backend_base_of(self)) ? Qtrue : Qnil;
}

static VALUE Backend_stats(VALUE self) { return backend_base_stats(backend_base_of(self)); }

/* Changes with every switch; nil while it waits for events. Any thread. */
static VALUE Backend_turn(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  return backend->polling ? Qnil : ULL2NUM(backend->switch_count);
}

/* Of the turn that is under way, if turns are watched: when it began, how many seconds ago, and whose it is. Any thread. */
static VALUE Backend_turn_under_way(VALUE self) {
  struct backend_base *backend = backend_base_of(self);
  int64_t began = stall_turn(backend);

  if (!began) return Qnil;
  return rb_ary_new_from_args(3, LL2NUM(began), DBL2NUM((double)(clock_monotonic() - began) / NSEC_PER_SEC),
                              backend->current->fiber);
}

/* From now on turns that last so many nanoseconds are written down; none for 0. The present one begins here. */
static VALUE Polyphony_set_stall_limit(VALUE module, VALUE limit) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  (void)module;

  stall_set_limit(NUM2LL(limit));
  if (backend) stall_turn_begins(backend);
  return limit;
}

static VALUE Polyphony_take_stalls(VALUE module) { (void)module; return stall_take(); }

static VALUE Polyphony_stall_figures(VALUE module) { (void)module; return stall_figures(); }

/* Those that wait for the fiber that runs to give way. Any thread. */
static VALUE Backend_held_up(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  return stall_held_up(backend, backend->current);
}

/* [switches, polls, operations] since the backend was opened. Any thread. */
static VALUE Backend_totals(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  return rb_ary_new_from_args(3, ULL2NUM(backend->switch_total + backend->switch_count),
                              ULL2NUM(backend->poll_total + backend->poll_count), ULL2NUM(backend->op_total + backend->op_count));
}

/* [operations, timers, runnable fibers] that are pending now. Any thread. */
static VALUE Backend_pending(VALUE self) {
  struct backend_base *backend = backend_base_of(self);

  return rb_ary_new_from_args(3, UINT2NUM(backend->open ? backend->loop.in_flight : 0),
                              UINT2NUM(backend->open ? backend->loop.timers.length : 0), UINT2NUM(backend->runqueue.length));
}

static VALUE Polyphony_timeline_start(VALUE module, VALUE capacity) {
  (void)module;
  timeline_start(NUM2UINT(capacity));
  return Qnil;
}

static VALUE Polyphony_timeline_stop(VALUE module) { (void)module; return timeline_stop(); }

static VALUE Polyphony_timeline_after_fork(VALUE module) {
  (void)module;
  timeline_after_fork();
  return Qnil;
}

static VALUE Backend_timeline_id(VALUE self) { return UINT2NUM(timeline_thread_id(backend_base_of(self))); }

static VALUE Backend_trace(int argc, VALUE *argv, VALUE self) {
  backend_base_trace(backend_base_of(self), argc, argv);
  return self;
}

/* Told now, not at some switch later. */
static void check_callable(VALUE proc) {
  if (!NIL_P(proc) && !rb_respond_to(proc, id_call))
    rb_raise(rb_eTypeError, "expected something to call, or nil, got %"PRIsVALUE, rb_inspect(proc));
}

static VALUE Backend_set_trace_proc(VALUE self, VALUE proc) {
  struct backend_base *backend = backend_base_of(self);

  check_callable(proc);
  RB_OBJ_WRITE(self, &backend->trace_proc, proc);
  backend->traced = !NIL_P(proc);
  return proc;
}

static VALUE Backend_set_idle_proc(VALUE self, VALUE proc) {
  struct backend_base *backend = backend_base_of(self);

  check_callable(proc);
  RB_OBJ_WRITE(self, &backend->idle_proc, proc);
  return proc;
}

static VALUE Backend_set_idle_gc_period(VALUE self, VALUE seconds) {
  backend_base_set_idle_gc(own_open(self), io_nanoseconds(seconds));
  return seconds;
}

static VALUE describe_driver(const struct driver *driver) {
  char why[512] = "";
  bool works = driver->probe(why, sizeof(why)) == 0;
  VALUE hash = rb_hash_new();

  rb_hash_aset(hash, ID2SYM(rb_intern("name")), kind_symbol(driver));
  rb_hash_aset(hash, ID2SYM(rb_intern("available")), works ? Qtrue : Qfalse);
  rb_hash_aset(hash, ID2SYM(rb_intern("reason")), works ? Qnil : rb_str_new_cstr(why));
  return hash;
}

/* Every driver compiled in, best first: [{ name:, available:, reason: }]. */
static VALUE Backend_s_available(VALUE klass) {
  VALUE list = rb_ary_new();

  (void)klass;
  for (const struct driver *const *driver = driver_table; *driver; driver++)
    rb_ary_push(list, describe_driver(*driver));
  return list;
}

static void note_line(void *list, const char *group, const char *name, bool there) {
  rb_ary_push((VALUE)list, rb_ary_new_from_args(3, rb_str_new_cstr(group), rb_str_new_cstr(name), there ? Qtrue : Qfalse));
}

/* [[group, name, whether it is there]] of what a driver uses of the kernel. */
static VALUE Backend_s_describe(VALUE klass, VALUE name) {
  const struct driver *driver = driver_find(StringValueCStr(name));
  VALUE list = rb_ary_new();

  (void)klass;
  if (driver && driver->describe) driver->describe(note_line, (void *)list);
  RB_GC_GUARD(list);
  return list;
}

/* ---- operations: they work on the current thread's backend, whose method they are ------------ */

static VALUE Op_read(VALUE self, VALUE io, VALUE buffer, VALUE length, VALUE to_eof, VALUE pos) {
  (void)self;
  return io_read(io, buffer, length, RTEST(to_eof), NUM2LONG(pos), false);
}

static VALUE Op_recv(VALUE self, VALUE io, VALUE buffer, VALUE length, VALUE pos) {
  (void)self;
  return io_read(io, buffer, length, false, NUM2LONG(pos), true);
}

static VALUE Op_recv_within(VALUE self, VALUE io, VALUE buffer, VALUE length, VALUE pos, VALUE seconds) {
  (void)self;
  return io_recv_within(io, buffer, length, NUM2LONG(pos), io_period(seconds));
}

static VALUE Op_recv_at_once(VALUE self, VALUE io, VALUE buffer, VALUE length, VALUE pos) {
  (void)self;
  return io_recv_at_once(io, buffer, length, NUM2LONG(pos));
}

static VALUE need_block(VALUE (*loop)(VALUE, size_t, bool), VALUE io, VALUE maxlen, bool socket) {
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "a block is needed for what is read");
  long length = NUM2LONG(maxlen);
  if (length < 1) rb_raise(rb_eArgError, "maxlen must be positive, got %ld", length);
  return loop(io, (size_t)length, socket);
}

static VALUE Op_read_loop(VALUE self, VALUE io, VALUE maxlen) {
  (void)self;
  return need_block(io_read_loop, io, maxlen, false);
}

static VALUE Op_recv_loop(VALUE self, VALUE io, VALUE maxlen) {
  (void)self;
  return need_block(io_read_loop, io, maxlen, true);
}

static VALUE Op_feed_loop(VALUE self, VALUE io, VALUE receiver, VALUE method) {
  (void)self;
  return io_feed_loop(io, receiver, rb_to_id(method), false);
}

static VALUE Op_recv_feed_loop(VALUE self, VALUE io, VALUE receiver, VALUE method) {
  (void)self;
  return io_feed_loop(io, receiver, rb_to_id(method), true);
}

static VALUE Op_write(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
  return io_write(argv[0], argc - 1, argv + 1);
}

static VALUE Op_send(VALUE self, VALUE io, VALUE buffer, VALUE flags) {
  (void)self;
  return io_send(io, buffer, NUM2INT(flags));
}

static VALUE Op_send_within(VALUE self, VALUE io, VALUE buffer, VALUE flags, VALUE seconds) {
  (void)self;
  return io_send_within(io, buffer, NUM2INT(flags), io_period(seconds));
}

static VALUE Op_sendv(VALUE self, VALUE io, VALUE buffers, VALUE flags) {
  (void)self;
  return io_sendv(io, buffers, NUM2INT(flags));
}

static VALUE Op_sendmsg(VALUE self, VALUE io, VALUE buffer, VALUE flags, VALUE address,
                        VALUE controls) {
  (void)self;
  return io_sendmsg(io, buffer, NUM2INT(flags), address, controls);
}

static size_t not_negative(VALUE number) {
  long length = NUM2LONG(number);

  if (length < 0) rb_raise(rb_eArgError, "negative length %ld given", length);
  return (size_t)length;
}

static VALUE Op_recvmsg(VALUE self, VALUE io, VALUE buffer, VALUE maxlen, VALUE pos, VALUE flags,
                        VALUE maxcontrol, VALUE options) {
  (void)self;
  return io_recvmsg(io, buffer, not_negative(maxlen), NUM2LONG(pos), NUM2INT(flags),
                    NIL_P(maxcontrol) ? 0 : not_negative(maxcontrol), options);
}

/* Before a connection is accepted for nothing. */
static VALUE socket_class(VALUE klass) {
  if (!rb_respond_to(klass, id_for_fd))
    rb_raise(rb_eTypeError, "expected a class of sockets, as TCPSocket, got %"PRIsVALUE,
             rb_inspect(klass));
  return klass;
}

static VALUE Op_accept(VALUE self, VALUE server, VALUE klass) {
  (void)self;
  return io_accept(server, socket_class(klass));
}

static VALUE Op_accept_loop(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 2, 3);
  long batch = argc > 2 ? NUM2LONG(argv[2]) : 1;

  if (!rb_block_given_p()) rb_raise(rb_eArgError, "a block is needed for new connections");
  if (batch < 1 || batch > 1024) rb_raise(rb_eArgError, "batch must be between 1 and 1024, got %ld", batch);
  return io_accept_loop(argv[0], socket_class(argv[1]), (unsigned)batch);
}

static VALUE Op_connect(VALUE self, VALUE socket, VALUE host, VALUE port) {
  (void)self;
  return io_connect(socket, host, port);
}

static int integer(VALUE value) { return NIL_P(value) ? 0 : NUM2INT(value); }

static VALUE Op_getaddrinfo(int argc, VALUE *argv, VALUE self) {
  VALUE host, service, family, socktype, protocol, flags;

  (void)self;
  rb_scan_args(argc, argv, "24", &host, &service, &family, &socktype, &protocol, &flags);
  return io_getaddrinfo(host, service, integer(family), integer(socktype), integer(protocol),
                        integer(flags));
}

static VALUE Op_getnameinfo(int argc, VALUE *argv, VALUE self) {
  VALUE address, flags;

  (void)self;
  rb_scan_args(argc, argv, "11", &address, &flags);
  return io_getnameinfo(address, integer(flags));
}

static VALUE Op_address_resolve(VALUE self, VALUE hostname) {
  (void)self;
  return io_address_resolve(hostname);
}

static VALUE Op_splice(VALUE self, VALUE source, VALUE target, VALUE maxlen) {
  (void)self;
  return io_splice(source, target, NUM2LONG(maxlen));
}

static VALUE Op_tee(VALUE self, VALUE source, VALUE target, VALUE maxlen) {
  (void)self;
  return io_tee(source, target, NUM2LONG(maxlen));
}

static VALUE Op_double_splice(VALUE self, VALUE source, VALUE target) {
  (void)self;
  return io_double_splice(source, target);
}

static VALUE Op_splice_chunks(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 7, 7);
  return io_splice_chunks(argv[0], argv[1], argv + 2, NUM2LONG(argv[6]));
}

static VALUE Op_chain(int argc, VALUE *argv, VALUE self) {
  (void)self;
  return io_chain(argc, argv);
}

static VALUE Op_sleep(VALUE self, VALUE seconds) {
  int64_t duration = io_nanoseconds(seconds);

  (void)self;
  if (duration < 0) rb_raise(rb_eArgError, "time interval must not be negative");
  return io_sleep(duration);
}

static VALUE Op_timer_loop(VALUE self, VALUE seconds) {
  (void)self;
  RETURN_ENUMERATOR(self, 1, &seconds);
  int64_t period = io_nanoseconds(seconds);
  if (period < 0)
    rb_raise(rb_eArgError, "an interval cannot be negative, got %"PRIsVALUE, seconds);
  return io_timer_loop(period);
}

static VALUE Op_timeout(int argc, VALUE *argv, VALUE self) {
  VALUE seconds, exception, value;

  (void)self;
  rb_scan_args(argc, argv, "21", &seconds, &exception, &value);
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "timeout needs a block to run");
  int64_t period = io_period(seconds);
  error_check(exception);
  return cancel_scope_run(period, NIL_P(exception) ? Qundef : exception, value, cancel_scope_yield,
                          Qnil);
}

static VALUE Op_wait_io(VALUE self, VALUE io, VALUE write) {
  enum fd_direction direction = RTEST(write) ? FD_WRITE : FD_READ;
  struct backend_base *backend = backend_base_current();
  int fd = fd_of(io, direction);

  (void)self;
  if (direction == FD_READ && io_ready_at_once_p(fd)) io_snooze(backend);
  else io_wait_ready(backend, fd, direction == FD_WRITE ? POLLOUT : POLLIN, io);
  return io;
}

static VALUE Op_select(int argc, VALUE *argv, VALUE self) {
  VALUE readables, writables, exceptables, timeout;

  (void)self;
  rb_scan_args(argc, argv, "13", &readables, &writables, &exceptables, &timeout);
  return io_select(readables, writables, exceptables, io_interval(timeout));
}

static VALUE Op_wait_event(VALUE self, VALUE raise) {
  struct backend_base *backend = backend_base_current();
  VALUE value = backend_base_switch_fiber(backend, SWITCH_MUST_WAIT);

  (void)self;
  return RTEST(raise) && backend->how == RESUME_RAISE ? error_invoke(value) : value;
}

static VALUE Op_waitpid(VALUE self, VALUE pid) {
  (void)self;
  return io_waitpid(NUM2INT(pid));
}

static VALUE Op_close(VALUE self, VALUE io) {
  (void)self;
  return io_close(io);
}

static VALUE Op_fsync(int argc, VALUE *argv, VALUE self) {
  VALUE io, datasync;

  (void)self;
  rb_scan_args(argc, argv, "11", &io, &datasync);
  return io_fsync(io, RTEST(datasync));
}

static VALUE Op_open(int argc, VALUE *argv, VALUE self) {
  VALUE path, flags, mode;

  (void)self;
  rb_scan_args(argc, argv, "12", &path, &flags, &mode);
  return io_open(path, NIL_P(flags) ? O_RDONLY : NUM2INT(flags), NIL_P(mode) ? 0666 : NUM2INT(mode));
}

static VALUE Op_stat(VALUE self, VALUE path_or_io) {
  (void)self;
  return io_stat(path_or_io);
}

static const struct operation {
  const char *name;
  VALUE (*function)(ANYARGS);
  int arity;
} operations[] = {
#define OPERATION(name, arity) { #name, RUBY_METHOD_FUNC(Op_##name), arity },
  OPERATION(read, 5) OPERATION(read_loop, 2) OPERATION(feed_loop, 3)
  OPERATION(write, -1)
  OPERATION(recv, 4) OPERATION(recv_loop, 2) OPERATION(recv_feed_loop, 3) OPERATION(recvmsg, 7)
  OPERATION(recv_within, 5) OPERATION(recv_at_once, 4) OPERATION(send_within, 4)
  OPERATION(send, 3) OPERATION(sendv, 3) OPERATION(sendmsg, 5)
  OPERATION(accept, 2) OPERATION(accept_loop, -1) OPERATION(connect, 3)
  OPERATION(getaddrinfo, -1) OPERATION(getnameinfo, -1) OPERATION(address_resolve, 1)
  OPERATION(splice, 3) OPERATION(tee, 3) OPERATION(double_splice, 2)
  OPERATION(splice_chunks, -1) OPERATION(chain, -1)
  OPERATION(sleep, 1) OPERATION(timer_loop, 1) OPERATION(timeout, -1)
  OPERATION(wait_io, 2) OPERATION(select, -1) OPERATION(wait_event, 1)
  OPERATION(waitpid, 1) OPERATION(close, 1) OPERATION(fsync, -1) OPERATION(open, -1)
  OPERATION(stat, 1)
#undef OPERATION
  { NULL, NULL, 0 }
};

/* ---- raw buffers and the rest ---------------------------------------------------------------- */

static VALUE free_raw_buffer(VALUE handle) {
  buffer_raw_free(handle);
  return Qnil;
}

static VALUE Polyphony_with_raw_buffer(VALUE self, VALUE size) {
  long bytes = NUM2LONG(size);

  (void)self;
  if (bytes < 0) rb_raise(rb_eArgError, "a buffer cannot have %ld bytes", bytes);
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "a block is needed: the buffer ends with it");
  VALUE handle = buffer_raw_new((size_t)bytes);
  return rb_ensure(rb_yield, handle, free_raw_buffer, handle);
}

static void find_raw(VALUE handle, char **base, size_t *size, size_t **used) {
  if (!buffer_raw_find(handle, base, size, used))
    rb_raise(rb_eTypeError, "expected a raw buffer, which is an Integer, got %"PRIsVALUE,
             rb_inspect(handle));
}

static VALUE Polyphony_raw_buffer_get(int argc, VALUE *argv, VALUE self) {
  VALUE handle, length;
  size_t size, *used;
  char *base;

  (void)self;
  rb_scan_args(argc, argv, "11", &handle, &length);
  find_raw(handle, &base, &size, &used);
  size_t wanted = NIL_P(length) ? *used : not_negative(length);
  return rb_str_new(base, (long)(wanted < size ? wanted : size));
}

static VALUE Polyphony_raw_buffer_set(VALUE self, VALUE handle, VALUE string) {
  size_t size, *used;
  char *base;

  (void)self;
  StringValue(string);
  find_raw(handle, &base, &size, &used);
  if ((size_t)RSTRING_LEN(string) > size)
    rb_raise(rb_eArgError, "%ld bytes do not fit into a buffer of %zu", RSTRING_LEN(string), size);
  memcpy(base, RSTRING_PTR(string), RSTRING_LEN(string));
  *used = RSTRING_LEN(string);
  return handle;
}

static VALUE Polyphony_raw_buffer_size(VALUE self, VALUE handle) {
  size_t size, *used;
  char *base;

  (void)self;
  find_raw(handle, &base, &size, &used);
  return SIZET2NUM(size);
}

static VALUE Polyphony_verify_blocking_mode(VALUE self, VALUE io, VALUE blocking) {
  int fd = fd_of(io, FD_READ);
  int flags = fcntl(fd, F_GETFL);
  int wanted = RTEST(blocking) ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;

  (void)self;
  if (flags < 0 || (flags != wanted && fcntl(fd, F_SETFL, wanted) < 0))
    error_raise_errno(-errno, "setting the blocking mode of a descriptor");
  return io;
}

static VALUE Polyphony_put_back(VALUE self, VALUE io, VALUE bytes) {
  (void)self;
  StringValue(bytes);
  fd_put_back(fd_of(io, FD_READ), RSTRING_PTR(bytes), RSTRING_LEN(bytes));
  return Qnil;
}

static VALUE Polyphony_ahead_p(VALUE self, VALUE io) {
  (void)self;
  return fd_ahead_count && fd_has_ahead(fd_of(io, FD_READ)) ? Qtrue : Qfalse;
}

static VALUE Polyphony_lookup_needed_p(VALUE self, VALUE host, VALUE service) {
  (void)self;
  return io_lookup_needed_p(host, service) ? Qtrue : Qfalse;
}

/* false where the system cannot. */
static VALUE or_false(VALUE found) { return found == Qundef ? Qfalse : found; }

static VALUE Polyphony_gethostbyname(VALUE self, VALUE name) {
  (void)self;
  return or_false(io_gethostbyname(name));
}

static VALUE Polyphony_gethostbyaddr(VALUE self, VALUE packed, VALUE family) {
  (void)self;
  return or_false(io_gethostbyaddr(packed, NUM2INT(family)));
}

static VALUE Polyphony_getservbyname(VALUE self, VALUE name, VALUE protocol) {
  (void)self;
  return or_false(io_getservbyname(name, protocol));
}

static VALUE Polyphony_getservbyport(VALUE self, VALUE port, VALUE protocol) {
  (void)self;
  return or_false(io_getservbyport(NUM2INT(port), protocol));
}

static VALUE Polyphony_give_up_locks(VALUE self, VALUE locks) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  if (backend && backend->open) fork_locks_give_up(backend, locks);
  return self;
}

static VALUE Polyphony_after_fork(VALUE self) {
  io_process_after_fork();
  backend_base_after_fork(backend_base_of_thread(rb_thread_current()));
  return self;
}

static VALUE Polyphony_backend_kind(VALUE self) {
  (void)self;
  return kind_symbol(backend_base_current()->loop.driver);
}

static void define_operations(void) {
  for (const struct operation *operation = operations; operation->name; operation++) {
    char name[64];
    snprintf(name, sizeof(name), "backend_%s", operation->name);
    rb_define_method(cBackend, operation->name, operation->function, operation->arity);
    rb_define_module_function(mPolyphony, name, operation->function, operation->arity);
  }
}

static VALUE describe(struct offload_stats stats) {
  struct { const char *name; uint64_t number; } members[] = {
    { "threads", stats.threads }, { "idle", stats.idle }, { "busy", stats.busy },
    { "waiting", stats.waiting }, { "largest", stats.largest }, { "done", stats.done },
  };
  VALUE hash = rb_hash_new();

  for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
    rb_hash_aset(hash, ID2SYM(rb_intern(members[i].name)), ULL2NUM(members[i].number));
  return hash;
}

/* Of the threads in C: those for files and the like, and those for lookups. */
static VALUE Polyphony_s_thread_stats(VALUE self) {
  (void)self;
  return rb_assoc_new(describe(offload_stats(OFFLOAD_WORK)), describe(offload_stats(OFFLOAD_LOOKUP)));
}

/* most is nil for any number, idle in seconds; a thread without a job is kept for thirty years at most. */
static VALUE Polyphony_s_limit_threads(VALUE self, VALUE most, VALUE idle) {
  double seconds = NUM2DBL(idle);

  offload_limit(NIL_P(most) ? 0 : FIXNUM_P(most) && FIX2LONG(most) < UINT_MAX ? (unsigned)FIX2LONG(most) : UINT_MAX,
                (int64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9));
  return Qnil;
}

void class_backend_init(void) {
  rb_gc_register_address(&cBackend);
  cBackend = rb_define_class_under(mPolyphony, "Backend", rb_cObject);
  rb_define_alloc_func(cBackend, backend_base_allocate);
  rb_define_method(cBackend, "initialize", Backend_initialize, 0);
  rb_define_method(cBackend, "finalize", Backend_finalize, 0);
  rb_define_method(cBackend, "post_fork", Backend_post_fork, 0);
  rb_define_method(cBackend, "kind", Backend_kind, 0);
  rb_define_method(cBackend, "poll", Backend_poll, 1);
  rb_define_method(cBackend, "break", Backend_break, 0);
  rb_define_method(cBackend, "stats", Backend_stats, 0);
  rb_define_method(cBackend, "__turn", Backend_turn, 0);
  rb_define_method(cBackend, "__turn_under_way", Backend_turn_under_way, 0);
  rb_define_module_function(mPolyphony, "__stall_limit=", Polyphony_set_stall_limit, 1);
  rb_define_module_function(mPolyphony, "__thread_stats", Polyphony_s_thread_stats, 0);
  rb_define_module_function(mPolyphony, "__limit_threads", Polyphony_s_limit_threads, 2);
  rb_define_module_function(mPolyphony, "__take_stalls", Polyphony_take_stalls, 0);
  rb_define_module_function(mPolyphony, "__timeline_start", Polyphony_timeline_start, 1);
  rb_define_module_function(mPolyphony, "__timeline_stop", Polyphony_timeline_stop, 0);
  rb_define_module_function(mPolyphony, "__timeline_after_fork", Polyphony_timeline_after_fork, 0);
  rb_define_method(cBackend, "__timeline_id", Backend_timeline_id, 0);
  rb_define_module_function(mPolyphony, "__stall_figures", Polyphony_stall_figures, 0);
  rb_define_method(cBackend, "__held_up", Backend_held_up, 0);
  rb_define_method(cBackend, "__totals", Backend_totals, 0);
  rb_define_method(cBackend, "__pending", Backend_pending, 0);
  rb_define_method(cBackend, "trace", Backend_trace, -1);
  rb_define_method(cBackend, "trace_proc=", Backend_set_trace_proc, 1);
  rb_define_method(cBackend, "idle_proc=", Backend_set_idle_proc, 1);
  rb_define_method(cBackend, "idle_gc_period=", Backend_set_idle_gc_period, 1);
  rb_define_singleton_method(cBackend, "available", Backend_s_available, 0);
  rb_define_singleton_method(cBackend, "__describe", Backend_s_describe, 1);
  define_operations();
  rb_define_module_function(mPolyphony, "backend_kind", Polyphony_backend_kind, 0);
  rb_define_module_function(mPolyphony, "backend_verify_blocking_mode",
                            Polyphony_verify_blocking_mode, 2);
  rb_define_module_function(mPolyphony, "__put_back__", Polyphony_put_back, 2);
  rb_define_module_function(mPolyphony, "__ahead__?", Polyphony_ahead_p, 1);
  rb_define_module_function(mPolyphony, "__lookup_needed?", Polyphony_lookup_needed_p, 2);
  rb_define_module_function(mPolyphony, "__gethostbyname__", Polyphony_gethostbyname, 1);
  rb_define_module_function(mPolyphony, "__gethostbyaddr__", Polyphony_gethostbyaddr, 2);
  rb_define_module_function(mPolyphony, "__getservbyname__", Polyphony_getservbyname, 2);
  rb_define_module_function(mPolyphony, "__getservbyport__", Polyphony_getservbyport, 2);
  rb_define_module_function(mPolyphony, "__after_fork__", Polyphony_after_fork, 0);
  rb_define_module_function(mPolyphony, "__give_up_locks__", Polyphony_give_up_locks, 1);
  rb_define_module_function(mPolyphony, "__with_raw_buffer__", Polyphony_with_raw_buffer, 1);
  rb_define_module_function(mPolyphony, "__raw_buffer_get__", Polyphony_raw_buffer_get, -1);
  rb_define_module_function(mPolyphony, "__raw_buffer_set__", Polyphony_raw_buffer_set, 2);
  rb_define_module_function(mPolyphony, "__raw_buffer_size__", Polyphony_raw_buffer_size, 1);
}
