/* backend_base.c - see backend_base.h. What happens at every switch stands in this file, so that it becomes one piece of code. */
#include "backend_parts.h"
#include "clock.h"
#include "errors.h"
#include "fork_locks.h"
#include "scheduler.h"
#include "stall.h"
#include "starter.h"
#include "timeline.h"
#include "trace.h"
#include "turn.h"

/* ---- the backend of a thread ----------------------------------------------------------------- */

OURS unsigned backend_epoch = 1;
__thread struct backend_here backend_here QUICK;

void backend_forget_here(void) { backend_epoch++; }

static inline struct backend_base *remembered(VALUE thread) {
  return backend_here.epoch == backend_epoch && backend_here.thread == thread ? backend_here.backend : NULL;
}

struct backend_base *backend_remembered_here(void) { return remembered(rb_thread_current()); }

static void remember(struct backend_base *backend) {
  backend_here.thread = backend->thread;
  backend_here.backend = backend;
  backend_here.epoch = backend_epoch;
}

struct backend_base *backend_base_of_thread(VALUE thread) {
  VALUE object = rb_ivar_get(thread, id_backend);

  return NIL_P(object) ? NULL : backend_base_of(object);
}

struct backend_base *backend_base_open_here(void) {
  bool known = backend_base_known_here(__builtin_frame_address(0)) != NULL;
  struct backend_base *backend = known ? backend_here.backend : backend_remembered_here();

  if (!backend) backend = backend_base_of_thread(rb_thread_current());
  return backend && backend->open ? backend : NULL;
}

static void learn_stack(struct backend_base *backend, struct fiber_state *fiber, const char *frame) {
  if (fiber->ended || !(fiber->spun || (fiber->root && backend->steady))) return;
  const char *low = fiber->stack_known ? fiber->stack_low : frame, *high = low + fiber->stack_known;
  if (frame < low) low = frame;
  if (frame >= high) high = frame + 1;
  fiber->stack_low = low;
  fiber->stack_known = (size_t)(high - low);
}

struct backend_base *backend_base_current(void) {
  if (backend_base_known_here(__builtin_frame_address(0))) return backend_here.backend;
  VALUE thread = rb_thread_current();
  struct backend_base *backend = remembered(thread);

  if (backend) return backend;
  backend = backend_base_of_thread(thread);
  if (!backend || !backend->open) backend = backend_open_here(thread);
  remember(backend);
  return backend;
}

/* ---- the running fiber ---------------------------------------------------------------------- */

struct fiber_state *backend_adopt_current(struct backend_base *backend, VALUE current) {
  struct fiber_state *fiber = fiber_state_of(current);

  fiber->backend = backend;
  RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  if (!backend->root) backend_find_root(backend, fiber);
  fiber->away = false;
  if (backend->current != fiber) generator_arrive(backend, fiber);
  return fiber;
}

/* A stock signal handler, an idle hook or a trace proc runs on top of a fiber that is waiting already:
 * its timer is armed, its op in flight, its buffer lent. Whoever asks for the running fiber is about
 * to set up another wait. */
static void refuse_in_handler(struct backend_base *backend) {
  if (backend->in_handler)
    rb_raise(rb_eThreadError, "a signal handler cannot wait here: spin a fiber in it instead");
}

static struct fiber_state *running(struct backend_base *backend) {
  const char *frame = __builtin_frame_address(0);
  struct fiber_state *fiber = backend_base_known_here(frame);

  if (fiber && backend_here.backend == backend) return fiber;
  VALUE current = rb_fiber_current();
  bool same = backend->root && backend->current->fiber == current;
  fiber = same ? backend->current : backend_adopt_current(backend, current);
  learn_stack(backend, fiber, frame);
  return fiber;
}

struct fiber_state *backend_base_running(struct backend_base *backend) { return running(backend); }

struct fiber_state *backend_base_fiber(struct backend_base *backend) {
  refuse_in_handler(backend);
  if (RB_UNLIKELY(backend->unscheduled)) scheduler_come_back(backend);
  struct fiber_state *fiber = running(backend);
  if (fiber->wait_reason)
    rb_raise(rb_eThreadError, "this fiber waits for %s already: a handler or hook that runs meanwhile "
             "cannot wait, spin a fiber in it instead", fiber->wait_reason);
  fiber->away = fiber->at_turn = fiber->idle_ok = false;  /* stay set when an exception came out of its transfer */
  return fiber;
}

bool backend_base_may_wait_p(struct backend_base *backend) {
  return !backend->in_handler && !running(backend)->wait_reason;
}

/* ---- switching ------------------------------------------------------------------------------ */

/* Everyone whom the last poll found or woke gets two turns first, one to read and one to answer:
 * many of them then wait for the same descriptor again, and a poll in between would report that
 * to nobody. */
static inline bool poll_due_p(struct backend_base *backend) {
  unsigned length = backend->runqueue.length;

  if (length < 2 * backend->batch) length = 2 * backend->batch;
  if (length > RUNQUEUE_CROWD) length = RUNQUEUE_CROWD;
  if (++backend->switched <= SWITCHES_PER_POLL || backend->switched <= length) return false;
  return backend_base_pending_p(backend);
}

static void pass_on(struct backend_base *backend, struct fiber_state *from, struct fiber_state *to,
                    VALUE value, enum resume_how how) {
  if (how == RESUME_RETURN || !backend_held_back_p(from, to, value))
    backend_enqueue(backend, to, value, how, AT_HEAD);
}

/* It was scheduled while it ran, or its generator did in another thread; now that one waits. */
static bool passed_on_p(struct backend_base *backend, struct runqueue_entry *entry) {
  struct fiber_state *fiber = entry->fiber, *last = fiber->proxy ? backend_deputy(fiber) : fiber;
  VALUE more = fiber->pending;

  if (last == fiber) return false;
  fiber->pending = Qnil;
  pass_on(backend, fiber, last, entry->value, entry->how);
  for (long i = 0; !NIL_P(more) && i < RARRAY_LEN(more); i++)
    pass_on(backend, fiber, last, RARRAY_AREF(more, i), RESUME_RAISE);
  RB_GC_GUARD(more);
  return true;
}

static void take_next(struct backend_base *backend, struct fiber_state *self,
                      enum switch_idle idle, struct runqueue_entry *next) {
  struct runqueue *queue = &backend->runqueue;

  do {
    if (!queue->length) backend_find_runnable(backend, self, idle);
    else if (poll_due_p(backend) || (queue->length == 1 && self->queued && backend_base_pending_p(backend)))
      backend_base_poll(backend, false);
    while (backend->interrupted) backend_check_interrupts(backend);  /* hooks let other threads run */
    runqueue_shift(queue, next);
  } while (passed_on_p(backend, next));
}

void backend_base_queue_pending(struct fiber_state *fiber) {
  if (!NIL_P(fiber->pending) && RARRAY_LEN(fiber->pending) > 0)
    backend_enqueue(fiber->backend, fiber, rb_ary_shift(fiber->pending), RESUME_RAISE, AT_TAIL);
}

static VALUE transfer(struct backend_base *backend, struct fiber_state *self,
                      struct runqueue_entry *next) {
  struct fiber_state *target = next->fiber;
  VALUE fiber = target->fiber;
  VALUE value;

  self->away = true;
  target->switches++;
  backend->current = target;
  backend->how = next->how;
  backend->handover = false;
  if (next->how == RESUME_RAISE) FIBER_WRITE(target, incoming, next->value);
  if (backend_killable_p(target)) RB_OBJ_WRITE(backend->self, &backend->handed, next->value);
  if (target->started && (target->spun || target->root) && !backend_killable_p(self)) {
    value = rb_fiber_transfer(fiber, 1, &next->value);
  } else {
    bool brief = starter_wanted_p(backend, next) && !generator_p(self);
    /* It may yield to whoever resumed it, and be dropped: `current` must not be all it has. */
    RB_OBJ_WRITTEN(backend->self, Qundef, target->self);
    value = (brief ? starter_transfer : backend_transfer_with_care)(backend, self, next);
  }
  fork_locks_asked();
  RB_GC_GUARD(fiber);           /* target may have no other reference until it runs */
  self->away = false;
  if (backend->current != self && !backend->handover) generator_came_back(backend);
  backend->current = self;
  if (generator_p(self) && !self->escorted) generator_watch(backend);
  return value;
}

bool backend_base_keeps_statuses;

VALUE backend_base_last_status(struct backend_base *backend) {
  VALUE status = rb_last_status_get();

  return status == backend->thread_status ? backend->last_status : status;
}

void backend_base_show_status(struct backend_base *backend, VALUE status) {
  RB_OBJ_WRITE(backend->self, &backend->last_status, status);
  RB_OBJ_WRITE(backend->self, &backend->thread_status, rb_last_status_get());
}

/* Goes on with the next entry, polling when there is none or when it is time; no transfer when it is
 * the present fiber. If a fiber ended and came back through the VM, it is the turn of the one after. */
static VALUE go_on(struct backend_base *backend, struct fiber_state *self, enum switch_idle idle) {
  struct runqueue_entry next;
  VALUE value;

  do {
    take_next(backend, self, idle, &next);
    stall_turn_begins(backend);
    if (RB_UNLIKELY(timeline_on)) timeline_switch(backend, self, next.fiber, next.how == RESUME_RAISE);
    if (next.fiber == self) {
      self->switches++;         /* in a program that rests it is always the same one that looks for events */
      backend->how = next.how;
      backend->handover = false;
      return next.value;
    }
    value = transfer(backend, self, &next);
  } while (backend->handover);
  return value;
}

/* It is this fiber's turn again. status is its $?, or Qundef. */
static VALUE come_back(struct backend_base *backend, struct fiber_state *self, VALUE value, VALUE status) {
  if (status != Qundef) backend_base_show_status(backend, status);
  self->incoming = Qundef;
  if (self->masks && backend->how == RESUME_RAISE) FIBER_WRITE(self, arrived, value);
  if (!NIL_P(self->pending)) backend_base_queue_pending(self);
  if (!NIL_P(backend->trace_proc)) trace_unblock(backend, self, value);
  return value;
}

/* An exception that a signal had pushed aside is delivered first. */
static VALUE switch_from(struct backend_base *backend, struct fiber_state *self,
                         enum switch_idle idle) {
  VALUE value, status = Qundef;

  refuse_in_handler(backend);
  if (backend->interrupted) backend_be_interrupted(backend);
  if (self->incoming != Qundef) {
    VALUE incoming = self->incoming;
    self->incoming = Qundef;
    backend_enqueue(backend, self, incoming, RESUME_RAISE, AT_HEAD);
  }
  self->idle_ok = idle == SWITCH_MAY_RETURN;
  backend->switch_count++;
  stall_turn_ends(backend, self);
  if (!NIL_P(backend->trace_proc)) trace_block(backend, self);
  if (backend_base_keeps_statuses) status = backend_base_last_status(backend);
  value = go_on(backend, self, idle);
  return come_back(backend, self, value, status);
}

VALUE backend_base_switch_fiber(struct backend_base *backend, enum switch_idle idle) {
  struct fiber_state *self = backend_base_fiber(backend);

  self->wait_since = clock_now_coarse();
  return switch_from(backend, self, idle);
}

VALUE backend_base_suspend(struct backend_base *backend, enum switch_idle idle) {
  VALUE value = backend_base_switch_fiber(backend, idle);

  return backend->how == RESUME_RAISE ? error_invoke(value) : value;
}

/* Nobody else is there and nothing can come: a turn through the queue would change nothing. */
static inline bool alone_in_the_world_p(const struct backend_base *backend,
                                        const struct fiber_state *self) {
  return !backend->runqueue.length && !backend_base_pending_p(backend) && self->incoming == Qundef;
}

enum { MOST_QUICK = 32 };

bool backend_base_quick_p(struct backend_base *backend) {
  if (backend->quick_at != backend->switch_count) backend->quick_count = 0;
  backend->quick_at = backend->switch_count;
  return ++backend->quick_count <= MOST_QUICK || alone_in_the_world_p(backend, backend->current);
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* After a turn that did not just end: an exception came, or another fiber ended, or was not as it seemed. */
VALUE backend_base_come_back_late(struct backend_base *backend, struct fiber_state *self, VALUE value, VALUE status) {
  fork_locks_asked();
  if (backend->current != self && !backend->handover) generator_came_back(backend);
  backend->current = self;
  if (backend->handover) value = go_on(backend, self, SWITCH_MUST_WAIT);
  return come_back(backend, self, value, status);
}

/* With what is noted of switches while somebody wants to know. */
static VALUE turn_noted(struct backend_base *backend, struct fiber_state *self, struct fiber_state *next) {
  VALUE status = backend_base_keeps_statuses ? backend_base_last_status(backend) : Qundef;

  turn_rotate(backend, self, next);
  if (timeline_on) timeline_switch(backend, self, next, false);
  return turn_transfer(backend, self, next, status);
}

static VALUE turn_the_long_way(struct backend_base *backend, struct fiber_state *self) {
  backend_enqueue(backend, self, Qnil, RESUME_RETURN, AT_TAIL);
  self->at_turn = self->spun || self->root;
  VALUE value = switch_from(backend, self, SWITCH_MUST_WAIT);
  self->at_turn = false;
  return value;
}

VALUE backend_base_turn_noted(struct backend_base *backend, struct fiber_state *self) {
  struct fiber_state *next = turn_next(backend, self);

  if (!next) return Qundef;
  VALUE value = turn_noted(backend, self, next);
  return RB_UNLIKELY(backend->how == RESUME_RAISE) ? error_invoke(value) : value;
}

static VALUE take_turn(struct backend_base *backend, struct fiber_state *self) {
  struct fiber_state *next = self->spun || self->root ? turn_next(backend, self) : NULL;
  VALUE value = next ? turn_noted(backend, self, next) : turn_the_long_way(backend, self);

  return RB_UNLIKELY(backend->how == RESUME_RAISE) ? error_invoke(value) : value;
}

VALUE backend_base_snooze(struct backend_base *backend) {
  struct fiber_state *self = backend_base_fiber(backend);

  if (alone_in_the_world_p(backend, self) && !backend->in_handler) {
    backend->switch_count++;
    stall_turn_ends(backend, self);
    stall_turn_begins(backend);
    return Qnil;
  }
  return take_turn(backend, self);
}

struct wait {
  struct backend_base *backend;
  struct fiber_state *self;
  enum switch_idle idle;
};

static VALUE wait_body(VALUE argument) {
  struct wait *wait = (struct wait *)argument;

  return switch_from(wait->backend, wait->self, wait->idle);
}

VALUE backend_base_wait(struct backend_base *backend, enum switch_idle idle, const char *reason,
                        VALUE subject, enum resume_how *how, int *state) {
  struct fiber_state *self = backend_base_fiber(backend);
  struct wait wait = { backend, self, idle };

  self->wait_reason = reason;
  self->wait_since = clock_now_coarse();
  FIBER_WRITE(self, wait_subject, subject);
  VALUE value = rb_protect(wait_body, (VALUE)&wait, state);
  *how = *state ? RESUME_RETURN : backend->how;
  self->wait_reason = NULL;
  self->wait_subject = Qnil;
  return value;
}

/* ---- looking at it -------------------------------------------------------------------------- */

static void put(VALUE hash, const char *name, uint64_t number) {
  rb_hash_aset(hash, ID2SYM(rb_intern(name)), ULL2NUM(number));
}

VALUE backend_base_stats(struct backend_base *backend) {
  VALUE stats = rb_hash_new();

  put(stats, "runqueue_size", runqueue_capacity(&backend->runqueue));
  put(stats, "runqueue_length", backend->runqueue.length);
  put(stats, "runqueue_max_length", backend->runqueue.high_mark);
  put(stats, "op_count", backend->op_count);
  put(stats, "switch_count", backend->switch_count);
  put(stats, "poll_count", backend->poll_count);
  put(stats, "pending_ops", backend->open ? backend->loop.in_flight : 0);
  put(stats, "pending_timers", backend->open ? backend->loop.timers.length : 0);
  backend->op_total += backend->op_count;
  backend->switch_total += backend->switch_count;
  backend->poll_total += backend->poll_count;
  backend->op_count = backend->switch_count = backend->poll_count = 0;
  backend->runqueue.high_mark = backend->runqueue.length;
  return stats;
}
