/* class_thread.c - what Thread gains in C: its backend and main fiber, its end, interrupting it.
 * Layer 2. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "backend_base.h"
#include "cancel_scope.h"
#include "clock.h"
#include "errors.h"
#include "generator.h"
#include "interrupt_mask.h"
#include "io.h"
#include "queue.h"
#include "ractor.h"
#include "scheduler.h"
#include "thread_life.h"

static struct backend_base *backend_of(VALUE thread) {
  if (thread == rb_thread_current()) return backend_base_current();
  return backend_base_of_thread(thread);
}

/* Another thread's backend is nil until it has waited once: it is opened by its own thread. */
static VALUE Thread_backend(VALUE self) {
  struct backend_base *backend = backend_of(self);

  return backend ? backend->self : Qnil;
}

static VALUE Thread_backend_p(VALUE self) {
  struct backend_base *backend = backend_base_of_thread(self);

  return backend && backend->open ? Qtrue : Qfalse;
}

/* Each thread opens its own, with Backend.new or by waiting: another one's cannot be had. */
static VALUE Thread_set_backend(VALUE self, VALUE object) {
  struct backend_base *backend = backend_base_of(object);

  if (!backend->open || backend->thread != self)
    rb_raise(rb_eThreadError, "%"PRIsVALUE" was not opened by %"PRIsVALUE, rb_inspect(object),
             rb_inspect(self));
  rb_ivar_set(self, id_backend, object);
  return object;
}

static VALUE Thread_s_backend(VALUE klass) {
  (void)klass;
  return backend_base_current()->self;
}

static VALUE Thread_main_fiber(VALUE self) {
  struct backend_base *backend = backend_of(self);

  if (backend && !backend->root && self == rb_thread_current()) backend_base_fiber(backend);
  return backend && backend->root ? backend->root->fiber : Qnil;
}

static VALUE Thread_switch_fiber(VALUE self) {
  (void)self;
  return backend_base_suspend(backend_base_current(), SWITCH_MAY_RETURN);
}

static VALUE Thread_set_idle_gc_period(VALUE self, VALUE seconds) {
  struct backend_base *backend = backend_of(self);

  if (!backend) rb_raise(rb_eThreadError, "the thread has no backend yet");
  backend_base_set_idle_gc(backend, io_nanoseconds(seconds));
  return seconds;
}

static VALUE Thread_on_idle(VALUE self) {
  struct backend_base *backend = backend_of(self);

  if (!backend) rb_raise(rb_eThreadError, "the thread has no backend yet");
  RB_OBJ_WRITE(backend->self, &backend->idle_proc,
               rb_block_given_p() ? rb_block_proc() : Qnil);
  return self;
}

/* ---- messages ------------------------------------------------------------------------------- */

static VALUE early_mail(VALUE thread) {
  VALUE mail = rb_ivar_get(thread, id_early_mail);

  return NIL_P(mail) ? rb_ivar_set(thread, id_early_mail, queue_new()) : mail;
}

/* The first fiber is known when the thread has begun; in one that is not ours, when it waits. */
static VALUE Thread_tell(VALUE self, VALUE message) {
  VALUE root = rb_ivar_get(self, id_root);

  if (NIL_P(root)) root = Thread_main_fiber(self);
  if (NIL_P(root)) queue_push(early_mail(self), message);
  else rb_funcall(root, rb_intern("<<"), 1, message);
  return self;
}

/* ---- life ----------------------------------------------------------------------------------- */

static bool open_p(struct backend_base *backend) { return backend && backend->open; }

/* Who runs in the current thread; NULL if nothing is known of it. */
static struct fiber_state *running_here(struct backend_base *backend) {
  return open_p(backend) ? backend_base_running(backend) : fiber_state_lookup(rb_fiber_current());
}

static VALUE legacy_here(void) {
  return interrupt_mask_legacy(running_here(backend_base_of_thread(rb_thread_current())));
}

/* The Proc that a new thread runs in the place of the block, and what ties them together. */
static VALUE Thread_s_wrap(VALUE klass, VALUE block) {
  VALUE life = thread_life_new(block, legacy_here());

  (void)klass;
  return rb_assoc_new(thread_life_proc(life), life);
}

static VALUE Thread_set_life(VALUE self, VALUE life) {
  thread_life_attach(self, life);
  return life;
}

static VALUE Thread_block(VALUE self) {
  struct thread_life *life = thread_life_of(self);

  return life ? life->block : Qnil;
}

static VALUE Thread_begun_p(VALUE self) {
  struct thread_life *life = thread_life_of(self);

  return life && life->begun ? Qtrue : Qfalse;
}

static VALUE Thread_over_p(VALUE self) {
  struct thread_life *life = thread_life_of(self);

  return life && life->over ? Qtrue : Qfalse;
}

/* False if it has begun: there are other ways then. */
static VALUE Thread_never_begin(VALUE self) {
  struct thread_life *life = thread_life_of(self);

  if (!life || life->begun) return Qfalse;
  life->told_to_end = true;
  return Qtrue;
}

static VALUE Thread_await_end(VALUE self, VALUE seconds) { return thread_life_await(self, seconds); }

/* Whether the caller has fibers that could go on while it waits, is not a handler or hook, and is not
 * in the care of another scheduler. */
static VALUE Thread_s_may_wait_p(VALUE klass) {
  struct backend_base *backend = backend_base_open_here();

  (void)klass;
  if (!backend || scheduler_foreign_p()) return Qfalse;
  return backend_base_may_wait_p(backend) ? Qtrue : Qfalse;
}

static VALUE open_backend(VALUE nothing) {
  backend_base_current();
  return nothing;
}

/* A loop needs a few. */
static bool short_of_descriptors_p(void) {
  enum { NEEDED = 4 };
  int count = 0, fds[NEEDED];

  while (count < NEEDED && (fds[count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) count++;
  bool none_left = count < NEEDED && (errno == EMFILE || errno == ENFILE);
  for (int i = 0; i < count; i++) close(fds[i]);
  return none_left;
}

/* False if there are no descriptors left for it. Others may have closed some since it failed; then it is
 * tried again, for what is not tried again is raised. Raises whatever else keeps it from opening. */
static bool open_if_descriptors(void) {
  enum { TRIES = 5 };
  int state;

  for (int tries = 1;; tries++) {
    rb_protect(open_backend, Qnil, &state);
    if (!state) return true;
    if (!RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError))) rb_jump_tag(state);
    bool none_left = short_of_descriptors_p();
    if (!none_left && tries == TRIES) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    if (none_left) return false;
  }
}

/* Ruby calls hooks of schedulers when a thread of ours has told its end. */
static bool over_p(VALUE thread) {
  struct thread_life *life = thread_life_of(thread);

  return life && life->over;
}

/* Whether a wait of the running fiber is our business: not in another ractor, nor in the care of another
 * scheduler. Opens a backend if there is none: without one a thread has no fibers but its first, and if there
 * are no descriptors left for it, stock methods will do. */
static VALUE Thread_s_ours_p(VALUE klass) {
  (void)klass;
  if (!ractor_main_p() || scheduler_foreign_p()) return Qfalse;
  if (backend_base_open_here()) return Qtrue;
  if (over_p(rb_thread_current())) return Qfalse;
  return open_if_descriptors() ? Qtrue : Qfalse;
}

/* All other ractors are left to stock Ruby. */
static VALUE Thread_s_main_ractor_p(VALUE klass) {
  (void)klass;
  return ractor_main_p() ? Qtrue : Qfalse;
}

static VALUE Thread_helper_p(VALUE self) { return RTEST(rb_ivar_get(self, id_helper)) ? Qtrue : Qfalse; }

static VALUE Thread_set_helper(VALUE self) { return rb_ivar_set(self, id_helper, Qtrue); }

/* ---- interrupting --------------------------------------------------------------------------- */

static VALUE make_exception(int argc, VALUE *argv) {
  return argc ? rb_make_exception(argc, argv) : rb_exc_new_cstr(rb_eRuntimeError, "");
}

static bool child_runs_p(struct backend_base *backend) {
  if (!backend->root || backend->polling || backend->in_handler) return false;
  return !backend_base_runs_p(backend->root);
}

struct interrupt {
  struct backend_base *backend;
  VALUE exception;
};

static VALUE interrupt_body(VALUE argument) {
  struct interrupt *interrupt = (struct interrupt *)argument;

  return rb_funcall(interrupt->backend->thread, rb_intern("__polyphony_stock_raise"), 1,
                    interrupt->exception);
}

static VALUE interrupt_done(VALUE argument) {
  ((struct interrupt *)argument)->backend->interrupters--;
  return Qnil;
}

/* Ruby raises it in the fiber that runs when the thread looks at its interrupts next, and may let
 * that thread run before it is there to be seen. From here on, the fiber is not left before that. */
static VALUE raise_as_stock(struct backend_base *backend, VALUE exception) {
  struct interrupt interrupt = { backend, exception };

  backend->interrupted = true;
  backend->interrupters++;
  return rb_ensure(interrupt_body, (VALUE)&interrupt, interrupt_done, (VALUE)&interrupt);
}

static struct fiber_state *root_of(VALUE thread, struct backend_base *backend) {
  VALUE root = rb_ivar_get(thread, id_root);

  if (backend && backend->root) return backend->root;
  return NIL_P(root) ? NULL : fiber_state_lookup(root);
}

/* Ruby's own way asks the mask of the main fiber, whoever calls. */
static VALUE raise_in_running(struct backend_base *backend, int argc, VALUE *argv) {
  struct fiber_state *fiber = running_here(backend), *holder;

  if (!fiber || (!generator_base(fiber)->spun && !fiber->masks && !fiber->resumer))
    return rb_call_super(argc, argv);
  VALUE exception = make_exception(argc, argv);
  if ((holder = interrupt_mask_holder(fiber, exception))) {
    cancel_scope_keep_back(holder, exception);
    return Qnil;
  }
  if (open_p(backend) && interrupt_mask_timing(fiber, exception) == TIMING_ON_BLOCKING) {
    backend_base_schedule(fiber, exception, RESUME_RAISE);
    return Qnil;
  }
  if (generator_base(fiber)->spun) rb_exc_raise(exception);
  return rb_call_super(1, &exception);
}

/* An exception for a thread is for its main fiber. If that one runs, or all wait, Ruby's own way
 * brings it there; a child that happens to run must not get it. */
static VALUE raise_in_another(VALUE self, struct backend_base *backend, int argc, VALUE *argv) {
  struct fiber_state *root = root_of(self, backend);

  if (!open_p(backend) && !(root && root->masks)) return rb_call_super(argc, argv);
  VALUE exception = make_exception(argc, argv);
  if (!open_p(backend))
    return cancel_scope_hold(root, exception) ? Qnil : rb_call_super(1, &exception);
  bool held = root && interrupt_mask_chain_timing(root, exception) == TIMING_NEVER;
  if (!held && !child_runs_p(backend)) return raise_as_stock(backend, exception);
  backend_base_schedule_first(backend->root, exception, RESUME_RAISE);
  return Qnil;
}

static VALUE Thread_raise(int argc, VALUE *argv, VALUE self) {
  struct backend_base *backend = backend_base_of_thread(self);

  if (rb_keyword_given_p()) return rb_call_super(argc, argv);
  if (self == rb_thread_current()) return raise_in_running(backend, argc, argv);
  return raise_in_another(self, backend, argc, argv);
}

/* Not of itself: who kills its own thread is not interrupted by anybody. */
static VALUE Thread_kill(VALUE self) {
  struct backend_base *backend = backend_base_of_thread(self);

  if (open_p(backend) && self != rb_thread_current() && interrupt_mask_hold_kill(backend)) return self;
  return rb_call_super(0, NULL);
}

static struct cancel_scope *scope_of(struct fiber_state *fiber, VALUE face) {
  list_each(node, &fiber->scopes) {
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link);
    if (scope->face == face) return scope;
  }
  return NULL;
}

/* Neither a mask of the fiber's nor that of the main fiber, which Ruby has for the whole thread. */
static bool unmasked_p(struct fiber_state *fiber, VALUE exception) {
  return interrupt_mask_chain_timing(fiber, exception) <= TIMING_IMMEDIATE &&
         interrupt_mask_chain_timing(fiber->backend->root, exception) <= TIMING_IMMEDIATE;
}

/* For Timeout: ends a scope whose fiber runs and runs and comes to no switchpoint, by raising in
 * its thread what it would get there. False if the fiber does not run: its timer reaches it. */
static VALUE Thread_s_strike(VALUE klass, VALUE fiber_object, VALUE face) {
  struct fiber_state *fiber = fiber_state_of(fiber_object);
  struct cancel_scope *scope = scope_of(fiber, face);

  (void)klass;
  if (!scope || !backend_base_runs_p(fiber)) return Qfalse;
  /* Makes the exception, in Ruby: that thread may have gone on meanwhile. */
  if (!cancel_scope_cancel(scope)) return Qfalse;
  if (scope->exception == Qundef || cancel_scope_held_p(fiber, scope->exception)) return Qfalse;
  if (!backend_base_runs_p(fiber) || !unmasked_p(fiber, scope->exception)) return Qfalse;
  if (!backend_base_withdraw(fiber, scope->exception)) return Qfalse;
  raise_as_stock(fiber->backend, scope->exception);
  return Qtrue;
}

/* ---- masks ---------------------------------------------------------------------------------- */

static VALUE yield_nil(VALUE nothing) { return rb_yield(nothing); }

static VALUE Thread_s_mask(VALUE klass, VALUE timings) {
  (void)klass;
  return interrupt_mask_run(timings, yield_nil, Qnil);
}

/* Whether Ruby's own mask is the running fiber's: no spun fiber runs, nor a generator of one. */
static VALUE Thread_s_own_mask_p(VALUE klass) {
  struct fiber_state *fiber = running_here(backend_base_of_thread(rb_thread_current()));

  (void)klass;
  return fiber && generator_base(fiber)->spun ? Qfalse : Qtrue;
}

/* Of a spun fiber, or Qnil: a new thread inherits those that are Ruby's own by itself. */
static VALUE Thread_s_legacy(VALUE klass) {
  return RTEST(Thread_s_own_mask_p(klass)) ? Qnil : legacy_here();
}

static bool pending_here_p(struct backend_base *backend, VALUE klass) {
  for (struct fiber_state *fiber = running_here(backend); fiber; fiber = fiber->resumer)
    if (interrupt_mask_pending_p(fiber, klass)) return true;
  return false;
}

/* For the running fiber, if it is of this thread; else for the thread's main fiber. */
static VALUE Thread_held_back_p(VALUE self, VALUE klass) {
  struct backend_base *backend = backend_base_of_thread(self);
  struct fiber_state *root = root_of(self, backend);

  if (NIL_P(klass) && open_p(backend) && backend->kill_held) return Qtrue;
  if (self == rb_thread_current()) return pending_here_p(backend, klass) ? Qtrue : Qfalse;
  return root && interrupt_mask_pending_p(root, klass) ? Qtrue : Qfalse;
}

static void define_life(void) {
  rb_define_singleton_method(rb_cThread, "__polyphony_wrap", Thread_s_wrap, 1);
  rb_define_singleton_method(rb_cThread, "__polyphony_may_wait?", Thread_s_may_wait_p, 0);
  rb_define_singleton_method(rb_cThread, "__polyphony_ours?", Thread_s_ours_p, 0);
  rb_define_singleton_method(rb_cThread, "__polyphony_main_ractor?", Thread_s_main_ractor_p, 0);
  rb_define_method(rb_cThread, "__polyphony_life=", Thread_set_life, 1);
  rb_define_method(rb_cThread, "__polyphony_block", Thread_block, 0);
  rb_define_method(rb_cThread, "__polyphony_begun?", Thread_begun_p, 0);
  rb_define_method(rb_cThread, "__polyphony_over?", Thread_over_p, 0);
  rb_define_method(rb_cThread, "__polyphony_never_begin", Thread_never_begin, 0);
  rb_define_method(rb_cThread, "__polyphony_await_end", Thread_await_end, 1);
  rb_define_method(rb_cThread, "__polyphony_helper", Thread_set_helper, 0);
  rb_define_method(rb_cThread, "__polyphony_helper?", Thread_helper_p, 0);
}

static void define_interrupts(void) {
  VALUE extensions = rb_define_module_under(mPolyphony, "ThreadExtensions");

  rb_define_method(extensions, "raise", Thread_raise, -1);
  rb_define_method(extensions, "kill", Thread_kill, 0);
  rb_define_method(extensions, "terminate", Thread_kill, 0);
  rb_define_method(extensions, "exit", Thread_kill, 0);
  rb_define_alias(rb_cThread, "__polyphony_stock_raise", "raise");
  rb_define_alias(rb_cThread, "__polyphony_stock_pending?", "pending_interrupt?");
  rb_define_alias(rb_singleton_class(rb_cThread), "__polyphony_stock_mask", "handle_interrupt");
  rb_define_alias(rb_singleton_class(rb_cThread), "__polyphony_stock_pass", "pass");
  rb_define_singleton_method(rb_cThread, "__polyphony_strike", Thread_s_strike, 2);
  rb_define_singleton_method(rb_cThread, "__polyphony_mask", Thread_s_mask, 1);
  rb_define_singleton_method(rb_cThread, "__polyphony_own_mask?", Thread_s_own_mask_p, 0);
  rb_define_singleton_method(rb_cThread, "__polyphony_legacy", Thread_s_legacy, 0);
  rb_define_method(rb_cThread, "__polyphony_held_back?", Thread_held_back_p, 1);
}

void class_thread_init(void) {
  rb_define_method(rb_cThread, "backend", Thread_backend, 0);
  rb_define_method(rb_cThread, "__polyphony_backend?", Thread_backend_p, 0);
  rb_define_method(rb_cThread, "backend=", Thread_set_backend, 1);
  rb_define_singleton_method(rb_cThread, "backend", Thread_s_backend, 0);
  rb_define_method(rb_cThread, "main_fiber", Thread_main_fiber, 0);
  rb_define_method(rb_cThread, "switch_fiber", Thread_switch_fiber, 0);
  rb_define_method(rb_cThread, "idle_gc_period=", Thread_set_idle_gc_period, 1);
  rb_define_method(rb_cThread, "on_idle", Thread_on_idle, 0);
  rb_define_method(rb_cThread, "<<", Thread_tell, 1);
  define_life();
  define_interrupts();
}
