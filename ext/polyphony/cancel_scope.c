/* cancel_scope.c - see cancel_scope.h */
#include "cancel_scope.h"
#include "backend_base.h"
#include "clock.h"
#include "errors.h"
#include "generator.h"
#include "interrupt_mask.h"

void (*cancel_scope_ended)(VALUE face) = NULL;

static bool order_p(VALUE error) {
  return RTEST(rb_obj_is_kind_of(error, eMoveOn)) || RTEST(rb_obj_is_kind_of(error, eTerminate)) ||
         RTEST(rb_obj_is_kind_of(error, eRestart));
}

static VALUE make_exception(VALUE spec) {
  VALUE exception = spec == Qundef ? rb_class_new_instance(0, NULL, eMoveOn) : error_instantiate(spec);
  /* An instance given by the user may serve several scopes; the copy is this one's alone. */
  if (exception == spec) exception = rb_obj_dup(exception);
  if (order_p(exception)) rb_ivar_set(exception, id_of_limit, Qtrue);
  return exception;
}

/* A fiber was told to end, and waited in an ensure block when the limit struck, whose exception took the place of
 * the order. Whoever gave that waits for the fiber to end: it is not to be lost. What an inner limit raised is none,
 * nor what was on its way when the scope was entered, in a clean-up: that goes on by itself. With no error at hand
 * $! is that one, since Ruby looks for the innermost frame that rescues or ensures. */
static VALUE order_replaced_by(VALUE exception) {
  rb_set_errinfo(Qnil);
  VALUE error = exception, before = rb_gv_get("$!");

  while (!NIL_P(error = rb_funcall(error, id_cause, 0)) && error != before)
    if (order_p(error) && NIL_P(rb_attr_get(error, id_of_limit))) return error;
  return Qnil;
}

/* The exception of an outer scope unwinds those within; if one of them struck meanwhile, in an
 * ensure block that waits, it would take the place of the outer one, which would be lost. */
static void supersede_inner(struct cancel_scope *scope) {
  list_each(node, &scope->fiber->scopes) {
    struct cancel_scope *inner = list_entry(node, struct cancel_scope, link);
    if (inner == scope) return;
    inner->superseded = true;
    timer_heap_disarm(&scope->fiber->backend->loop.timers, &inner->timer);
    if (inner->exception != Qundef && backend_base_unschedule(scope->fiber, inner->exception))
      inner->exception = Qundef;
  }
}

/* A Cancel says of itself: how many seconds, where the limit was set, what the fiber waits for. Made
 * now, in words: an exception that is kept must not keep a socket with it. */
static VALUE explain_body(VALUE argument) {
  struct cancel_scope *scope = (struct cancel_scope *)argument;
  struct fiber_state *fiber = generator_innermost(scope->fiber);
  VALUE frames = rb_ary_new();

  for (unsigned i = 0; i < scope->frames; i++) rb_ary_push(frames, place_describe(&scope->set_at[i]));
  return rb_funcall(scope->exception, id_explain, 4, DBL2NUM((double)scope->period / NSEC_PER_SEC),
                    frames, fiber->wait_reason ? rb_str_new_cstr(fiber->wait_reason) : Qnil,
                    fiber_state_wait_subject(fiber));
}

/* The program is to end, or can never go on: nothing is worth waiting for. */
static bool pierces_p(VALUE exception) {
  return error_ends_program_p(exception) || RTEST(rb_obj_is_kind_of(exception, eDeadlock));
}

/* Somebody's inspect may fail, and must not wait: we are in the middle of a switch. A signal that comes
 * meanwhile, or another thread's raise, is none of its failures, and goes to the main fiber; a tag that is no
 * exception (Thread#kill) is returned. */
static int explain(struct cancel_scope *scope) {
  struct backend_base *backend = scope->fiber->backend;
  bool before = backend->in_handler;
  int state;

  if (!RTEST(rb_obj_is_kind_of(scope->exception, eCancel))) return 0;
  backend->in_handler = true;
  rb_protect(explain_body, (VALUE)scope, &state);
  backend->in_handler = before;
  VALUE error = rb_errinfo();
  if (!state || !RTEST(rb_obj_is_kind_of(error, rb_eException))) return state;
  rb_set_errinfo(Qnil);
  if (pierces_p(error) || backend->interrupted) backend_base_schedule_first(backend->root, error, RESUME_RAISE);
  return 0;
}

static struct cancel_scope *scope_of(struct fiber_state *fiber, VALUE exception) {
  list_each(node, &fiber->scopes) {
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link);
    if (scope->exception == exception) return scope;
  }
  return NULL;
}

static bool within_shield_p(struct cancel_scope *scope) {
  list_each(node, &scope->fiber->scopes) {
    struct cancel_scope *inner = list_entry(node, struct cancel_scope, link);
    if (inner == scope) return false;
    if (inner->shield) return true;
  }
  return false;
}

static void deliver(struct fiber_state *fiber, VALUE exception) {
  struct cancel_scope *scope = scope_of(fiber, exception);

  if (!scope) {
    backend_base_schedule(fiber, exception, RESUME_RAISE);
    return;
  }
  if (scope->superseded) {      /* both were held back by a shield, the outer one first */
    scope->exception = Qundef;
    return;
  }
  if (!within_shield_p(scope) && interrupt_mask_timing(fiber, exception) != TIMING_NEVER)
    supersede_inner(scope);
  backend_base_schedule_event(fiber, exception, RESUME_RAISE);
}

/* Making an exception is a call, in which a kill of the running thread may come, or an exception that is meant for its
 * main fiber. Ours cannot fail otherwise; a class of the user's may. */
static bool from_outside_p(VALUE spec, VALUE error) {
  struct backend_base *backend = backend_base_open_here();

  if (!RTEST(rb_obj_is_kind_of(error, rb_eException)) || pierces_p(error)) return true;
  return spec == Qundef || spec == eCancel || (backend && backend->interrupted);
}

/* Others may run meanwhile: the fiber may leave the scope, if it is not the one that polls. */
static bool there_p(struct fiber_state *fiber, struct cancel_scope *scope, uint64_t serial) {
  list_each(node, &fiber->scopes)
    if (list_entry(node, struct cancel_scope, link) == scope) return scope->serial == serial;
  return false;
}

/* False if the scope is gone. *state is a tag if something else came first: it has not struck then. */
static bool strike(struct cancel_scope *scope, bool late, int *state) {
  struct fiber_state *fiber = scope->fiber;
  VALUE spec = scope->spec, self = fiber->self;
  uint64_t serial = scope->serial;

  *state = 0;
  if (scope->exception != Qundef || scope->superseded) return true;
  VALUE exception = rb_protect(make_exception, spec, state);
  bool there = there_p(fiber, scope, serial);
  RB_GC_GUARD(self);
  if (*state && from_outside_p(spec, rb_errinfo())) return there;
  if (*state) {                 /* the class would not be made: that error is the answer */
    exception = rb_errinfo();
    rb_set_errinfo(Qnil);
    *state = 0;
  }
  if (!there || scope->exception != Qundef || scope->superseded) return there;
  timer_heap_disarm(&fiber->backend->loop.timers, &scope->timer);
  RB_OBJ_WRITE(fiber->self, &scope->exception, exception);
  if (late) *state = explain(scope);
  deliver(fiber, exception);
  return true;
}

bool cancel_scope_cancel(struct cancel_scope *scope) {
  int state;
  bool there = strike(scope, false, &state);

  if (state) rb_jump_tag(state);
  return there;
}

/* If something else came first, it strikes when that has been dealt with. */
static void expire(struct timer *timer) {
  struct cancel_scope *scope = (struct cancel_scope *)((char *)timer - offsetof(struct cancel_scope, timer));
  int state;
  bool there = strike(scope, true, &state);

  if (there && scope->exception == Qundef && !scope->superseded)
    backend_base_arm(scope->fiber->backend, timer, timer->deadline);
  if (state) rb_jump_tag(state);
}

void cancel_scope_reset(struct cancel_scope *scope) {
  struct backend_base *backend = scope->fiber->backend;

  if (scope->period < 0 || scope->superseded || scope->exception != Qundef) return;
  if (!backend->open) return;   /* its thread has ended: nobody would disarm it */
  backend_base_arm(backend, &scope->timer, backend_base_now(backend) + scope->period);
  RB_OBJ_WRITTEN(backend->self, Qundef, scope->fiber->self);
}

void cancel_scope_drop_limits(struct fiber_state *fiber) {
  list_each(node, &fiber->scopes) {
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link);
    scope->superseded = true;
    timer_heap_disarm(&fiber->backend->loop.timers, &scope->timer);
  }
}

struct cancel_scope *cancel_scope_enter(struct fiber_state *fiber, int64_t period, VALUE spec) {
  static uint64_t serial;
  struct cancel_scope *scope = ALLOC(struct cancel_scope);

  *scope = (struct cancel_scope){ .serial = ++serial, .fiber = fiber, .timer.fire = expire, .period = period,
                                  .exception = Qundef, .face = Qnil, .timings = Qnil };
  list_unshift(&fiber->scopes, &scope->link);
  if (fiber->backend && generator_p(fiber)) generator_note(fiber);
  RB_OBJ_WRITE(fiber->self, &scope->spec, spec);
  cancel_scope_reset(scope);
  return scope;
}

static struct cancel_scope *enter(int64_t period, VALUE spec) {
  return cancel_scope_enter(backend_base_fiber(backend_base_current()), period, spec);
}

/* Only a Cancel tells where it comes from. */
static void note_place(struct cancel_scope *scope) {
  if (scope->spec != eCancel) return;
  scope->frames = place_take(scope->set_at, SCOPE_FRAMES);
  for (unsigned i = 0; i < scope->frames; i++)
    RB_OBJ_WRITTEN(scope->fiber->self, Qundef, scope->set_at[i].frame);
}

void cancel_scope_dispose(struct cancel_scope *scope) {
  if (timer_armed_p(&scope->timer))
    timer_heap_disarm(&scope->fiber->backend->loop.timers, &scope->timer);
  if (!NIL_P(scope->face) && cancel_scope_ended) cancel_scope_ended(scope->face);
  list_remove(&scope->link);
  if (list_empty_p(&scope->fiber->scopes)) generator_drop(scope->fiber);
  xfree(scope);
}

/* Returns the exception this scope had scheduled, if it was delivered; else takes it back. */
static VALUE leave(struct cancel_scope *scope) {
  VALUE exception = scope->exception;

  if (exception != Qundef && backend_base_unschedule(scope->fiber, exception))
    exception = scope->exception = Qundef;
  cancel_scope_dispose(scope);
  return exception;
}

VALUE cancel_scope_yield(VALUE argument, struct cancel_scope *scope) {
  (void)argument, (void)scope;
  return rb_yield_values(0);
}

struct run {
  VALUE (*body)(VALUE, struct cancel_scope *);
  VALUE argument;
  struct cancel_scope *scope;
};

static VALUE run_body(VALUE argument) {
  struct run *run = (struct run *)argument;

  return run->body(run->argument, run->scope);
}

VALUE cancel_scope_run(int64_t period, VALUE spec, VALUE move_on_value,
                       VALUE (*body)(VALUE, struct cancel_scope *), VALUE argument) {
  struct run run = { body, argument, enter(period, spec) };
  int state;

  note_place(run.scope);
  VALUE result = rb_protect(run_body, (VALUE)&run, &state);
  VALUE delivered = leave(run.scope);
  RB_GC_GUARD(delivered);
  if (!state) return result;
  if (delivered == Qundef || rb_errinfo() != delivered) rb_jump_tag(state);
  VALUE order = order_replaced_by(delivered);
  if (!NIL_P(order)) rb_exc_raise(order);
  if (spec == Qundef) return move_on_value;
  rb_set_errinfo(delivered);
  rb_jump_tag(state);
}

/* ---- shields ---------------------------------------------------------------------------------- */

static bool inside_shield_p(struct fiber_state *fiber, VALUE exception) {
  struct cancel_scope *scope = scope_of(fiber, exception);

  return scope && !within_shield_p(scope);
}

void cancel_scope_keep_back(struct fiber_state *fiber, VALUE exception) {
  if (NIL_P(fiber->held_back)) FIBER_WRITE(fiber, held_back, rb_ary_new());
  rb_ary_push(fiber->held_back, exception);
}

static bool behind_shield_p(struct fiber_state *fiber, VALUE exception) {
  return fiber->shields && !inside_shield_p(fiber, exception) && !pierces_p(exception);
}

bool cancel_scope_hold(struct fiber_state *fiber, VALUE exception) {
  if (!behind_shield_p(fiber, exception) && !interrupt_mask_holds_p(fiber, exception)) return false;
  cancel_scope_keep_back(fiber, exception);
  return true;
}

bool cancel_scope_held_p(struct fiber_state *fiber, VALUE exception) {
  for (long i = 0; !NIL_P(fiber->held_back) && i < RARRAY_LEN(fiber->held_back); i++)
    if (RARRAY_AREF(fiber->held_back, i) == exception) return true;
  return false;
}

static VALUE take_undelivered(struct fiber_state *fiber) {
  VALUE undelivered = Qnil, exception;

  if (fiber->incoming != Qundef) {
    undelivered = rb_ary_new_from_values(1, &fiber->incoming);
    fiber->incoming = Qundef;
  }
  while ((exception = backend_base_shift_exception(fiber)) != Qundef)
    rb_ary_push(NIL_P(undelivered) ? (undelivered = rb_ary_new()) : undelivered, exception);
  return undelivered;
}

void cancel_scope_sort(struct fiber_state *fiber) {
  VALUE held = fiber->held_back, undelivered = take_undelivered(fiber);

  fiber->held_back = Qnil;
  for (long i = 0; !NIL_P(held) && i < RARRAY_LEN(held); i++) deliver(fiber, RARRAY_AREF(held, i));
  for (long i = 0; !NIL_P(undelivered) && i < RARRAY_LEN(undelivered); i++)
    backend_base_schedule(fiber, RARRAY_AREF(undelivered, i), RESUME_RAISE);
  RB_GC_GUARD(held);
  RB_GC_GUARD(undelivered);
}

/* Whether something came meanwhile. A shield or mask around this one holds it back again. */
static bool lower(struct cancel_scope *shield) {
  struct fiber_state *fiber = shield->fiber;
  bool any = !NIL_P(fiber->held_back);

  fiber->shields--;
  cancel_scope_dispose(shield);
  if (any) cancel_scope_sort(fiber);
  return any && backend_base_raising_p(fiber);
}

VALUE cancel_scope_shield(VALUE (*body)(VALUE, struct cancel_scope *), VALUE argument) {
  struct run run = { body, argument, enter(-1, Qundef) };
  int state;

  run.scope->shield = true;
  run.scope->fiber->shields++;
  cancel_scope_sort(run.scope->fiber);  /* a second stop, for instance, that was not delivered yet */
  VALUE result = rb_protect(run_body, (VALUE)&run, &state);
  bool came = lower(run.scope);
  if (state) rb_jump_tag(state);
  if (came) backend_base_snooze(backend_base_current());
  return result;
}

/* ---- for the record of the fiber -------------------------------------------------------------- */

#define EACH_SCOPE(scopes, scope, DO) \
  list_each(node, scopes) { \
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link); \
    DO \
  }

void cancel_scope_mark_all(struct list *scopes) {
  EACH_SCOPE(scopes, scope, {
    if (scope->spec != Qundef) rb_gc_mark_movable(scope->spec);
    if (scope->exception != Qundef) rb_gc_mark_movable(scope->exception);
    rb_gc_mark_movable(scope->face);
    rb_gc_mark_movable(scope->timings);
    for (unsigned i = 0; i < scope->frames; i++) rb_gc_mark_movable(scope->set_at[i].frame);
  })
}

void cancel_scope_compact_all(struct list *scopes) {
  EACH_SCOPE(scopes, scope, {
    if (scope->spec != Qundef) scope->spec = rb_gc_location(scope->spec);
    if (scope->exception != Qundef) scope->exception = rb_gc_location(scope->exception);
    scope->face = rb_gc_location(scope->face);
    scope->timings = rb_gc_location(scope->timings);
    for (unsigned i = 0; i < scope->frames; i++)
      scope->set_at[i].frame = rb_gc_location(scope->set_at[i].frame);
  })
}

/* The face may have been swept already: it is not told. It refers to the fiber, so it can only
 * be gone together with it. */
void cancel_scope_free_all(struct list *scopes) {
  while (!list_empty_p(scopes)) {
    struct cancel_scope *scope = list_entry(scopes->next, struct cancel_scope, link);
    scope->face = Qnil;
    cancel_scope_dispose(scope);
  }
}
