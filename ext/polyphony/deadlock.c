/* deadlock.c - see deadlock.h */
#include "deadlock.h"
#include "errors.h"

/* Polls with nothing pending and nobody runnable: only another thread can wake it, and none has
 * (raise and kill come as interrupts, which it sees when it has the GVL again). What was pending when
 * it began may have been settled meanwhile, and who waited for that is not in the queue yet. */
static bool stuck_p(VALUE thread) {
  struct backend_base *backend = backend_base_of_thread(thread);

  return backend && backend->open && backend->polling && !backend->runqueue.length &&
         !backend->hopeful && !RTEST(rb_funcall(thread, id_pending_interrupt_p, 0));
}

bool deadlock_hopeless_p(void) {
  VALUE threads = rb_funcall(rb_cThread, id_list, 0), self = rb_thread_current();

  for (long i = 0; i < RARRAY_LEN(threads); i++) {
    VALUE thread = RARRAY_AREF(threads, i);
    bool counts = thread != self && !RTEST(rb_ivar_get(thread, id_helper));
    if (counts && !stuck_p(thread)) return false;
  }
  return true;
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

  if (main->root->off) return false;  /* by a debugger, which may have plans for it */
  backend_base_schedule(main->root, deadlock_error(), RESUME_RAISE);
  return main == backend;
}
