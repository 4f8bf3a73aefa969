/* waitlist.c - see waitlist.h */
#include "waitlist.h"
#include "errors.h"
#include "thread_life.h"

void waitlist_init(struct waitlist *list) {
  list_init(&list->parked);
  list->length = list->woken = 0;
}

static void leave(struct waitlist *list, struct fiber_state *fiber) {
  list_remove(&fiber->parked);
  list->length--;
}

/* Its thread ended without it, a core-only program's for instance: it will never run. Threads of ours
 * close their backend; others are asked, in Ruby, which may let other threads run. */
static bool abandoned_p(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;

  if (backend->thread == rb_thread_current()) return false;
  if (!backend->open) return true;
  return !thread_life_of(backend->thread) && !RTEST(rb_funcall(backend->thread, id_alive_p, 0));
}

static struct fiber_state *first(struct waitlist *list) {
  return waitlist_empty_p(list) ? NULL : list_entry(list->parked.next, struct fiber_state, parked);
}

static struct fiber_state *shift(struct waitlist *list) {
  struct fiber_state *fiber;

  while ((fiber = first(list))) {
    VALUE self = fiber->self;
    bool abandoned = abandoned_p(fiber);
    if (first(list) != fiber) continue;  /* somebody else was faster */
    leave(list, fiber);
    if (!abandoned) return fiber;
    fiber->waitlist = NULL;
    RB_GC_GUARD(self);
  }
  return NULL;
}

bool waitlist_wake_first(struct waitlist *list, VALUE value) {
  struct fiber_state *fiber = shift(list);

  if (!fiber) return false;
  list->woken++;
  FIBER_WRITE(fiber, wake, value);
  backend_base_schedule(fiber, value, RESUME_RETURN);
  return true;
}

void waitlist_wake_all(struct waitlist *list, VALUE value) {
  while (waitlist_wake(list, value)) continue;
}

/* Not in the list any more means that it was woken: if an exception came first, the wake is
 * handed on, or it would be lost. */
static void settle(struct waitlist *list, struct fiber_state *fiber, bool raised) {
  fiber->waitlist = NULL;
  if (!list_empty_p(&fiber->parked)) {
    leave(list, fiber);
    return;
  }
  list->woken--;
  if (raised) waitlist_wake(list, fiber->wake);
}

struct parking {
  struct waitlist *list;
  VALUE owner;
  const char *reason;
  bool at_once;                 /* is woken before it has left: see waitlist_line_up */
  bool woken;                   /* by waitlist_wake, not by a timer or a plain schedule */
};

/* firm: a wake is used even if an exception comes with it. */
static VALUE wait_to_be_woken(struct parking *parking, bool firm, enum resume_how *how,
                              int *state) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *fiber = backend_base_fiber(backend);

  fiber->waitlist = parking->list;
  list_push(&parking->list->parked, &fiber->parked);
  parking->list->length++;
  RB_OBJ_WRITTEN(parking->owner, Qundef, fiber->self);
  if (parking->at_once) waitlist_wake(parking->list, Qnil);
  VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, parking->reason, parking->owner, how,
                                  state);
  parking->woken = list_empty_p(&fiber->parked);
  settle(parking->list, fiber, !firm && (*state || *how == RESUME_RAISE));
  return parking->woken && *how == RESUME_RETURN ? fiber->wake : value;
}

static VALUE park(struct parking *parking) {
  enum resume_how how;
  int state;
  VALUE value = wait_to_be_woken(parking, false, &how, &state);

  if (state) rb_jump_tag(state);
  return how == RESUME_RAISE ? error_invoke(value) : value;
}

VALUE waitlist_park(struct waitlist *list, VALUE owner, const char *reason) {
  struct parking parking = { list, owner, reason, false, false };

  return park(&parking);
}

VALUE waitlist_park_protected(struct waitlist *list, VALUE owner, const char *reason, int *state) {
  struct parking parking = { list, owner, reason, false, false };
  enum resume_how how;
  VALUE value = wait_to_be_woken(&parking, false, &how, state);

  if (*state || how == RESUME_RETURN) return value;
  return rb_protect(error_invoke, value, state);
}

VALUE waitlist_line_up(struct waitlist *list, VALUE owner, const char *reason) {
  struct parking parking = { list, owner, reason, true, false };

  return park(&parking);
}

static void keep(VALUE *errors, VALUE error) {
  if (NIL_P(*errors)) *errors = rb_ary_new();
  rb_ary_push(*errors, error);
}

/* Does not raise: exceptions go into the Array *errors, *killed is set to a tag if the thread was killed. */
static void park_firmly(struct parking *parking, VALUE *errors, int *killed) {
  enum resume_how how;
  int state;
  VALUE value = wait_to_be_woken(parking, true, &how, &state);

  if (state && !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eException))) {
    *killed = state;
  } else if (state) {
    keep(errors, rb_errinfo());
    rb_set_errinfo(Qnil);
  } else if (how == RESUME_RAISE) {
    keep(errors, value);
  }
}

/* The last of them says that nothing can run any more: what is waited for will not come. */
static bool hopeless_p(VALUE errors) {
  return !NIL_P(errors) && RARRAY_LEN(errors) > 0 &&
         RTEST(rb_obj_is_kind_of(rb_ary_entry(errors, -1), eDeadlock));
}

static void schedule_all(struct fiber_state *fiber, VALUE errors) {
  for (long i = 0; !NIL_P(errors) && i < RARRAY_LEN(errors); i++)
    backend_base_schedule(fiber, RARRAY_AREF(errors, i), RESUME_RAISE);
  RB_GC_GUARD(errors);
}

/* The tag of a kill is worth nothing without what Ruby keeps beside it, which an exception may have taken
 * the place of. */
void waitlist_wait_firmly(struct waitlist *list, VALUE owner, const char *reason, bool (*done)(VALUE),
                          VALUE argument) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  struct parking parking = { list, owner, reason, false, false };
  VALUE errors = Qnil, deadlock = Qnil;
  int killed = 0;

  while (NIL_P(deadlock) && !done(argument)) {
    park_firmly(&parking, &errors, &killed);
    if (hopeless_p(errors)) deadlock = rb_ary_pop(errors);
  }
  schedule_all(fiber, errors);
  if (!NIL_P(deadlock)) rb_exc_raise(deadlock);
  if (killed && FIXNUM_P(rb_errinfo())) rb_jump_tag(killed);
}

static VALUE park_body(VALUE argument) { return park((struct parking *)argument); }

VALUE waitlist_park_for(struct waitlist *list, VALUE owner, const char *reason, int64_t timeout,
                        bool *expired) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *fiber = backend_base_fiber(backend);
  struct parking parking = { list, owner, reason, false, false };
  int state;

  backend_base_arm(backend, &fiber->timer, backend_base_now(backend) + timeout);
  list_push(&backend->waiting, &fiber->waiting);
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  VALUE value = rb_protect(park_body, (VALUE)&parking, &state);
  *expired = !parking.woken && !timer_armed_p(&fiber->timer);
  timer_heap_disarm(&backend->loop.timers, &fiber->timer);
  list_remove(&fiber->waiting);
  if (state) rb_jump_tag(state);
  return value;
}

void waitlist_mark(const struct waitlist *list) { fiber_state_mark_parked(&list->parked); }

void waitlist_free(struct waitlist *list) {
  while (!waitlist_empty_p(list)) {
    struct fiber_state *fiber = list_entry(list->parked.next, struct fiber_state, parked);
    leave(list, fiber);
    fiber->waitlist = NULL;
  }
}
