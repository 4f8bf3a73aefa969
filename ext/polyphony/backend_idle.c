/* backend_idle.c - what is done when no fiber can run: hooks, the GC, and the question whether anything can come at all. */
#include "backend_parts.h"
#include "clock.h"
#include "deadlock.h"
#include "holding.h"
#include "stock_lock.h"

/* Threads that have no backend do not tell when they begin to wait for ever, or when they have been told to
 * go on: they are looked at again, and believed when nothing has changed for a while. */
static const int64_t LOOK_AGAIN = NSEC_PER_SEC / 5, LOOK_CLOSER = NSEC_PER_SEC / 50;
enum { DOUBTS_ENOUGH = 3 };

static VALUE look_at_threads(VALUE outlook) {
  *(enum outlook *)outlook = deadlock_outlook();
  return Qnil;
}

/* While threads are looked at one after the other they may run. One that was found waiting may have been woken since, by one that is
 * found waiting in its turn: then there is hope. */
static bool hopeless_p(struct backend_base *backend) {
  enum outlook outlook = OUTLOOK_GOOD;
  uint64_t before = backend_wakes;
  int state;

  rb_protect(look_at_threads, (VALUE)&outlook, &state);
  if (state) backend_heed(backend, state);  /* the main fiber is to run then */
  if (backend_wakes != before) outlook = OUTLOOK_GOOD;
  backend->doubts = outlook == OUTLOOK_BAD ? backend->doubts + 1 : 0;
  backend->look_again = outlook == OUTLOOK_BAD ? LOOK_CLOSER : outlook == OUTLOOK_OPEN ? LOOK_AGAIN : 0;
  return outlook == OUTLOOK_NONE || backend->doubts > DOUBTS_ENOUGH;
}

/* Nothing can run, nothing is pending. Puts somebody into the queue who can make sense of it;
 * false when only another thread can help, and there is one. */
static bool resolve_idleness(struct backend_base *backend, struct fiber_state *self,
                             enum switch_idle idle) {
  struct fiber_state *root = generator_innermost(backend->root);

  if (idle == SWITCH_MAY_RETURN) backend_base_schedule(self, Qnil, RESUME_RETURN);
  else if (root->away && root->idle_ok) backend_base_schedule(root, Qnil, RESUME_RETURN);
  else if (!hopeless_p(backend)) return false;
  else return holding_look() || stock_lock_look(true) || deadlock_report(backend);
  return true;
}

static void collect_garbage_when_idle(struct backend_base *backend) {
  int64_t now = backend_base_now(backend);

  if (now - backend->idle_gc_last < backend->idle_gc_period) return;
  backend->idle_gc_last = now;
  rb_gc_enable();
  rb_gc_start();
  rb_gc_disable();
}

void backend_base_set_idle_gc(struct backend_base *backend, int64_t period) {
  backend->idle_gc_period = period > 0 ? period : 0;
  backend->idle_gc_last = backend_base_now(backend);
  if (period > 0) rb_gc_disable();
  else rb_gc_enable();
}

static void run_idle_hooks(struct backend_base *backend) {
  if (backend->idle_gc_period > 0) collect_garbage_when_idle(backend);
  if (!NIL_P(backend->idle_proc)) rb_funcall(backend->idle_proc, id_call, 0);
}

void backend_find_runnable(struct backend_base *backend, struct fiber_state *self,
                           enum switch_idle idle) {
  bool hooked = false;

  while (!backend->runqueue.length) {
    if (!hooked) {
      hooked = true;
      run_idle_hooks(backend);
      continue;
    }
    if (backend_base_pending_p(backend) || !resolve_idleness(backend, self, idle))
      backend_base_poll(backend, true);
  }
}
