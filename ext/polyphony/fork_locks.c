/* fork_locks.c - see fork_locks.h */
#include "fork_locks.h"
#include "fiber_state.h"

bool fork_locks_asking;
static VALUE child;             /* the forking fiber; it has both on its stack */
static VALUE wanted;            /* locks */

static void unlock_own(void) {
  for (long i = 0; i < RARRAY_LEN(wanted); i++) {
    VALUE lock = RARRAY_AREF(wanted, i);
    if (RTEST(rb_funcallv(lock, rb_intern("owned?"), 0, NULL))) rb_mutex_unlock(lock);
  }
}

void fork_locks_answer(void) {
  while (fork_locks_asking) {
    unlock_own();
    rb_fiber_transfer(child, 0, NULL);
  }
}

/* Not one that has resumed a generator: Ruby does not switch to that. In a stock method of a blocking fiber its stand-in waits. */
static bool waits_by_transfer_p(struct fiber_state *fiber) {
  if (!(fiber->spun || fiber->root) || !fiber->started || fiber->ended) return false;
  return fiber->proxy ? fiber->proxy->worker != NULL : fiber->away;
}

static VALUE visit(VALUE fiber) { return rb_fiber_transfer(fiber, 0, NULL); }

void fork_locks_give_up(struct backend_base *backend, VALUE locks) {
  VALUE fibers = fiber_state_list();
  int state;

  child = rb_fiber_current();
  wanted = locks;
  for (long i = 0; i < RARRAY_LEN(fibers); i++) {
    struct fiber_state *fiber = fiber_state_of(RARRAY_AREF(fibers, i));
    if (fiber->fiber == child || fiber->backend != backend || !waits_by_transfer_p(fiber)) continue;
    fork_locks_asking = true;
    rb_protect(visit, fiber->fiber, &state);
    fork_locks_asking = false;
    if (state) rb_set_errinfo(Qnil);
  }
  RB_GC_GUARD(fibers);
  RB_GC_GUARD(locks);
}
