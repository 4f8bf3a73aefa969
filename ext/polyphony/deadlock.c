/* deadlock.c - see deadlock.h */
#include "deadlock.h"
#include "errors.h"
#include "thread_life.h"

/* Polls with nothing pending and nobody runnable: only another thread can wake it, and none has
 * (raise and kill come as interrupts, which it sees when it has the GVL again). What was pending when
 * it began may have been settled meanwhile, and who waited for that is not in the queue yet. */
static bool stuck_p(VALUE thread) {
  struct backend_base *backend = backend_base_of_thread(thread);

  return backend && backend->open && backend_base_rests_p(backend) && !backend->hopeful &&
         !RTEST(rb_funcall(thread, id_stock_pending_p, 0));
}

static bool plain_p(VALUE thread) {
  struct backend_base *backend = backend_base_of_thread(thread);
  bool ours = thread == rb_thread_main() || thread_life_of(thread);

  return ours && !(backend && backend->open);
}

/* Sits in Ruby's own Queue#pop, Thread#join or the like. A sleep of a thread of ours is not Ruby's. */
static bool stuck_in_ruby_p(VALUE thread) {
  VALUE text = rb_funcall(thread, rb_intern("inspect"), 0);

  if (!RTEST(rb_funcall(text, rb_intern("end_with?"), 1, rb_str_new_cstr("sleep_forever>")))) return false;
  return !RTEST(rb_funcall(thread, id_stock_pending_p, 0));
}

static bool helper_p(VALUE thread) { return RTEST(rb_ivar_get(thread, id_helper)); }

bool deadlock_counts_p(VALUE thread) {
  return (thread == rb_thread_main() || thread_life_of(thread)) && !helper_p(thread);
}

/* Unlike stuck_p: something that it waits for may be pending. */
static bool waits_p(VALUE thread) {
  struct backend_base *backend = backend_base_of_thread(thread);

  if (!backend || !backend->open) return stuck_in_ruby_p(thread);
  return backend_base_rests_p(backend) && !RTEST(rb_funcall(thread, id_stock_pending_p, 0));
}

bool deadlock_others_wait_p(void) {
  rb_thread_schedule();
  VALUE threads = rb_funcall(rb_cThread, id_list, 0);

  for (long i = 0; i < RARRAY_LEN(threads); i++) {
    VALUE thread = RARRAY_AREF(threads, i);
    if (thread != rb_thread_current() && deadlock_counts_p(thread) && !waits_p(thread)) return false;
  }
  return true;
}

static enum outlook outlook_of(VALUE thread) {
  if (thread == rb_thread_current() || helper_p(thread)) return OUTLOOK_NONE;
  if (!plain_p(thread)) return stuck_p(thread) ? OUTLOOK_NONE : OUTLOOK_GOOD;
  return stuck_in_ruby_p(thread) ? OUTLOOK_BAD : OUTLOOK_OPEN;
}

enum outlook deadlock_outlook(void) {
  VALUE threads = rb_funcall(rb_cThread, id_list, 0);
  enum outlook best = OUTLOOK_NONE;

  for (long i = 0; i < RARRAY_LEN(threads) && best != OUTLOOK_GOOD; i++) {
    enum outlook one = outlook_of(RARRAY_AREF(threads, i));
    if (one < best) best = one;
  }
  return best;
}

/* The words are made in lib/polyphony/core/wait_report.rb. */
static VALUE make_deadlock(VALUE fibers) { return rb_funcall(eDeadlock, id_new, 1, fibers); }

static VALUE deadlock_error(void) {
  int state;
  VALUE error = rb_protect(make_deadlock, fiber_state_list(), &state);

  if (!state) return error;
  rb_set_errinfo(Qnil);         /* somebody's inspect failed */
  return rb_funcall(eDeadlock, id_new, 0);
}

bool deadlock_report(struct backend_base *backend) {
  struct backend_base *main = backend_base_of_thread(rb_thread_main());

  if (!main || !main->open || !main->root) {
    rb_funcall(rb_thread_main(), rb_intern("__polyphony_stock_raise"), 1, deadlock_error());
    return false;
  }
  if (main->root->off) return false;  /* by a debugger, which may have plans for it */
  backend_base_schedule(main->root, deadlock_error(), RESUME_RAISE);
  return main == backend;
}
