/* backend_life.c - how a backend comes and goes: its memory, its thread, what a fork leaves of it. See backend_base.h */
#include "backend_parts.h"
#include "cancel_scope.h"
#include "errors.h"
#include "fd.h"
#include "io.h"
#include "offload.h"
#include "ractor.h"
#include "scheduler.h"
#include "stand_in.h"
#include "stock_lock.h"
#include "timeline.h"

static VALUE backends = Qnil;  /* Array: every open backend; ops in flight need their memory */

/* A spun fiber is kept by its parent. Another one may have nobody but the timer that wakes it. */
static void mark_if_limited(struct fiber_state *fiber) {
  list_each(node, &fiber->scopes)
    if (timer_armed_p(&list_entry(node, struct cancel_scope, link)->timer))
      rb_gc_mark_movable(fiber->self);
}

static void backend_mark(void *pointer) {
  struct backend_base *backend = pointer;

  rb_gc_mark_movable(backend->self);
  rb_gc_mark_movable(backend->thread);
  rb_gc_mark_movable(backend->trace_proc);
  rb_gc_mark_movable(backend->idle_proc);
  rb_gc_mark_movable(backend->stand_ins);
  rb_gc_mark_movable(backend->last_status);
  rb_gc_mark_movable(backend->handed);
  rb_gc_mark_movable(backend->errand_about);
  if (backend->thread_status != Qundef) rb_gc_mark_movable(backend->thread_status);
  if (backend->current) rb_gc_mark_movable(backend->current->self);
  if (backend->root) rb_gc_mark_movable(backend->root->self);
  if (backend->starter) rb_gc_mark_movable(backend->starter->self);
  if (!backend->runqueue.lanes[LANE_MAIN].entries) return;
  runqueue_mark(&backend->runqueue);
  list_each(node, &backend->waiting)
    rb_gc_mark_movable(list_entry(node, struct fiber_state, waiting)->self);
  list_each(node, &backend->noted) mark_if_limited(list_entry(node, struct fiber_state, noted));
}

static void backend_compact(void *pointer) {
  struct backend_base *backend = pointer;

  backend_forget_here();
  backend->self = rb_gc_location(backend->self);
  backend->thread = rb_gc_location(backend->thread);
  backend->trace_proc = rb_gc_location(backend->trace_proc);
  backend->idle_proc = rb_gc_location(backend->idle_proc);
  backend->stand_ins = rb_gc_location(backend->stand_ins);
  backend->last_status = rb_gc_location(backend->last_status);
  backend->handed = rb_gc_location(backend->handed);
  backend->errand_about = rb_gc_location(backend->errand_about);
  if (backend->thread_status != Qundef)
    backend->thread_status = rb_gc_location(backend->thread_status);
  if (backend->runqueue.lanes[LANE_MAIN].entries) runqueue_compact(&backend->runqueue);
}

static void forget_waiting(struct backend_base *backend) {
  while (!list_empty_p(&backend->waiting)) list_remove(backend->waiting.next);
  while (!list_empty_p(&backend->noted)) list_remove(backend->noted.next);
  select_forget_all(&backend->selects);
}

/* An open backend is in `backends` and not collected, except when the process ends. */
static void backend_free(void *pointer) {
  struct backend_base *backend = pointer;

  backend_forget_here();
  forget_waiting(backend);
  if (backend->open) loop_close(&backend->loop);
  runqueue_free(&backend->runqueue);
  xfree(backend);
}

static size_t backend_memsize(const void *pointer) {
  const struct backend_base *backend = pointer;

  return sizeof(*backend) + runqueue_memsize(&backend->runqueue) +
         (backend->open ? op_pool_memsize(&backend->loop.pool) : 0);
}

static const rb_data_type_t backend_type = {
  .wrap_struct_name = "Polyphony::Backend",
  .function = {
    .dmark    = backend_mark,
    .dcompact = backend_compact,
    .dsize    = backend_memsize,
    .dfree    = backend_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

VALUE backend_base_allocate(VALUE klass) {
  struct backend_base *backend = ZALLOC(struct backend_base);

  backend->self = backend->thread = backend->trace_proc = backend->idle_proc = Qnil;
  backend->stand_ins = Qnil;
  backend->last_status = Qnil;
  backend->handed = Qnil;
  backend->errand_about = Qnil;
  backend->thread_status = Qundef;
  list_init(&backend->waiting);
  list_init(&backend->noted);
  list_init(&backend->selects);
  return backend->self = TypedData_Wrap_Struct(klass, &backend_type, backend);
}

struct backend_base *backend_base_of(VALUE object) {
  return typed_data(object, &backend_type);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static VALUE alive_p(VALUE thread) { return rb_funcall(thread, id_alive_p, 0); }

/* Threads that ended without telling us (a core-only program's) leave their backend behind. It
 * is closed when nothing is in flight; otherwise its memory stays, because the kernel has it.
 * Asking a thread lets others run, which open and close theirs: it is a copy that is walked. */
static void bury_the_dead(void) {
  VALUE known = rb_ary_dup(backends);

  for (long i = 0; i < RARRAY_LEN(known); i++) {
    struct backend_base *backend = backend_base_of(RARRAY_AREF(known, i));
    if (!RTEST(alive_p(backend->thread)) && backend->open && backend->loop.in_flight == 0)
      backend_base_finalize(backend);
  }
  RB_GC_GUARD(known);
}

static void say_once(const char *why) {
  static bool said;

  if (said || !why[0]) return;
  said = true;
  rb_warn("polyphony: %s", why);
}

/* The next best driver is tried when an automatic choice turns out not to open in this thread. */
static int open_loop(struct backend_base *backend) {
  const char *name = getenv("POLYPHONY_BACKEND");
  bool order = name && name[0] && strcmp(name, "auto") != 0;
  char why[512] = "";
  const struct driver *driver = driver_choose(name, why, sizeof(why));

  if (!driver) rb_raise(rb_eRuntimeError, "%s", why);
  say_once(why);
  int rc = loop_open(&backend->loop, driver);
  for (const struct driver *const *next = driver_table; rc < 0 && !order && *next; next++) {
    if (*next == driver || loop_open(&backend->loop, *next) < 0) continue;
    snprintf(why, sizeof(why), "%s did not open a loop (%s), using %s", driver->name,
             strerror(-rc), (*next)->name);
    say_once(why);
    rc = 0;
  }
  return rc;
}

static struct { bool on; uint64_t next; } lots;

static void shuffle_one(struct backend_base *backend, int on) {
  runqueue_shuffle(&backend->runqueue, on, lots.next++);
}

void backend_base_shuffle(bool on, uint64_t seed) {
  lots.on = on;
  lots.next = seed << 16;              /* room for the threads of a seed before those of the next */
  backend_base_each(shuffle_one, NULL, on);
}

/* Calls, in which a kill or another thread's raise may come. */
static VALUE settle_in(VALUE argument) {
  struct backend_base *backend = (struct backend_base *)argument;

  backend->interrupted = RTEST(rb_funcall(backend->thread, id_stock_pending_p, 0));  /* until it waits */
  scheduler_install_here();
  stand_in_reserve(backend);
  return Qnil;
}

void backend_base_open(struct backend_base *backend) {
  int state;

  if (backend->open) rb_raise(rb_eRuntimeError, "this backend is open already");
  compat_lock_native_thread();
  bury_the_dead();
  if (!backend->runqueue.lanes[LANE_MAIN].entries) runqueue_init(&backend->runqueue);
  RB_OBJ_WRITE(backend->self, &backend->thread, rb_thread_current());
  backend->steady = backend->thread == rb_thread_main();
  struct fiber_state *fiber = fiber_state_of(rb_fiber_current());
  fiber->backend = backend;
  fiber->stack_known = 0;       /* by a backend before this one, which has no root yet */
  RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  int rc = open_loop(backend);
  if (rc < 0) error_raise_errno(rc, "opening the event loop of a thread");
  backend->open = true;
  backend->current = fiber;
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  if (timeline_on) timeline_thread_begin(backend);
  rb_ary_push(backends, backend->self);
  if (lots.on) shuffle_one(backend, true);
  rb_protect(settle_in, (VALUE)backend, &state);
  if (!state) return;
  backend_base_finalize(backend);  /* its thread does not know of it, and would leave it behind */
  rb_jump_tag(state);
}

void backend_base_finalize(struct backend_base *backend) {
  if (!backend->open) return;
  if (backend->errand && backend->thread == rb_thread_current()) backend_run_errand(backend);  /* it was killed before */
  generator_unwatch(backend);
  if (timeline_on) timeline_thread_end(backend);
  backend->open = false;
  backend->starter = NULL;
  backend_forget_here();
  forget_waiting(backend);
  runqueue_clear(&backend->runqueue);
  loop_close(&backend->loop);
  backend_delete_identical(backends, backend->self);
}

void backend_base_each(void (*each)(struct backend_base *, int), struct backend_base *except,
                       int arg) {
  for (long i = 0; i < RARRAY_LEN(backends); i++) {
    struct backend_base *backend = backend_base_of(RARRAY_AREF(backends, i));
    if (backend != except) each(backend, arg);
  }
}

/* Messages for a thread whose first fiber was not known yet. */
static void take_early_mail(VALUE thread, VALUE root) {
  VALUE mail = rb_ivar_get(thread, id_early_mail);

  if (NIL_P(mail)) return;
  struct fiber_state *fiber = fiber_state_of(root);
  if (NIL_P(fiber->mailbox)) FIBER_WRITE(fiber, mailbox, mail);
  rb_ivar_set(thread, id_early_mail, Qnil);
}

/* A thread's root fiber cannot be asked for. It is noted when the thread begins, or when the gem
 * is loaded; else whoever comes first to a switchpoint is taken for it. */
void backend_base_note_root(void) {
  VALUE thread = rb_thread_current();

  if (!NIL_P(rb_ivar_get(thread, id_root))) return;
  rb_ivar_set(thread, id_root, rb_fiber_current());
  take_early_mail(thread, rb_fiber_current());
}

static void set_root(struct backend_base *backend, struct fiber_state *fiber) {
  fiber->root = true;
  backend->root = fiber;
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
}

struct backend_base *backend_open_here(VALUE thread) {
  ractor_check();
  VALUE klass = rb_const_get(mPolyphony, rb_intern("Backend"));
  VALUE object = rb_class_new_instance(0, NULL, klass);
  struct backend_base *backend = backend_base_of(object);

  rb_ivar_set(thread, id_backend, object);
  return backend;
}

void backend_find_root(struct backend_base *backend, struct fiber_state *fiber) {
  VALUE noted = rb_ivar_get(backend->thread, id_root);
  struct fiber_state *root = NIL_P(noted) ? fiber : fiber_state_of(noted);

  root->backend = backend;
  RB_OBJ_WRITTEN(root->self, Qundef, backend->self);
  set_root(backend, root);
  backend->current = root;
  if (NIL_P(noted)) take_early_mail(backend->thread, root->fiber);
}

/* ---- fork ----------------------------------------------------------------------------------- */

static void abandon_children(struct fiber_state *fiber) {
  while (!list_empty_p(&fiber->children))
    fiber_state_adopt(NULL, list_entry(fiber->children.next, struct fiber_state, sibling));
}

static void rearm_scopes(struct backend_base *backend, struct fiber_state *fiber) {
  list_each(node, &fiber->scopes) {
    struct cancel_scope *scope = list_entry(node, struct cancel_scope, link);
    if (scope->timer.deadline && scope->exception == Qundef)
      backend_base_arm(backend, &scope->timer, scope->timer.deadline);
  }
}

void backend_base_make_root(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;

  if (backend->root && backend->root != fiber) {
    if (timeline_on) timeline_step_down(backend->root);
    backend->root->root = false;
  }
  fiber_state_adopt(NULL, fiber);
  abandon_children(fiber);
  set_root(backend, fiber);
}

/* Ruby makes the fiber that forked the thread's root, too: a generator has nobody to yield to then. */
static void become_root(struct backend_base *backend, struct fiber_state *fiber) {
  if (fiber->resumer) fiber->resumer = fiber->resumer->proxy = NULL;
  fiber_state_abandon_others(fiber);
  backend_base_make_root(fiber);
  backend->current = fiber;
}

static void close_others(struct backend_base *mine) {
  for (long i = RARRAY_LEN(backends) - 1; i >= 0; i--) {
    struct backend_base *other = backend_base_of(rb_ary_entry(backends, i));
    if (other == mine) continue;
    forget_waiting(other);
    runqueue_clear(&other->runqueue);
    loop_after_fork(&other->loop);
    backend_base_finalize(other);
  }
}

static void reopen(struct backend_base *backend) {
  struct fiber_state *fiber = backend_base_running(backend);

  backend->in_handler = backend->polling = backend->interrupted = backend->deaf = false;
  backend->interrupters = 0;
  backend->kill_masks = fiber->holds_kill;
  backend->kill_held = false;
  backend->starter = NULL;
  runqueue_clear(&backend->runqueue);
  while (!list_empty_p(&backend->waiting)) list_remove(backend->waiting.next);
  select_forget_all(&backend->selects);
  int rc = loop_after_fork(&backend->loop);
  if (rc < 0) error_raise_errno(rc, "reopening the event loop after a fork");
  become_root(backend, fiber);
  list_remove(&fiber->noted);
  rearm_scopes(backend, fiber);
  list_each(node, &backend->noted)
    rearm_scopes(backend, list_entry(node, struct fiber_state, noted));
}

void backend_base_after_fork(struct backend_base *backend) {
  offload_after_fork();
  fd_after_fork();
  stock_lock_after_fork();
  if (backend && backend->open) reopen(backend);
  close_others(backend);
}

/* ---- the first and the last ----------------------------------------------------------------- */

static void finalize_all(VALUE nothing) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  (void)nothing;
  if (backend) backend_base_finalize(backend);
}

void backend_base_init(void) {
  rb_gc_register_address(&backends);
  backends = rb_ary_new();
  backend_learn_fiber_kill();
  rb_set_end_proc(finalize_all, Qnil);
}
