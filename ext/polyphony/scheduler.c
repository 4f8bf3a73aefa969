/* scheduler.c - see scheduler.h */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include "fiber_life.h"
#include "io.h"
#include "scheduler.h"
#include "stand_in.h"

VALUE cScheduler;
static VALUE cMutex, cQueue;    /* Ruby's own */
static bool everywhere;

static VALUE cShared = Qnil;    /* Polyphony::Scheduler::Shared, once there is one */

void scheduler_share(VALUE klass) { cShared = klass; }

static bool kind_of_p(VALUE object, VALUE klass) { return RTEST(rb_obj_is_kind_of(object, klass)); }

bool scheduler_has_p(VALUE fiber) {
  struct fiber_state *state = fiber_state_lookup(fiber);

  return state && (state->spun || state->worker);
}

/* One of ours, but the running fiber belongs to the other one behind it. */
static bool lent_p(VALUE scheduler) {
  return !NIL_P(cShared) && kind_of_p(scheduler, cShared) && !NIL_P(rb_fiber_scheduler_current()) &&
         !scheduler_has_p(rb_fiber_current());
}

bool scheduler_everywhere_p(void) { return everywhere; }

/* Nearly always it is just one of ours; asking what it is a kind of takes 200 instructions. */
bool scheduler_ours_p(void) {
  VALUE scheduler = rb_fiber_scheduler_get();

  if (NIL_P(scheduler) || RBASIC_CLASS(scheduler) == cScheduler) return !NIL_P(scheduler);
  return kind_of_p(scheduler, cScheduler) && !lent_p(scheduler);
}

bool scheduler_foreign_p(void) {
  VALUE scheduler = rb_fiber_scheduler_current();

  return !NIL_P(scheduler) && (!kind_of_p(scheduler, cScheduler) || lent_p(scheduler));
}

void scheduler_install_here(void) {
  if (everywhere && NIL_P(rb_fiber_scheduler_get()))
    rb_fiber_scheduler_set(rb_class_new_instance(0, NULL, cScheduler));
}

/* While there was none, Ruby told the thread instead of those that wait for a lock or a queue: they look
 * again. */
static void let_all_look_again(struct backend_base *backend) {
  list_each(node, &backend->waiting) {
    struct fiber_state *fiber = list_entry(node, struct fiber_state, waiting);
    if (fiber->blocked) backend_base_schedule(fiber, Qtrue, RESUME_RETURN);
  }
}

void scheduler_come_back(struct backend_base *backend) {
  backend->unscheduled = false;         /* first, for setting one is a call that may wait */
  scheduler_install_here();
  backend->unscheduled = everywhere && !scheduler_ours_p();
  if (!backend->unscheduled) let_all_look_again(backend);
}

void scheduler_install_everywhere(void) {
  everywhere = true;
  scheduler_install_here();
}

/* ---- block and unblock ------------------------------------------------------------------------ */

struct blocking {
  struct backend_base *backend;
  struct fiber_state *fiber;
  VALUE blocker;
  VALUE late;                   /* Array of exceptions that have to wait, or Qnil */
  bool limited;                 /* a timer runs */
};

/* Ruby has locks of its own, for autoload and for closing an IO, that are hidden from programs: they have no
 * class. */
static bool hidden_p(VALUE object) { return !RB_SPECIAL_CONST_P(object) && !RBASIC_CLASS(object); }

static bool a_p(VALUE object, VALUE klass) {
  return !hidden_p(object) && RTEST(rb_obj_is_kind_of(object, klass));
}

/* Ruby says what it is that blocks: the lock, the queue, or the thread that is joined. */
static const char *reason(struct blocking *blocking) {
  VALUE blocker = blocking->blocker;

  if (NIL_P(blocker)) return NIL_P(blocking->fiber->condition) ? "time to pass" : "a signal";
  if (hidden_p(blocker) || a_p(blocker, cMutex)) return "a lock";
  if (a_p(blocker, cQueue)) return "an item in a queue";
  return a_p(blocker, rb_cThread) ? "a thread to end" : "being unblocked";
}

static void keep(struct blocking *blocking, VALUE exception) {
  if (NIL_P(blocking->late)) blocking->late = rb_ary_new();
  rb_ary_push(blocking->late, exception);
}

static void deliver_later(struct blocking *blocking) {
  for (long i = 0; !NIL_P(blocking->late) && i < RARRAY_LEN(blocking->late); i++)
    backend_base_schedule(blocking->fiber, RARRAY_AREF(blocking->late, i), RESUME_RAISE);
}

/* Ruby calls `unblock` while it walks the list of those who wait for a queue or a condition variable, and
 * looks at the thread's interrupts when the method returns: another thread may run then, and a fiber of
 * its may leave the list at the very place where the walk goes on. So the look is taken here, where others
 * can tell, and Ruby finds nothing left to do; those who leave a list wait until it is over. (Ruby 3.1
 * gives up a Mutex in the same way, and cannot bear it if another thread takes it meanwhile: fibers do not
 * wait in the list of a Mutex, see stock_lock.h.) */
static VALUE wakers;            /* Array of threads that are there */

static VALUE look_at_interrupts(VALUE nothing) {
  rb_thread_check_ints();
  return nothing;
}

static void forget_waker(VALUE thread) {
  for (long i = RARRAY_LEN(wakers) - 1; i >= 0; i--)
    if (RARRAY_AREF(wakers, i) == thread) rb_ary_delete_at(wakers, i);
}

/* An exception raised in the middle would keep the others from being told. Whether one came: there may be more. */
static bool let_others_run_once(VALUE thread) {
  int state;

  rb_ary_push(wakers, thread);
  rb_protect(look_at_interrupts, Qnil, &state);
  forget_waker(thread);
  if (!state) return false;
  VALUE error = rb_errinfo();
  struct backend_base *backend = backend_base_of_thread(thread);
  if (!a_p(error, rb_eException) || !backend || !backend->open || !backend->root) rb_jump_tag(state);
  rb_set_errinfo(Qnil);
  backend_base_schedule_first(backend->root, error, RESUME_RAISE);
  return true;
}

static void let_others_run(void) {
  VALUE thread = rb_thread_current();

  while (let_others_run_once(thread)) continue;
}

/* Signal handlers run on top of a thread that is one itself. */
static bool others_wake_p(void) {
  for (long i = 0; i < RARRAY_LEN(wakers); i++)
    if (RARRAY_AREF(wakers, i) != rb_thread_current()) return true;
  return false;
}

static VALUE let_wakers_finish(VALUE nothing) {
  while (others_wake_p()) rb_thread_schedule();
  return nothing;
}

/* The wait is over and the list will be left: not while somebody walks it. */
static void leave_in_order(struct blocking *blocking, VALUE incoming, int *state) {
  VALUE first = *state ? rb_errinfo() : incoming;
  int second;

  rb_protect(let_wakers_finish, Qnil, &second);
  if (!second) return;
  if (a_p(first, rb_eException)) keep(blocking, first);
  *state = second;
}

/* Whoever unblocks has struck the fiber off a list: nobody else is told, so it has to go and take what it
 * was told of. An exception is put off. */
static void wait_once(struct blocking *blocking) {
  enum resume_how how;
  int state;
  VALUE subject = NIL_P(blocking->blocker) ? blocking->fiber->condition :
                  hidden_p(blocking->blocker) ? Qnil : blocking->blocker;
  VALUE value = backend_base_wait(blocking->backend, SWITCH_MUST_WAIT, reason(blocking), subject,
                                  &how, &state);
  if (RARRAY_LEN(wakers)) leave_in_order(blocking, how == RESUME_RAISE ? value : Qnil, &state);
  VALUE exception = state ? rb_errinfo() : value;

  if (!state && how == RESUME_RETURN) return;
  if (blocking->fiber->unblocked && a_p(exception, rb_eException)) {
    if (state) rb_set_errinfo(Qnil);
    keep(blocking, exception);
  } else {
    if (state) rb_jump_tag(state);
    error_invoke(value);
  }
}

/* A plain wake is taken for an unblock: those who block look again. */
static VALUE block(VALUE argument) {
  struct blocking *blocking = (struct blocking *)argument;
  struct fiber_state *fiber = blocking->fiber;

  wait_once(blocking);
  return fiber->unblocked || !blocking->limited || timer_armed_p(&fiber->timer) ? Qtrue : Qfalse;
}

static VALUE leave(VALUE argument) {
  struct blocking *blocking = (struct blocking *)argument;
  struct fiber_state *fiber = blocking->fiber;

  fiber->blocked = fiber->unblocked = false;
  timer_heap_disarm(&blocking->backend->loop.timers, &fiber->timer);
  list_remove(&fiber->waiting);
  deliver_later(blocking);
  return Qnil;
}

static bool block_for(struct fiber_state *fiber, VALUE blocker, VALUE timeout) {
  struct backend_base *backend = fiber->backend;
  int64_t period = io_period(timeout);
  struct blocking blocking = { backend, fiber, blocker, Qnil, period >= 0 };

  fiber->blocked = true;
  list_push(&backend->waiting, &fiber->waiting);
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  if (period >= 0) backend_base_arm(backend, &fiber->timer, backend_base_now(backend) + period);
  VALUE woken = rb_ensure(block, (VALUE)&blocking, leave, (VALUE)&blocking);
  RB_GC_GUARD(blocking.late);
  return RTEST(woken);
}

/* An unblock may have come from another thread since Ruby put the fiber into a list. */
static bool unblocked_early_p(struct fiber_state *fiber) {
  bool early = fiber->unblocked;

  fiber->unblocked = false;
  return early;
}

bool scheduler_block(VALUE blocker, VALUE timeout) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());

  return unblocked_early_p(fiber) || block_for(fiber, blocker, timeout);
}

/* Ruby names the thread that closes, or since 4.0 the IO. */
static VALUE closing_thread(VALUE blocker, struct fiber_state *fiber) {
  if (a_p(blocker, rb_cThread)) return blocker;
  return a_p(blocker, rb_cIO) && fiber->backend ? fiber->backend->thread : Qnil;
}

/* The fiber may have gone on already, for its time was over: then it will look once more for nothing. In
 * the wait of a condition variable it may sleep in a way of its own. Whoever closes an IO is unblocked as a
 * thread, and may be a fiber that sleeps without having asked us. */
void scheduler_unblock(VALUE blocker, VALUE object) {
  struct fiber_state *fiber = stand_in_acting(fiber_state_of(object));
  bool signal = !NIL_P(fiber->condition);
  VALUE thread;

  if (fiber->ended) return;
  fiber->unblocked = true;
  if (signal) fiber->signalled = true;
  if (fiber->blocked || (signal && fiber->wait_reason && !fiber->waitlist))
    backend_base_schedule(fiber, Qtrue, RESUME_RETURN);
  else if (!NIL_P(thread = closing_thread(blocker, fiber))) rb_thread_wakeup_alive(thread);
  let_others_run();
}

/* Ruby hands over what sleep was given as it is. It refuses infinity, which does no harm here. */
static void check_interval(VALUE timeout) {
  if (NIL_P(timeout) || (RB_FLOAT_TYPE_P(timeout) && isinf(RFLOAT_VALUE(timeout)) == 1)) return;
  rb_time_interval(timeout);
}

bool scheduler_sleep(VALUE timeout) {
  check_interval(timeout);
  return scheduler_block(Qnil, timeout);
}

/* ---- fibers ----------------------------------------------------------------------------------- */

static VALUE let_it_start(VALUE argument) {
  struct backend_base *backend = backend_base_current();

  backend_base_schedule_first(backend_base_fiber(backend), Qnil, RESUME_RETURN);
  backend_base_schedule_first((struct fiber_state *)argument, Qnil, RESUME_RETURN);
  return backend_base_suspend(backend, SWITCH_MUST_WAIT);
}

/* Stock schedulers resume it: what ends it before it first waits is raised here. */
static void start(struct fiber_state *fiber) {
  int state;

  fiber->starting = true;
  rb_protect(let_it_start, (VALUE)fiber, &state);
  fiber->starting = false;
  bool failed = fiber->ended && fiber->failed && !error_ends_program_p(fiber->result);
  if (failed && state)
    backend_base_schedule(backend_base_fiber(backend_base_current()), fiber->result, RESUME_RAISE);
  if (state) rb_jump_tag(state);
  if (failed) rb_exc_raise(fiber->result);
}

/* Nobody is its parent in stock Ruby, and whoever schedules it may end before. */
VALUE scheduler_fiber(VALUE block) {
  struct backend_base *backend = backend_base_current();

  backend_base_fiber(backend);  /* now there is a root */
  VALUE fiber = fiber_life_spin(backend->root, Qnil, block);
  struct fiber_state *state = fiber_state_of(fiber);

  state->independent = true;
  start(state);
  RB_GC_GUARD(fiber);           /* keeps the record */
  return fiber;
}

static struct fiber_state *independent_child(struct fiber_state *root) {
  list_each(node, &root->children) {
    struct fiber_state *child = list_entry(node, struct fiber_state, sibling);
    if (child->independent && child->fiber != rb_fiber_current()) return child;
  }
  return NULL;
}

/* NULL if it has none, or cannot wait for them. */
static struct fiber_state *root_with_children(void) {
  struct backend_base *backend = backend_base_open_here();

  if (!backend || !backend->root || !backend_base_may_wait_p(backend)) return NULL;
  return independent_child(backend->root) ? backend->root : NULL;
}

void scheduler_run(void) {
  struct fiber_state *root, *child;

  while ((root = root_with_children()) && (child = independent_child(root))) fiber_life_await(child);
}

static VALUE run_all(VALUE nothing) {
  scheduler_run();
  return nothing;
}

static void stop_independent(struct fiber_state *root) {
  list_each(node, &root->children) {
    struct fiber_state *child = list_entry(node, struct fiber_state, sibling);
    if (!child->independent || child->told_to_end) continue;
    child->told_to_end = true;
    backend_base_schedule(child, rb_class_new_instance(0, NULL, eTerminate), RESUME_RAISE);
  }
}

/* One error is being raised already, and theirs are not; but a Ctrl-C meanwhile ends it. */
static void stop_all(void) {
  struct fiber_state *root;
  bool enough = false;
  int state;

  while (!enough && (root = root_with_children())) {
    stop_independent(root);
    rb_protect(run_all, Qnil, &state);
    if (!state) return;
    enough = error_ends_program_p(rb_errinfo());
    rb_set_errinfo(Qnil);
  }
}

void scheduler_close(void) {
  struct backend_base *backend = backend_base_open_here();
  int state;

  if (!backend) return;
  rb_protect(run_all, Qnil, &state);
  if (state) {
    VALUE error = rb_errinfo();
    stop_all();
    if (a_p(error, rb_eException)) rb_set_errinfo(error);  /* not so when it is killed */
  }
  backend->unscheduled = true;
  if (state) rb_jump_tag(state);
}

static bool others_p(VALUE scheduler) {
  return !NIL_P(scheduler) && (!kind_of_p(scheduler, cScheduler) || (!NIL_P(cShared) && kind_of_p(scheduler, cShared)));
}

void scheduler_close_others(void) {
  if (others_p(rb_fiber_scheduler_get())) rb_fiber_scheduler_set(Qnil);
}

/* ---- input and output ------------------------------------------------------------------------- */

struct chunk {
  char *base;
  size_t size;
};

static struct chunk behind(void *base, size_t size, size_t offset) {
  if (offset > size) rb_raise(rb_eArgError, "offset %zu is behind the end of the buffer (%zu)", offset, size);
  return (struct chunk){ (char *)base + offset, size - offset };
}

typedef int64_t transfer_function(VALUE io, char *base, size_t length, int64_t position);

/* Not in a stock signal handler on top of one that waits. */
static bool fiber_may_wait_p(void) { return backend_base_may_wait_p(backend_base_current()); }

static int64_t read_chunk(VALUE io, char *base, size_t length, int64_t position) {
  bool plain = !fiber_may_wait_p() && !backend_base_current()->try_only;

  return (plain ? io_plain_read : io_read_memory)(io, base, length, position);
}

static int64_t write_chunk(VALUE io, char *base, size_t length, int64_t position) {
  return (fiber_may_wait_p() ? io_write_memory : io_plain_write)(io, base, length, position);
}

struct transfer {
  VALUE io, buffer;
  struct chunk chunk;
  size_t minimum, done;
  int64_t position;
  transfer_function *function;
};

/* What was done before an error counts; the next call will meet it again. */
static VALUE transfer(VALUE argument) {
  struct transfer *it = (struct transfer *)argument;
  struct chunk chunk = it->chunk;
  int64_t result;

  do {
    int64_t position = it->position < 0 ? -1 : it->position + (int64_t)it->done;
    result = it->function(it->io, chunk.base + it->done, chunk.size - it->done, position);
    if (result > 0) it->done += (size_t)result;
  } while (result > 0 && it->done < it->minimum && it->done < chunk.size);
  return result < 0 && !it->done ? LL2NUM(result) : SIZET2NUM(it->done);
}

/* Ruby locks those that it makes for its own strings and buffers. */
static bool locked_p(VALUE buffer) {
  if (!rb_io_buffer_try_unlock(buffer)) return false;
  rb_io_buffer_lock(buffer);
  return true;
}

/* Broken off: nobody hears of the bytes that had come. */
static void put_back(struct transfer *it) {
  if (it->function != read_chunk || it->position >= 0 || !it->done) return;
  if (RTEST(rb_funcall(it->io, id_closed_p, 0))) return;
  fd_put_back(rb_io_descriptor(it->io), it->chunk.base, it->done);
}

/* Meanwhile nobody may free the buffer, or make it longer: the kernel has its address. */
static VALUE transfer_locked(struct transfer *it) {
  bool locked = locked_p(it->buffer);
  int state;

  if (locked && it->minimum <= 1) return transfer((VALUE)it);  /* one operation, all or nothing */
  if (!locked) rb_io_buffer_lock(it->buffer);
  VALUE count = rb_protect(transfer, (VALUE)it, &state);
  if (state) put_back(it);
  if (!locked) rb_io_buffer_unlock(it->buffer);
  if (state) rb_jump_tag(state);
  return count;
}

VALUE scheduler_io_read(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position) {
  void *base;
  size_t size;

  rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
  struct transfer it = { io, buffer, behind(base, size, offset), minimum, 0, position, read_chunk };
  VALUE count = transfer_locked(&it);
  RB_GC_GUARD(buffer);
  return count;
}

VALUE scheduler_io_try(VALUE io, VALUE buffer, size_t offset) {
  struct backend_base *backend = backend_base_current();
  void *base;
  size_t size;

  rb_io_descriptor(io);                 /* raises if it is closed: nothing may between these lines */
  rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
  struct chunk chunk = behind(base, size, offset);
  backend->try_only = true;
  int64_t result = io_read_memory(io, chunk.base, chunk.size, -1);
  backend->try_only = false;
  RB_GC_GUARD(buffer);
  return LL2NUM(result);
}

VALUE scheduler_io_write(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position) {
  const void *base;
  size_t size;

  rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
  struct transfer it = { io, buffer, behind((void *)base, size, offset), minimum, 0, position,
                         write_chunk };
  VALUE count = transfer_locked(&it);
  RB_GC_GUARD(buffer);
  return count;
}

static int to_poll(int events) {
  return (events & RUBY_IO_READABLE ? POLLIN : 0) | (events & RUBY_IO_WRITABLE ? POLLOUT : 0) |
         (events & RUBY_IO_PRIORITY ? POLLPRI : 0);
}

/* An error or a hang-up is for whoever reads or writes next to find out. */
static int from_poll(int revents, int asked) {
  int events = (revents & POLLIN ? RUBY_IO_READABLE : 0) | (revents & POLLOUT ? RUBY_IO_WRITABLE : 0) |
               (revents & POLLPRI ? RUBY_IO_PRIORITY : 0);

  if (revents & (POLLERR | POLLHUP | POLLNVAL)) events |= RUBY_IO_READABLE | RUBY_IO_WRITABLE;
  return events & asked ? events & asked : revents ? asked : 0;
}

VALUE scheduler_io_wait(VALUE io, int events, VALUE timeout) {
  struct backend_base *backend = backend_base_current();
  int fd = rb_io_descriptor(io);

  if (events & RUBY_IO_READABLE && io_ready_at_once_p(fd)) {
    io_snooze(backend);
    return INT2NUM(RUBY_IO_READABLE);
  }
  int64_t period = io_period(timeout);
  int revents = fiber_may_wait_p() ? io_wait_ready_for(backend, fd, to_poll(events), period, io)
                                   : io_plain_wait(fd, to_poll(events), period);
  rb_io_descriptor(io);         /* closed since it woke us: the caller must not use the number */
  return revents ? INT2NUM(from_poll(revents, events)) : Qfalse;
}

static void remember_class(VALUE *address, const char *path) {
  rb_gc_register_address(address);
  *address = rb_path2class(path);
}

void scheduler_init(void) {
  remember_class(&cMutex, "Thread::Mutex");
  remember_class(&cQueue, "Thread::Queue");
  rb_gc_register_address(&cShared);
  rb_gc_register_address(&wakers);
  wakers = rb_ary_new();
}
