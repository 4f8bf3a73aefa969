/* scheduler.c - see scheduler.h */
#include <errno.h>
#include <poll.h>
#include "fiber_life.h"
#include "io.h"
#include "scheduler.h"

VALUE cScheduler;
static bool everywhere;

bool scheduler_ours_p(void) {
  VALUE scheduler = rb_fiber_scheduler_get();

  return !NIL_P(scheduler) && RTEST(rb_obj_is_kind_of(scheduler, cScheduler));
}

void scheduler_install_here(void) {
  if (everywhere && NIL_P(rb_fiber_scheduler_get()))
    rb_fiber_scheduler_set(rb_class_new_instance(0, NULL, cScheduler));
}

void scheduler_come_back(struct backend_base *backend) {
  backend->unscheduled = false;         /* first, for setting one is a call that may wait */
  scheduler_install_here();
  backend->unscheduled = everywhere && !scheduler_ours_p();
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
  bool firm;                    /* none of them ends it */
  bool limited;                 /* a timer runs */
};

static void keep(struct blocking *blocking, VALUE exception) {
  if (NIL_P(blocking->late)) blocking->late = rb_ary_new();
  rb_ary_push(blocking->late, exception);
}

static void deliver_later(struct blocking *blocking) {
  for (long i = 0; !NIL_P(blocking->late) && i < RARRAY_LEN(blocking->late); i++)
    backend_base_schedule(blocking->fiber, RARRAY_AREF(blocking->late, i), RESUME_RAISE);
}

/* One wait. Whoever unblocks has struck the fiber off a list: nobody else is told, so it has to
 * go and take what it was told of. */
static void wait_once(struct blocking *blocking) {
  struct fiber_state *fiber = blocking->fiber;
  enum resume_how how;
  int state;
  VALUE value = backend_base_wait(blocking->backend, SWITCH_MUST_WAIT, "a lock, queue or thread",
                                  blocking->blocker, &how, &state);
  VALUE exception = state ? rb_errinfo() : value;

  if (!state && how == RESUME_RETURN) return;
  bool put_off = (fiber->unblocked || blocking->firm) &&
                 RTEST(rb_obj_is_kind_of(exception, rb_eException));
  if (put_off && state) rb_set_errinfo(Qnil);
  if (put_off) keep(blocking, exception);
  else if (state) rb_jump_tag(state);
  else error_invoke(value);
}

/* A plain wake is taken for an unblock, unless the lock has to be had: those who block look again. */
static VALUE block(VALUE argument) {
  struct blocking *blocking = (struct blocking *)argument;
  struct fiber_state *fiber = blocking->fiber;

  do wait_once(blocking);
  while (blocking->firm && !fiber->unblocked);
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

static bool block_for(VALUE blocker, VALUE timeout, bool firm) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *fiber = backend_base_fiber(backend);
  int64_t period = io_period(timeout);
  struct blocking blocking = { backend, fiber, blocker, Qnil, firm, period >= 0 };

  fiber->blocked = true;
  list_push(&backend->waiting, &fiber->waiting);
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  if (period >= 0) backend_base_arm(backend, &fiber->timer, backend_base_now(backend) + period);
  VALUE woken = rb_ensure(block, (VALUE)&blocking, leave, (VALUE)&blocking);
  RB_GC_GUARD(blocking.late);
  return RTEST(woken);
}

bool scheduler_block(VALUE blocker, VALUE timeout) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());

  if (fiber->unblocked) {       /* it came early, from another thread */
    fiber->unblocked = false;
    io_snooze(backend_base_current());
    return true;
  }
  return block_for(blocker, timeout, !NIL_P(blocker) && fiber->relocks == blocker);
}

/* The fiber may have gone on already, for its time was over: then it will look once more for nothing. */
void scheduler_unblock(VALUE object) {
  struct fiber_state *fiber = fiber_state_of(object);

  if (fiber->ended) return;
  fiber->unblocked = true;
  if (fiber->blocked) backend_base_schedule(fiber, Qtrue, RESUME_RETURN);
}

void scheduler_sleep(VALUE timeout) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());

  if (NIL_P(fiber->relocks)) fiber->unblocked = false;  /* meant for something else */
  if (!fiber->unblocked) block_for(Qnil, timeout, false);
  else scheduler_block(Qnil, timeout);
}

static VALUE forget_relocks(VALUE state) {
  struct fiber_state *fiber = (struct fiber_state *)state;

  fiber->relocks = Qnil;
  return Qnil;
}

VALUE scheduler_relocking(VALUE mutex, VALUE (*body)(VALUE), VALUE argument) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());

  FIBER_WRITE(fiber, relocks, mutex);
  return rb_ensure(body, argument, forget_relocks, (VALUE)fiber);
}

/* ---- fibers ----------------------------------------------------------------------------------- */

/* Nobody is its parent in stock Ruby, and whoever schedules it may end before. */
VALUE scheduler_fiber(VALUE block) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *self = backend_base_fiber(backend);
  VALUE fiber = fiber_life_spin(backend->root, Qnil, block);
  struct fiber_state *state = fiber_state_of(fiber);

  state->independent = true;
  backend_base_schedule_first(self, Qnil, RESUME_RETURN);
  backend_base_schedule_first(state, Qnil, RESUME_RETURN);
  backend_base_suspend(backend, SWITCH_MUST_WAIT);
  return fiber;
}

static struct fiber_state *independent_child(struct fiber_state *root) {
  list_each(node, &root->children) {
    struct fiber_state *child = list_entry(node, struct fiber_state, sibling);
    if (child->independent) return child;
  }
  return NULL;
}

void scheduler_drain(void) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  struct fiber_state *child;

  if (!backend || !backend->open) return;
  if (backend->root && backend_base_may_wait_p(backend))
    while ((child = independent_child(backend->root))) fiber_life_await(child);
  backend->unscheduled = true;
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

static int64_t read_chunk(VALUE io, char *base, size_t length, int64_t position) {
  return io_read_memory(io, base, length, position);
}

static int64_t write_chunk(VALUE io, char *base, size_t length, int64_t position) {
  return io_write_memory(io, base, length, position);
}

/* What was done before an error counts; the next call will meet it again. */
static VALUE transfer(VALUE io, struct chunk chunk, size_t minimum, int64_t position,
                      transfer_function *function) {
  size_t done = 0;
  int64_t result;

  do {
    result = function(io, chunk.base + done, chunk.size - done, position < 0 ? -1 : position + (int64_t)done);
    if (result > 0) done += (size_t)result;
  } while (result > 0 && done < minimum && done < chunk.size);
  return result < 0 && !done ? LL2NUM(result) : SIZET2NUM(done);
}

VALUE scheduler_io_read(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position) {
  void *base;
  size_t size;

  rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
  VALUE count = transfer(io, behind(base, size, offset), minimum, position, read_chunk);
  RB_GC_GUARD(buffer);
  return count;
}

VALUE scheduler_io_write(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position) {
  const void *base;
  size_t size;

  rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
  VALUE count = transfer(io, behind((void *)base, size, offset), minimum, position, write_chunk);
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

  if (events & RUBY_IO_READABLE && fd_ahead_count && fd_has_ahead(fd)) {
    io_snooze(backend);
    return INT2NUM(RUBY_IO_READABLE);
  }
  int revents = io_wait_ready_for(backend, fd, to_poll(events), io_period(timeout), io);
  rb_io_descriptor(io);         /* closed since it woke us: the caller must not use the number */
  return revents ? INT2NUM(from_poll(revents, events)) : Qfalse;
}
