/* backend_schedule.c - who is to run, and with what: how values and exceptions get into the run queue, and out of it
 * again. See backend_base.h */
#include "backend_parts.h"
#include "cancel_scope.h"
#include "timeline.h"
#include "trace.h"

uint64_t backend_wakes;

/* rb_ary_delete compares with ==, which two exceptions of a class without backtrace are, and
 * calls the block of the method at hand (a timeout's) when it finds nothing. */
bool backend_delete_identical(VALUE array, VALUE object) {
  long length = RARRAY_LEN(array), i = 0;

  while (i < length && RARRAY_AREF(array, i) != object) i++;
  if (i < length) rb_ary_delete_at(array, i);
  return i < length;
}

/* Who can be switched to in the place of a fiber. The links are as of the last switchpoint: the
 * running fiber's are brought up to date first; those of a thread that is at work may be stale. */
struct fiber_state *backend_deputy(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;
  bool here = backend->thread == rb_thread_current();

  if (here && backend->current->fiber != rb_fiber_current()) backend_adopt_current(backend, rb_fiber_current());
  struct fiber_state *last = generator_innermost(fiber);
  return here || last->away || backend->polling ? last : fiber;
}

static void keep_exception(struct fiber_state *fiber, VALUE exception) {
  if (NIL_P(fiber->pending)) FIBER_WRITE(fiber, pending, rb_ary_new());
  rb_ary_push(fiber->pending, exception);
}

/* The merge rule; see backend_base_schedule. */
static void merge_into(struct fiber_state *fiber, VALUE *old, enum resume_how *old_how, VALUE value,
                       enum resume_how how) {
  if (*old_how == RESUME_RAISE) {
    if (how == RESUME_RAISE && *old != value) keep_exception(fiber, value);
    return;
  }
  *old = value;
  *old_how = how;
}

static void merge(struct backend_base *backend, struct fiber_state *fiber, VALUE value,
                  enum resume_how how) {
  struct runqueue_entry *entry = runqueue_find(&backend->runqueue, fiber);

  merge_into(fiber, &entry->value, &entry->how, value, how);
}

void backend_enqueue(struct backend_base *backend, struct fiber_state *fiber, VALUE value,
                     enum resume_how how, enum backend_position position) {
  if (fiber->queued) merge(backend, fiber, value, how);
  else if (position == AT_HEAD) runqueue_unshift(&backend->runqueue, fiber, value, how);
  else if (position == AT_TAIL) runqueue_push(&backend->runqueue, fiber, value, how);
  else runqueue_push_event(&backend->runqueue, fiber, value, how);
  backend_base_hold(backend, fiber);
  RB_OBJ_WRITTEN(backend->self, Qundef, value);
}

bool backend_own_limit_p(struct fiber_state *fiber, VALUE exception) {
  list_each(node, &fiber->scopes)
    if (list_entry(node, struct cancel_scope, link)->exception == exception) return true;
  return false;
}

static void hand_back_one(struct fiber_state *from, struct fiber_state *to, VALUE value,
                          enum resume_how how) {
  if (how == RESUME_RETURN || !backend_own_limit_p(from, value))
    backend_enqueue(to->backend, to, value, how, AT_TAIL);
  else if ((from->shields || from->masks) && cancel_scope_hold(from, value))
    return;
  else if (from->incoming == Qundef)
    FIBER_WRITE(from, incoming, value);
  else
    keep_exception(from, value);
}

static void hand_back_all(struct fiber_state *from, struct fiber_state *to, VALUE exceptions) {
  for (long i = 0; !NIL_P(exceptions) && i < RARRAY_LEN(exceptions); i++)
    hand_back_one(from, to, RARRAY_AREF(exceptions, i), RESUME_RAISE);
  RB_GC_GUARD(exceptions);
}

void backend_base_hand_back(struct fiber_state *from, struct fiber_state *to) {
  VALUE incoming = from->incoming, more = from->pending, held_back = from->held_back;

  from->pending = from->held_back = Qnil;
  from->incoming = Qundef;
  if (incoming != Qundef) hand_back_one(from, to, incoming, RESUME_RAISE);
  if (from->queued) {
    struct runqueue_entry entry = *runqueue_find(&from->backend->runqueue, from);
    runqueue_remove(&from->backend->runqueue, from);
    hand_back_one(from, to, entry.value, entry.how);
    RB_GC_GUARD(entry.value);
  }
  hand_back_all(from, to, more);
  hand_back_all(from, to, held_back);
}

static void move_to_front(struct backend_base *backend, struct fiber_state *fiber) {
  struct runqueue_entry entry = *runqueue_find(&backend->runqueue, fiber);

  runqueue_remove(&backend->runqueue, fiber);
  runqueue_unshift(&backend->runqueue, fiber, entry.value, entry.how);
}

static void set_aside(struct fiber_state *fiber, VALUE value, enum resume_how how) {
  if (fiber->set_aside == Qundef) fiber->set_aside_how = RESUME_RETURN;
  merge_into(fiber, &fiber->set_aside, &fiber->set_aside_how, value, how);
  RB_OBJ_WRITTEN(fiber->self, Qundef, value);
}

bool backend_held_back_p(struct fiber_state *fiber, struct fiber_state *last, VALUE exception) {
  for (;; fiber = fiber->proxy) {
    if ((fiber->shields || fiber->masks) && cancel_scope_hold(fiber, exception)) return true;
    if (fiber == last) return false;
  }
}

/* Who wakes it, in words for a timeline: nobody, if it is an event or a thread without fibers. */
static void record_wake(struct fiber_state *woken, enum backend_position position) {
  struct backend_base *mine = backend_remembered_here();
  bool event = position == AT_TAIL_OF_EVENTS || !mine || !mine->current;

  timeline_wake(mine, event ? NULL : mine->current, woken);
}

static void schedule(struct fiber_state *fiber, VALUE value, enum resume_how how,
                     enum backend_position position) {
  struct fiber_state *meant = fiber;

  if (fiber->proxy) fiber = backend_deputy(fiber);
  if (how == RESUME_RAISE && backend_held_back_p(meant, fiber, value)) return;
  struct backend_base *backend = fiber->backend;
  VALUE self = fiber->self;

  if (fiber->ended) return;
  if (fiber->off) {
    set_aside(fiber, value, how);
    return;
  }
  if (!backend) {               /* a raw fiber that never waited: it runs where it is scheduled */
    fiber->backend = backend = backend_base_current();
    RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  }
  if (!backend->open) return;   /* its thread has ended */
  if (RB_UNLIKELY(timeline_on) && !fiber->queued) record_wake(fiber, position);
  backend_wakes++;
  backend_enqueue(backend, fiber, value, how, position);
  if (position == AT_HEAD) move_to_front(backend, fiber);
  if (!NIL_P(backend->trace_proc)) trace_schedule(backend, fiber, value, position == AT_HEAD);
  if (backend->polling) backend_rouse(backend);
  RB_GC_GUARD(self);            /* who woke it may have held the last reference; the queue may grow */
}

void backend_base_take_off(struct fiber_state *fiber) {
  fiber->off = true;
  if (!fiber->queued) return;
  struct runqueue_entry entry = *runqueue_find(&fiber->backend->runqueue, fiber);
  runqueue_remove(&fiber->backend->runqueue, fiber);
  set_aside(fiber, entry.value, entry.how);
}

void backend_base_put_back(struct fiber_state *fiber) {
  VALUE value = fiber->set_aside;

  fiber->off = false;
  fiber->set_aside = Qundef;
  if (value != Qundef) backend_base_schedule(fiber, value, fiber->set_aside_how);
  RB_GC_GUARD(value);
}

void backend_base_schedule(struct fiber_state *fiber, VALUE value, enum resume_how how) {
  schedule(fiber, value, how, AT_TAIL);
}

void backend_base_schedule_event(struct fiber_state *fiber, VALUE value, enum resume_how how) {
  schedule(fiber, value, how, AT_TAIL_OF_EVENTS);
}

void backend_base_schedule_first(struct fiber_state *fiber, VALUE value, enum resume_how how) {
  schedule(fiber, value, how, AT_HEAD);
}

void backend_base_schedule_value(struct fiber_state *fiber, VALUE value, bool first) {
  bool exception = !RB_SPECIAL_CONST_P(value) && RTEST(rb_obj_is_kind_of(value, rb_eException));

  schedule(fiber, value, exception ? RESUME_RAISE : RESUME_RETURN, first ? AT_HEAD : AT_TAIL);
}

static bool drop_pending(struct fiber_state *fiber, VALUE exception) {
  return !NIL_P(fiber->pending) && backend_delete_identical(fiber->pending, exception);
}

/* A generator it has resumed may still have what was meant for it. */
static void update_links(struct backend_base *backend) {
  if (!backend->open || backend->thread != rb_thread_current()) return;
  if (backend->current->fiber != rb_fiber_current()) backend_adopt_current(backend, rb_fiber_current());
}

bool backend_base_raising_p(struct fiber_state *fiber) {
  return fiber->queued && runqueue_find(&fiber->backend->runqueue, fiber)->how == RESUME_RAISE;
}

VALUE backend_base_shift_exception(struct fiber_state *fiber) {
  if (!backend_base_raising_p(fiber)) return Qundef;
  VALUE exception = runqueue_find(&fiber->backend->runqueue, fiber)->value;
  backend_base_unschedule(fiber, exception);
  return exception;
}

VALUE backend_base_shift_instance(struct fiber_state *fiber, VALUE klass) {
  VALUE found = Qundef;

  if (!backend_base_raising_p(fiber)) return Qundef;
  VALUE first = runqueue_find(&fiber->backend->runqueue, fiber)->value;
  if (RTEST(rb_obj_is_kind_of(first, klass))) found = first;
  for (long i = 0; found == Qundef && !NIL_P(fiber->pending) && i < RARRAY_LEN(fiber->pending); i++)
    if (RTEST(rb_obj_is_kind_of(RARRAY_AREF(fiber->pending, i), klass)))
      found = RARRAY_AREF(fiber->pending, i);
  if (found != Qundef) backend_base_unschedule(fiber, found);
  return found;
}

/* A plain wake that the exception had replaced is no loss, because the fiber runs. Further
 * exceptions move up. */
static bool withdraw(struct fiber_state *fiber, VALUE exception) {
  if (fiber->incoming == exception) {
    fiber->incoming = Qundef;
    return true;
  }
  if (fiber->queued) {
    struct runqueue_entry *entry = runqueue_find(&fiber->backend->runqueue, fiber);
    if (entry->how == RESUME_RAISE && entry->value == exception) {
      bool more = !NIL_P(fiber->pending) && RARRAY_LEN(fiber->pending) > 0;
      if (more) RB_OBJ_WRITE(fiber->backend->self, &entry->value, rb_ary_shift(fiber->pending));
      else runqueue_remove(&fiber->backend->runqueue, fiber);
      return true;
    }
  }
  if (!NIL_P(fiber->held_back) && backend_delete_identical(fiber->held_back, exception)) return true;
  return drop_pending(fiber, exception);
}

/* A generator that waits in its place may have it. */
bool backend_base_withdraw(struct fiber_state *fiber, VALUE exception) {
  for (; fiber; fiber = fiber->proxy)
    if (withdraw(fiber, exception)) return true;
  return false;
}

bool backend_base_unschedule(struct fiber_state *fiber, VALUE exception) {
  update_links(fiber->backend);
  return backend_base_withdraw(fiber, exception);
}

/* Who waits is not running, whatever a handler or hook does on top of it. */
bool backend_base_runs_p(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;

  if (!backend || !backend->open || backend->polling || backend->in_handler) return false;
  struct fiber_state *up = backend->current;
  if (up->wait_reason) return false;
  while (up && up != fiber) up = up->resumer;
  return up != NULL;
}
