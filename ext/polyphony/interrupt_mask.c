/* interrupt_mask.c - see interrupt_mask.h */
#include "interrupt_mask.h"
#include "cancel_scope.h"
#include "errors.h"
#include "generator.h"

/* ---- what a mask says ------------------------------------------------------------------------ */

static enum timing timing_named(VALUE name) {
  if (name == ID2SYM(rb_intern("immediate"))) return TIMING_IMMEDIATE;
  if (name == ID2SYM(rb_intern("on_blocking"))) return TIMING_ON_BLOCKING;
  if (name == ID2SYM(rb_intern("never"))) return TIMING_NEVER;
  return TIMING_UNSAID;
}

/* Of the nearest ancestor it names. */
static enum timing said_of(VALUE timings, VALUE klass) {
  VALUE ancestors = rb_mod_ancestors(klass), name = Qnil;

  for (long i = 0; NIL_P(name) && i < RARRAY_LEN(ancestors); i++)
    name = rb_hash_lookup(timings, RARRAY_AREF(ancestors, i));
  return timing_named(name);
}

/* The innermost mask that names it decides; exception is Qundef if it is none. */
static enum timing timing_of(struct fiber_state *fiber, VALUE klass, VALUE exception) {
  list_each(node, &fiber->scopes) {
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link);
    enum timing timing = NIL_P(scope->timings) ? TIMING_UNSAID : said_of(scope->timings, klass);
    if (timing != TIMING_UNSAID) return timing;
    if (exception != Qundef && scope->exception == exception && !scope->maskable) break;
  }
  return TIMING_UNSAID;
}

enum timing interrupt_mask_timing(struct fiber_state *fiber, VALUE exception) {
  return fiber->masks ? timing_of(fiber, CLASS_OF(exception), exception) : TIMING_UNSAID;
}

enum timing interrupt_mask_chain_timing(struct fiber_state *fiber, VALUE exception) {
  struct fiber_state *inner = fiber;
  enum timing timing;

  while (inner->proxy) inner = inner->proxy;
  while ((timing = interrupt_mask_timing(inner, exception)) == TIMING_UNSAID && inner != fiber)
    inner = inner->resumer;
  return timing;
}

/* When nothing can run any more, there is nothing to wait for; and no mask holds signals, in Ruby neither. */
bool interrupt_mask_holds_p(struct fiber_state *fiber, VALUE exception) {
  if (interrupt_mask_timing(fiber, exception) != TIMING_NEVER) return false;
  return !RTEST(rb_obj_is_kind_of(exception, eDeadlock)) &&
         !RTEST(rb_attr_get(exception, rb_intern("@__polyphony_signal")));
}

struct fiber_state *interrupt_mask_holder(struct fiber_state *fiber, VALUE exception) {
  for (; fiber; fiber = fiber->resumer) {
    enum timing timing = interrupt_mask_timing(fiber, exception);
    if (timing != TIMING_UNSAID) return timing == TIMING_NEVER ? fiber : NULL;
  }
  return NULL;
}

/* ---- what waits ------------------------------------------------------------------------------ */

static bool any_p(VALUE exceptions, VALUE klass) {
  for (long i = 0; !NIL_P(exceptions) && i < RARRAY_LEN(exceptions); i++)
    if (NIL_P(klass) || RTEST(rb_obj_is_kind_of(RARRAY_AREF(exceptions, i), klass))) return true;
  return false;
}

bool interrupt_mask_pending_p(struct fiber_state *fiber, VALUE klass) {
  if (any_p(fiber->held_back, klass) || any_p(fiber->pending, klass)) return true;
  if (!backend_base_raising_p(fiber)) return false;
  return NIL_P(klass) ||
         RTEST(rb_obj_is_kind_of(runqueue_find(&fiber->backend->runqueue, fiber)->value, klass));
}

/* ---- kill ------------------------------------------------------------------------------------ */

bool interrupt_mask_hold_kill(struct backend_base *backend) {
  return backend->kill_masks && (backend->kill_held = true);
}

/* To Ruby a kill is an Integer. In a main fiber its own mask holds it. */
static void note_kill(struct fiber_state *fiber) {
  bool before = fiber->holds_kill;

  if (!fiber->backend || !generator_base(fiber)->spun) return;
  fiber->holds_kill = fiber->masks && timing_of(fiber, rb_cInteger, Qundef) == TIMING_NEVER;
  fiber->backend->kill_masks += fiber->holds_kill - before;
}

static void come_kill(struct backend_base *backend) {
  if (!backend || backend->kill_masks || !backend->kill_held) return;
  backend->kill_held = false;
  rb_thread_kill(rb_thread_current());
}

/* ---- running --------------------------------------------------------------------------------- */

/* Raised here, without letting others run first. What may come while it waits is left for the next
 * switchpoint; and all of it, if this is a handler on top of a fiber that waits. */
static void come(struct fiber_state *fiber) {
  come_kill(fiber->backend);
  if (!backend_base_raising_p(fiber) || !backend_base_may_wait_p(fiber->backend)) return;
  VALUE first = runqueue_find(&fiber->backend->runqueue, fiber)->value;
  if (interrupt_mask_timing(fiber, first) == TIMING_ON_BLOCKING) return;
  VALUE exception = backend_base_shift_exception(fiber);
  if (fiber->masks) FIBER_WRITE(fiber, arrived, exception);
  error_invoke(exception);
}

/* What takes the place of an exception has that for its cause, which is enough for one of the program's own,
 * as in stock Ruby. Of two that came from outside, none is to be lost. */
static bool must_go_first_p(struct fiber_state *fiber, int state) {
  return state && !NIL_P(fiber->arrived) && rb_errinfo() == fiber->arrived;
}

/* Ruby's own mask has changed, too: what it holds for its thread may come, but Ruby tells only the
 * fiber at hand. */
static void changed(struct fiber_state *fiber) {
  note_kill(fiber);
  cancel_scope_sort(fiber);
  if (fiber->backend) fiber->backend->interrupted = true;
}

struct run {
  VALUE (*body)(VALUE);
  VALUE argument;
  struct fiber_state *fiber;
};

static VALUE run_body(VALUE argument) {
  struct run *run = (struct run *)argument;

  changed(run->fiber);
  come(run->fiber);
  return run->body(run->argument);
}

static int check_pair(VALUE klass, VALUE name, VALUE nothing) {
  (void)klass, (void)nothing;
  if (timing_named(name) == TIMING_UNSAID) rb_raise(rb_eArgError, "unknown mask signature");
  return ST_CONTINUE;
}

/* A main fiber's record is known, and needs no backend yet: the thread may never wait. */
static struct fiber_state *asking(void) {
  VALUE thread = rb_thread_current(), current = rb_fiber_current();
  struct backend_base *backend = backend_base_of_thread(thread);
  bool without = (!backend || !backend->open) && rb_ivar_get(thread, id_root) == current;

  return without ? fiber_state_of(current) : backend_base_running(backend_base_current());
}

static struct cancel_scope *put_on(struct fiber_state *fiber, VALUE timings) {
  struct cancel_scope *mask = cancel_scope_enter(fiber, -1, Qundef);

  RB_OBJ_WRITE(fiber->self, &mask->timings, timings);
  fiber->masks++;
  return mask;
}

VALUE interrupt_mask_run(VALUE timings, VALUE (*body)(VALUE), VALUE argument) {
  rb_hash_foreach(timings, check_pair, Qnil);
  struct run run = { body, argument, asking() };
  struct cancel_scope *mask = put_on(run.fiber, timings);
  int state;

  VALUE result = rb_protect(run_body, (VALUE)&run, &state);
  run.fiber->masks--;
  cancel_scope_dispose(mask);
  changed(run.fiber);
  bool first = must_go_first_p(run.fiber, state);
  if (!run.fiber->masks) run.fiber->arrived = Qnil;
  if (!first) come(run.fiber);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- new threads ----------------------------------------------------------------------------- */

VALUE interrupt_mask_legacy(struct fiber_state *fiber) {
  VALUE legacy = Qnil;

  for (; fiber; fiber = fiber->resumer) {
    if (!fiber->masks) continue;
    if (NIL_P(legacy)) legacy = rb_ary_new();
    list_each(node, &fiber->scopes) {
      VALUE timings = list_entry(node, struct cancel_scope, link)->timings;
      if (!NIL_P(timings)) rb_ary_unshift(legacy, timings);
    }
  }
  return legacy;
}

void interrupt_mask_inherit(VALUE legacy) {
  struct fiber_state *fiber = asking();

  for (long i = 0; i < RARRAY_LEN(legacy); i++) put_on(fiber, RARRAY_AREF(legacy, i));
  RB_GC_GUARD(legacy);
}
