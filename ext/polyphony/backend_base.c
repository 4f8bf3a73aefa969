/* backend_base.c - see backend_base.h */
#include "backend_base.h"
#include "cancel_scope.h"
#include "clock.h"
#include "deadlock.h"
#include "errors.h"
#include "fd.h"
#include "fiber_life.h"
#include "generator.h"
#include "holding.h"
#include "io.h"
#include "offload.h"
#include "ractor.h"
#include "scheduler.h"
#include "stand_in.h"
#include "stall.h"
#include "stock_lock.h"
#include "timeline.h"
#include "virtual_clock.h"

/* Two fibers that schedule each other for ever must not starve the rest: with more switches than
 * this, and than fibers in the queue (a crowd counts as 128), since the last poll, events are
 * looked at without waiting. */
enum { SWITCHES_PER_POLL = 10 };

/* ---- GC ------------------------------------------------------------------------------------ */

static VALUE backends = Qnil;   /* Array: every open backend; ops in flight need their memory */
static unsigned epoch = 1;      /* changes when a remembered backend may be gone or have moved */

/* The thread's own backend. Checked by thread and epoch before it is followed: Ruby reuses native
 * threads and the addresses of Thread objects. */
#ifdef __GLIBC__                /* a library loaded at run time may do that only there */
#define QUICK __attribute__((tls_model("initial-exec")))
#else
#define QUICK
#endif
static __thread struct {
  VALUE thread;
  unsigned epoch;
  struct backend_base *backend;
} here QUICK;

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
  if (backend->thread_status != Qundef) rb_gc_mark_movable(backend->thread_status);
  if (backend->current) rb_gc_mark_movable(backend->current->self);
  if (backend->root) rb_gc_mark_movable(backend->root->self);
  if (!backend->runqueue.lanes[LANE_MAIN].entries) return;
  runqueue_mark(&backend->runqueue);
  list_each(node, &backend->waiting)
    rb_gc_mark_movable(list_entry(node, struct fiber_state, waiting)->self);
  list_each(node, &backend->noted) mark_if_limited(list_entry(node, struct fiber_state, noted));
}

static void backend_compact(void *pointer) {
  struct backend_base *backend = pointer;

  epoch++;
  backend->self = rb_gc_location(backend->self);
  backend->thread = rb_gc_location(backend->thread);
  backend->trace_proc = rb_gc_location(backend->trace_proc);
  backend->idle_proc = rb_gc_location(backend->idle_proc);
  backend->stand_ins = rb_gc_location(backend->stand_ins);
  backend->last_status = rb_gc_location(backend->last_status);
  backend->handed = rb_gc_location(backend->handed);
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

  epoch++;
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
  backend->thread_status = Qundef;
  list_init(&backend->waiting);
  list_init(&backend->noted);
  list_init(&backend->selects);
  return backend->self = TypedData_Wrap_Struct(klass, &backend_type, backend);
}

struct backend_base *backend_base_of(VALUE object) {
  struct backend_base *backend;

  TypedData_Get_Struct(object, struct backend_base, &backend_type, backend);
  return backend;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* rb_ary_delete compares with ==, which two exceptions of a class without backtrace are, and
 * calls the block of the method at hand (a timeout's) when it finds nothing. */
static bool delete_identical(VALUE array, VALUE object) {
  long length = RARRAY_LEN(array), i = 0;

  while (i < length && RARRAY_AREF(array, i) != object) i++;
  if (i < length) rb_ary_delete_at(array, i);
  return i < length;
}

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
  struct fiber_state *fiber = fiber_state_of(rb_fiber_current());
  fiber->backend = backend;
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
  generator_unwatch(backend);
  if (timeline_on) timeline_thread_end(backend);
  backend->open = false;
  epoch++;
  forget_waiting(backend);
  runqueue_clear(&backend->runqueue);
  loop_close(&backend->loop);
  delete_identical(backends, backend->self);
}

void backend_base_each(void (*each)(struct backend_base *, int), struct backend_base *except,
                       int arg) {
  for (long i = 0; i < RARRAY_LEN(backends); i++) {
    struct backend_base *backend = backend_base_of(RARRAY_AREF(backends, i));
    if (backend != except) each(backend, arg);
  }
}

static void remember(struct backend_base *backend) {
  here.thread = backend->thread;
  here.backend = backend;
  here.epoch = epoch;
}

struct backend_base *backend_base_of_thread(VALUE thread) {
  VALUE object = rb_ivar_get(thread, id_backend);

  return NIL_P(object) ? NULL : backend_base_of(object);
}

struct backend_base *backend_base_open_here(void) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  return backend && backend->open ? backend : NULL;
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

static struct backend_base *open_here(VALUE thread) {
  ractor_check();
  VALUE klass = rb_const_get(mPolyphony, rb_intern("Backend"));
  VALUE object = rb_class_new_instance(0, NULL, klass);
  struct backend_base *backend = backend_base_of(object);

  rb_ivar_set(thread, id_backend, object);
  return backend;
}

struct backend_base *backend_base_current(void) {
  VALUE thread = rb_thread_current();

  if (here.epoch == epoch && here.thread == thread) return here.backend;
  struct backend_base *backend = backend_base_of_thread(thread);
  if (!backend || !backend->open) backend = open_here(thread);
  remember(backend);
  return backend;
}

/* ---- the running fiber ---------------------------------------------------------------------- */

static void find_root(struct backend_base *backend, struct fiber_state *fiber) {
  VALUE noted = rb_ivar_get(backend->thread, id_root);
  struct fiber_state *root = NIL_P(noted) ? fiber : fiber_state_of(noted);

  root->backend = backend;
  RB_OBJ_WRITTEN(root->self, Qundef, backend->self);
  set_root(backend, root);
  backend->current = root;
  if (NIL_P(noted)) take_early_mail(backend->thread, root->fiber);
}

static struct fiber_state *adopt_current(struct backend_base *backend, VALUE current) {
  struct fiber_state *fiber = fiber_state_of(current);

  fiber->backend = backend;
  RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  if (!backend->root) find_root(backend, fiber);
  fiber->away = false;
  if (backend->current != fiber) generator_arrive(backend, fiber);
  return fiber;
}

/* A stock signal handler, an idle hook or a trace proc runs on top of a fiber that is waiting already:
 * its timer is armed, its op in flight, its buffer lent. Whoever asks for the running fiber is about
 * to set up another wait. */
static void refuse_in_handler(struct backend_base *backend) {
  if (backend->in_handler)
    rb_raise(rb_eThreadError, "a signal handler cannot wait here: spin a fiber in it instead");
}

static struct fiber_state *running(struct backend_base *backend) {
  VALUE current = rb_fiber_current();

  if (backend->current->fiber == current && backend->root) return backend->current;
  return adopt_current(backend, current);
}

struct fiber_state *backend_base_running(struct backend_base *backend) { return running(backend); }

struct fiber_state *backend_base_fiber(struct backend_base *backend) {
  refuse_in_handler(backend);
  if (RB_UNLIKELY(backend->unscheduled)) scheduler_come_back(backend);
  struct fiber_state *fiber = running(backend);
  if (fiber->wait_reason)
    rb_raise(rb_eThreadError, "this fiber waits for %s already: a handler or hook that runs meanwhile "
             "cannot wait, spin a fiber in it instead", fiber->wait_reason);
  fiber->away = fiber->at_turn = false;  /* stays set when an exception came out of its transfer */
  return fiber;
}

bool backend_base_may_wait_p(struct backend_base *backend) {
  return !backend->in_handler && !running(backend)->wait_reason;
}

/* ---- scheduling ----------------------------------------------------------------------------- */

/* Who can be switched to in the place of a fiber. The links are as of the last switchpoint: the
 * running fiber's are brought up to date first; those of a thread that is at work may be stale. */
static struct fiber_state *stand_in(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;
  bool here = backend->thread == rb_thread_current();

  if (here && backend->current->fiber != rb_fiber_current()) adopt_current(backend, rb_fiber_current());
  struct fiber_state *last = generator_innermost(fiber);
  return here || last->away || backend->polling ? last : fiber;
}

static uint64_t wakes;          /* of fibers, in all threads: see hopeless_p */

static void trace_schedule(struct backend_base *backend, struct fiber_state *fiber, VALUE value,
                           bool first) {
  VALUE event[] = { ID2SYM(rb_intern("schedule")), fiber->fiber, value, first ? Qtrue : Qfalse,
                    rb_make_backtrace() };

  backend_base_trace(backend, 5, event);
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

enum position { AT_TAIL, AT_TAIL_OF_EVENTS, AT_HEAD };

static void enqueue(struct backend_base *backend, struct fiber_state *fiber, VALUE value,
                    enum resume_how how, enum position position) {
  if (fiber->queued) merge(backend, fiber, value, how);
  else if (position == AT_HEAD) runqueue_unshift(&backend->runqueue, fiber, value, how);
  else if (position == AT_TAIL) runqueue_push(&backend->runqueue, fiber, value, how);
  else runqueue_push_event(&backend->runqueue, fiber, value, how);
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  RB_OBJ_WRITTEN(backend->self, Qundef, value);
}

/* Of a time limit in the fiber: nobody else can make sense of it. */
static bool own_limit_p(struct fiber_state *fiber, VALUE exception) {
  list_each(node, &fiber->scopes)
    if (list_entry(node, struct cancel_scope, link)->exception == exception) return true;
  return false;
}

static void hand_back_one(struct fiber_state *from, struct fiber_state *to, VALUE value,
                          enum resume_how how) {
  if (how == RESUME_RETURN || !own_limit_p(from, value))
    enqueue(to->backend, to, value, how, AT_TAIL);
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

/* Whether a shield or mask holds the exception back: one of the fiber's own, or of those it has resumed, down
 * to the one that waits in its place. */
static bool held_back_p(struct fiber_state *fiber, struct fiber_state *last, VALUE exception) {
  for (;; fiber = fiber->proxy) {
    if ((fiber->shields || fiber->masks) && cancel_scope_hold(fiber, exception)) return true;
    if (fiber == last) return false;
  }
}

/* Who wakes it, in words for a timeline: nobody, if it is an event or a thread without fibers. */
static void record_wake(struct fiber_state *woken, enum position position) {
  struct backend_base *mine = here.epoch == epoch && here.thread == rb_thread_current() ? here.backend : NULL;
  bool event = position == AT_TAIL_OF_EVENTS || !mine || !mine->current;

  timeline_wake(mine, event ? NULL : mine->current, woken);
}

static void schedule(struct fiber_state *fiber, VALUE value, enum resume_how how,
                     enum position position) {
  struct fiber_state *meant = fiber;

  if (fiber->proxy) fiber = stand_in(fiber);
  if (how == RESUME_RAISE && held_back_p(meant, fiber, value)) return;
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
  wakes++;
  enqueue(backend, fiber, value, how, position);
  if (position == AT_HEAD) move_to_front(backend, fiber);
  if (!NIL_P(backend->trace_proc)) trace_schedule(backend, fiber, value, position == AT_HEAD);
  if (backend->polling) loop_wake(&backend->loop);
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
  return !NIL_P(fiber->pending) && delete_identical(fiber->pending, exception);
}

/* A generator it has resumed may still have what was meant for it. */
static void update_links(struct backend_base *backend) {
  if (!backend->open || backend->thread != rb_thread_current()) return;
  if (backend->current->fiber != rb_fiber_current()) adopt_current(backend, rb_fiber_current());
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
  if (!NIL_P(fiber->held_back) && delete_identical(fiber->held_back, exception)) return true;
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

/* ---- polling -------------------------------------------------------------------------------- */

int64_t backend_base_now(struct backend_base *backend) {
  (void)backend;
  return clock_now();
}

void backend_base_arm(struct backend_base *backend, struct timer *timer, int64_t deadline) {
  if (timer_heap_arm(&backend->loop.timers, timer, deadline) < 0) rb_memerror();
}

/* As many sockets may wait for a loop that does not keep up: each costs a descriptor. */
#define MOST_AHEAD 64

/* A multishot accept that nobody waits for at the moment ends with its first socket, and one whose
 * loop has too many to come to: the others stay in the kernel's queue, where whoever is free finds
 * them, another process too. */
static void tell(struct backend_base *backend, struct op *op) {
  if (op->owner) backend_base_schedule_event(op->owner, Qnil, RESUME_RETURN);
  if (op->kind == OP_ACCEPT_MULTI && (!op->owner || op->shots_tail - op->shots_head > MOST_AHEAD))
    loop_cancel(&backend->loop, op);
}

void backend_base_collect(struct backend_base *backend) {
  struct op *op;

  while ((op = loop_shift_news(&backend->loop))) tell(backend, op);
}

static void fire_timers(struct backend_base *backend) {
  struct timer *timer;

  if (!backend->loop.timers.length) return;
  int64_t now = backend_base_now(backend);
  while ((timer = timer_heap_shift_due(&backend->loop.timers, now))) timer->fire(timer);
}

struct poll {
  struct loop *loop;
  int64_t timeout;
  int result;
};

static void *poll_nogvl(void *argument) {
  struct poll *poll = argument;

  poll->result = loop_poll(poll->loop, poll->timeout);
  return NULL;
}

static void unblock(void *loop) { loop_wake(loop); }

/* ASYNC_SAFE: an eventfd may be written to in a signal handler. Without it Ruby up to 3.2 starts
 * a thread for every wait of a program that has only one (140 us instead of 3). INTR_FAIL: comes
 * back without running interrupts, so that nothing is raised before our state is in order. */
enum { UNBLOCK_FLAGS = RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE };

/* Where interrupts cannot be run, in the middle of a raise: with INTR_FAIL the wait would never begin. */
static VALUE wait_heedless(VALUE argument) {
  struct poll *poll = (struct poll *)argument;

  rb_nogvl(poll_nogvl, poll, unblock, poll->loop, RB_NOGVL_UBF_ASYNC_SAFE);
  return Qnil;
}

/* Everything others look at is set before the GVL goes: whoever then schedules one of our fibers
 * sees `polling` and signals; a signal that comes before the wait makes it return at once. */
static int wait_without_gvl(struct backend_base *backend, int64_t timeout, int *state) {
  struct poll poll = { &backend->loop, timeout, 0 };

  backend->hopeful = backend_base_pending_p(backend);
  backend->polling = true;
  if (backend->deaf) rb_protect(wait_heedless, (VALUE)&poll, state);
  else rb_nogvl(poll_nogvl, &poll, unblock, &backend->loop, UNBLOCK_FLAGS);
  backend->polling = false;
  return poll.result;
}

static int64_t patience(struct backend_base *backend) {
  int64_t most = holding_patience(), look_again = backend->look_again;

  backend->look_again = 0;
  if (most < 0) most = stock_lock_patience();
  return look_again && (most < 0 || look_again < most) ? look_again : most;
}

static int64_t time_to_wait(struct backend_base *backend) {
  struct timer *first = timer_heap_first(&backend->loop.timers);
  int64_t most = patience(backend);

  if (!first) return most;
  int64_t left = first->deadline - backend_base_now(backend);
  if (left < 0) return 0;
  return most < 0 || left < most ? left : most;
}

/* Somebody may have called Thread#raise, or be about to: what is meant for the fiber that runs, or
 * for those that wait, is not to hit whoever runs next.
 *
 * The signal with which Ruby ends another thread's system call is lost if that thread was just about
 * to enter it (Thread#kill before a read). So Ruby up to 3.2 has a timer end the main thread's wait
 * every 100 ms, and its own waits then send the signal again. Ours does so by giving way, which is
 * the only such call there is for extensions, when it was ended and there is nothing to run. */
static VALUE check_ints(VALUE argument) {
  struct backend_base *backend = (struct backend_base *)argument;

  backend->deaf = false;
  if (!backend->runqueue.length) rb_thread_schedule();
  do {
    while (backend->interrupters) rb_thread_schedule();
    backend->interrupted = false;
    rb_thread_check_ints();     /* lets other threads run, which may begin to raise */
  } while (backend->interrupted);
  backend->deaf = rb_thread_interrupted(backend->thread);
  return Qnil;
}

/* It was woken for the wait that an exception ends now: the next one is not to end at once. */
static void drop_plain_wake(struct backend_base *backend, struct fiber_state *fiber) {
  if (fiber->queued && runqueue_find(&backend->runqueue, fiber)->how == RESUME_RETURN)
    runqueue_remove(&backend->runqueue, fiber);
}

/* Signals and Thread#raise are meant for the thread: they go to its main fiber, whichever fiber
 * happened to be polling. Thread#kill is no exception and unwinds the fiber at hand. */
static void heed(struct backend_base *backend, int state) {
  VALUE error = rb_errinfo();
  backend->interrupted = true;  /* Ruby raises one at a time: there may be more */
  bool exception = RTEST(rb_obj_is_kind_of(error, rb_eException));
  struct fiber_state *self = running(backend);
  if (!exception || self == stand_in(backend->root)) {
    drop_plain_wake(backend, self);
    rb_jump_tag(state);
  }
  rb_set_errinfo(Qnil);
  backend_base_schedule_first(backend->root, error, RESUME_RAISE);
}

/* In the fiber that runs, which is meant. */
static void be_interrupted(struct backend_base *backend) {
  int state;

  rb_protect(check_ints, (VALUE)backend, &state);
  if (!state) return;
  backend->interrupted = true;  /* see heed */
  rb_jump_tag(state);
}

static void check_interrupts(struct backend_base *backend) {
  int state;

  backend->in_handler = true;
  rb_protect(check_ints, (VALUE)backend, &state);
  backend->in_handler = false;
  if (state) heed(backend, state);
}

static void trace_poll(struct backend_base *backend, const char *name) {
  VALUE event[] = { ID2SYM(rb_intern(name)), rb_fiber_current() };

  backend_base_trace(backend, 2, event);
}

/* Calls, in which interrupts are run as in any other. */
static VALUE look_around(VALUE argument) {
  fire_timers((struct backend_base *)argument);
  holding_look();
  stock_lock_look(false);
  return Qnil;
}

static bool worth_a_look_p(struct backend_base *backend) {
  return backend->loop.timers.length > 0 || holding_patience() >= 0 || stock_lock_patience() >= 0;
}

static void poll_for(struct backend_base *backend, int64_t timeout) {
  int state = 0;
  int rc = timeout == 0 ? loop_poll(&backend->loop, 0) : wait_without_gvl(backend, timeout, &state);

  backend->poll_count++;
  backend->switched = 0;
  backend_base_collect(backend);
  if (!state && worth_a_look_p(backend)) rb_protect(look_around, (VALUE)backend, &state);
  backend->batch = backend->runqueue.length;
  if (state) heed(backend, state);
  if (rc < 0) error_raise_errno(rc, "waiting for events");
}

/* Nobody says when other threads begin to wait, or end: they are looked at again after that time. */
static const int64_t LOOK_AT_THREADS = NSEC_PER_SEC / 500;

static int64_t shorter(int64_t one, int64_t other) {
  return one < 0 || (other >= 0 && other < one) ? other : one;
}

struct jump {
  int64_t quiet;
  bool jumped;
};

static VALUE jump(VALUE argument) {
  struct jump *jump = (struct jump *)argument;

  jump->jumped = virtual_clock_jump(jump->quiet);
  return Qnil;
}

/* Where time is a test's: events get real time to arrive, and when none does time jumps. Who is woken
 * before that has to find out why first. */
static void poll_in_virtual_time(struct backend_base *backend) {
  struct timer *first = timer_heap_first(&backend->loop.timers);
  int64_t most = patience(backend), quiet = virtual_clock_quiet(), began = clock_monotonic();
  struct jump attempt = { quiet, false };
  bool due = first && first->deadline <= clock_now();
  int state;

  poll_for(backend, due ? 0 : quiet < 0 ? shorter(most, LOOK_AT_THREADS) : quiet);
  if (due || quiet < 0 || backend->runqueue.length || clock_monotonic() - began < quiet) return;
  rb_protect(jump, (VALUE)&attempt, &state);
  if (state) heed(backend, state);
  else poll_for(backend, attempt.jumped || backend->runqueue.length ? 0 : shorter(most, LOOK_AT_THREADS));
}

void backend_base_poll(struct backend_base *backend, bool blocking) {
  bool tracing = !NIL_P(backend->trace_proc);

  if (tracing) trace_poll(backend, "enter_poll");
  bool waits = blocking && !backend->runqueue.length;  /* asked now: the proc may have let other threads run */
  if (RB_UNLIKELY(timeline_on)) timeline_poll(backend, backend->current, TIMELINE_POLL);
  if (RB_UNLIKELY(clock_shift.stopped) && waits) poll_in_virtual_time(backend);
  else poll_for(backend, waits ? time_to_wait(backend) : 0);
  if (RB_UNLIKELY(timeline_on)) timeline_poll(backend, backend->current, TIMELINE_POLLED);
  if (tracing) trace_poll(backend, "leave_poll");
  if (blocking) check_interrupts(backend);
}

bool backend_base_wake(struct backend_base *backend) {
  if (!backend->polling) return false;
  loop_wake(&backend->loop);
  return true;
}

/* ---- switching ------------------------------------------------------------------------------ */

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
  uint64_t before = wakes;
  int state;

  rb_protect(look_at_threads, (VALUE)&outlook, &state);
  if (state) heed(backend, state);  /* the main fiber is to run then */
  if (wakes != before) outlook = OUTLOOK_GOOD;
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

/* Everyone whom the last poll found or woke gets two turns first, one to read and one to answer:
 * many of them then wait for the same descriptor again, and a poll in between would report that
 * to nobody. */
static inline bool poll_due_p(struct backend_base *backend) {
  unsigned length = backend->runqueue.length;

  if (length < 2 * backend->batch) length = 2 * backend->batch;
  if (length > RUNQUEUE_CROWD) length = RUNQUEUE_CROWD;
  if (++backend->switched <= SWITCHES_PER_POLL || backend->switched <= length) return false;
  return backend_base_pending_p(backend);
}

static void find_runnable(struct backend_base *backend, struct fiber_state *self,
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

static void pass_on(struct backend_base *backend, struct fiber_state *from, struct fiber_state *to,
                    VALUE value, enum resume_how how) {
  if (how == RESUME_RETURN || !held_back_p(from, to, value))
    enqueue(backend, to, value, how, AT_HEAD);
}

/* It was scheduled while it ran, or its generator did in another thread; now that one waits. */
static bool passed_on_p(struct backend_base *backend, struct runqueue_entry *entry) {
  struct fiber_state *fiber = entry->fiber, *last = fiber->proxy ? stand_in(fiber) : fiber;
  VALUE more = fiber->pending;

  if (last == fiber) return false;
  fiber->pending = Qnil;
  pass_on(backend, fiber, last, entry->value, entry->how);
  for (long i = 0; !NIL_P(more) && i < RARRAY_LEN(more); i++)
    pass_on(backend, fiber, last, RARRAY_AREF(more, i), RESUME_RAISE);
  RB_GC_GUARD(more);
  return true;
}

static void take_next(struct backend_base *backend, struct fiber_state *self,
                      enum switch_idle idle, struct runqueue_entry *next) {
  struct runqueue *queue = &backend->runqueue;

  do {
    if (!queue->length) find_runnable(backend, self, idle);
    else if (poll_due_p(backend) || (queue->length == 1 && self->queued && backend_base_pending_p(backend)))
      backend_base_poll(backend, false);
    while (backend->interrupted) check_interrupts(backend);  /* hooks let other threads run */
    runqueue_shift(queue, next);
  } while (passed_on_p(backend, next));
}

void backend_base_queue_pending(struct fiber_state *fiber) {
  if (!NIL_P(fiber->pending) && RARRAY_LEN(fiber->pending) > 0)
    enqueue(fiber->backend, fiber, rb_ary_shift(fiber->pending), RESUME_RAISE, AT_TAIL);
}

static VALUE transfer_body(VALUE argument) {
  struct runqueue_entry *next = (struct runqueue_entry *)argument;

  /* The method asks whether that fiber may be switched to; up to Ruby 3.2 the function does not. */
  if (next->fiber->spun || next->fiber->root) return rb_fiber_transfer(next->fiber->fiber, 1, &next->value);
  return rb_funcallv(next->fiber->fiber, id_transfer, 1, &next->value);
}

static VALUE stack_error(VALUE error) {
  return rb_exc_new_str(CLASS_OF(error), rb_sprintf("%"PRIsVALUE"; every fiber needs two memory "
    "mappings, raise the limit: sysctl vm.max_map_count", rb_obj_as_string(error)));
}

/* Stacks of fibers that have ended are only given back by the GC: it is asked once, and not again
 * before others have ended, for with that many fibers it takes long. */
static bool try_again(struct backend_base *backend, struct runqueue_entry *next) {
  if (next->fiber->retried || backend->ended_at_gc == backend->ended_count) return false;
  next->fiber->retried = true;
  backend->ended_at_gc = backend->ended_count;
  rb_gc_start();
  enqueue(backend, next->fiber, next->value, next->how, AT_HEAD);
  return true;
}

/* Ruby may refuse to switch: there is no memory for the stack of a new fiber, which then ends
 * with that error; or a fiber that is not ours has ended, or has yielded to whoever resumes it,
 * and was scheduled by mistake: the main fiber is told. */
static void refuse(struct backend_base *backend, struct runqueue_entry *next) {
  VALUE error = rb_errinfo();
  bool newborn = next->fiber->spun && !next->fiber->started;

  rb_set_errinfo(Qnil);
  if (own_limit_p(next->fiber, next->value)) return;   /* incoming: it gets it when it waits again */
  if (next->how == RESUME_RAISE && !NIL_P(fiber_state_noted(next->value, id_source))) {
    next->fiber->incoming = Qundef;
    error = next->value;        /* of a child: it must not be lost */
  }
  if (!newborn) backend_base_schedule(backend->root, error, RESUME_RAISE);
  else if (!try_again(backend, next)) fiber_life_fail(next->fiber, stack_error(error));
}

/* What rb_errinfo says of a fiber that is being killed (Fiber#kill, since 3.3); Qundef if fibers cannot be. */
static VALUE fiber_kill = Qundef;

static VALUE yield_once(VALUE nothing) { return rb_fiber_yield(0, &nothing); }

static VALUE note_kill(RB_BLOCK_CALL_FUNC_ARGLIST(first, data)) {
  int state;
  (void)first, (void)data, (void)argc, (void)argv, (void)blockarg;

  rb_protect(yield_once, Qnil, &state);
  if (FIXNUM_P(rb_errinfo())) fiber_kill = rb_errinfo();
  if (state) rb_jump_tag(state);
  return Qnil;
}

/* Ruby has no name for it: one is killed, and looked at. */
static void learn_fiber_kill(void) {
  VALUE fiber = rb_fiber_new(note_kill, Qnil);

  if (!rb_respond_to(fiber, id_kill)) return;
  rb_fiber_resume(fiber, 0, NULL);
  rb_funcallv(fiber, id_kill, 0, NULL);
}

/* Ruby kills a fiber that is not ours again whenever it is switched to. What it does in an ensure, closing a
 * connection for instance, has to wait; so only the first time counts, which is not here: a fiber that
 * waits gets an exception. */
static bool killable_p(const struct fiber_state *fiber) {
  return fiber_kill != Qundef && generator_p(fiber);
}

static bool killed_again_p(struct backend_base *backend, struct fiber_state *self) {
  return killable_p(self) && rb_errinfo() == fiber_kill && (backend->current == self || backend->handover);
}

static VALUE transfer_with_care(struct backend_base *backend, struct fiber_state *self,
                                struct runqueue_entry *next) {
  int state;
  VALUE value = rb_protect(transfer_body, (VALUE)next, &state);

  if (!state) return value;
  if (killed_again_p(backend, self)) {
    rb_set_errinfo(Qnil);
    value = backend->handover ? Qnil : backend->handed;
    backend->handed = Qnil;
    return value;
  }
  /* We were away and came back; or that fiber was killed with the thread, and now it is our turn. */
  bool killed = !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eException));
  if (killed || backend->current != next->fiber) rb_jump_tag(state);
  backend->current = self;
  refuse(backend, next);
  backend->handover = true;
  return Qnil;
}

static VALUE transfer(struct backend_base *backend, struct fiber_state *self,
                      struct runqueue_entry *next) {
  struct fiber_state *target = next->fiber;
  VALUE fiber = target->fiber;
  VALUE value;

  self->away = true;
  target->switches++;
  backend->current = target;
  backend->how = next->how;
  backend->handover = false;
  if (next->how == RESUME_RAISE) FIBER_WRITE(target, incoming, next->value);
  if (killable_p(target)) RB_OBJ_WRITE(backend->self, &backend->handed, next->value);
  if (target->started && (target->spun || target->root) && !killable_p(self)) {
    value = rb_fiber_transfer(fiber, 1, &next->value);
  } else {
    /* It may yield to whoever resumed it, and be dropped: `current` must not be all it has. */
    RB_OBJ_WRITTEN(backend->self, Qundef, target->self);
    value = transfer_with_care(backend, self, next);
  }
  RB_GC_GUARD(fiber);           /* target may have no other reference until it runs */
  self->away = false;
  if (backend->current != self && !backend->handover) generator_came_back(backend);
  backend->current = self;
  if (generator_p(self) && !self->escorted) generator_watch(backend);
  return value;
}

static void trace_block(struct backend_base *backend, struct fiber_state *self) {
  VALUE event[] = { ID2SYM(rb_intern("block")), self->fiber, rb_make_backtrace() };

  backend_base_trace(backend, 3, event);
}

static void trace_unblock(struct backend_base *backend, struct fiber_state *self, VALUE value) {
  VALUE event[] = { ID2SYM(rb_intern("unblock")), self->fiber, value, rb_make_backtrace() };

  backend_base_trace(backend, 4, event);
}

/* The proc may switch fibers itself. */
static void trace_unblock_keeping_how(struct backend_base *backend, struct fiber_state *self,
                                      VALUE value) {
  enum resume_how how = backend->how;

  trace_unblock(backend, self, value);
  backend->how = how;
}

bool backend_base_keeps_statuses;

VALUE backend_base_last_status(struct backend_base *backend) {
  VALUE status = rb_last_status_get();

  return status == backend->thread_status ? backend->last_status : status;
}

void backend_base_show_status(struct backend_base *backend, VALUE status) {
  RB_OBJ_WRITE(backend->self, &backend->last_status, status);
  RB_OBJ_WRITE(backend->self, &backend->thread_status, rb_last_status_get());
}

/* Goes on with the next entry, polling when there is none or when it is time; no transfer when it is
 * the present fiber. If a fiber ended and came back through the VM, it is the turn of the one after. */
static VALUE go_on(struct backend_base *backend, struct fiber_state *self, enum switch_idle idle) {
  struct runqueue_entry next;
  VALUE value;

  do {
    take_next(backend, self, idle, &next);
    stall_turn_begins(backend);
    if (RB_UNLIKELY(timeline_on)) timeline_switch(backend, self, next.fiber, next.how == RESUME_RAISE);
    if (next.fiber == self) {
      backend->how = next.how;
      backend->handover = false;
      return next.value;
    }
    value = transfer(backend, self, &next);
  } while (backend->handover);
  return value;
}

/* It is this fiber's turn again. status is its $?, or Qundef. */
static VALUE come_back(struct backend_base *backend, struct fiber_state *self, VALUE value, VALUE status) {
  if (status != Qundef) backend_base_show_status(backend, status);
  self->incoming = Qundef;
  if (self->masks && backend->how == RESUME_RAISE) FIBER_WRITE(self, arrived, value);
  if (!NIL_P(self->pending)) backend_base_queue_pending(self);
  if (!NIL_P(backend->trace_proc)) trace_unblock_keeping_how(backend, self, value);
  return value;
}

/* An exception that a signal had pushed aside is delivered first. */
static VALUE switch_from(struct backend_base *backend, struct fiber_state *self,
                         enum switch_idle idle) {
  VALUE value, status = Qundef;

  refuse_in_handler(backend);
  if (backend->interrupted) be_interrupted(backend);
  if (self->incoming != Qundef) {
    VALUE incoming = self->incoming;
    self->incoming = Qundef;
    enqueue(backend, self, incoming, RESUME_RAISE, AT_HEAD);
  }
  self->idle_ok = idle == SWITCH_MAY_RETURN;
  backend->switch_count++;
  stall_turn_ends(backend, self);
  if (!NIL_P(backend->trace_proc)) trace_block(backend, self);
  if (backend_base_keeps_statuses) status = backend_base_last_status(backend);
  value = go_on(backend, self, idle);
  return come_back(backend, self, value, status);
}

VALUE backend_base_switch_fiber(struct backend_base *backend, enum switch_idle idle) {
  struct fiber_state *self = backend_base_fiber(backend);

  self->wait_since = clock_now_coarse();
  return switch_from(backend, self, idle);
}

VALUE backend_base_suspend(struct backend_base *backend, enum switch_idle idle) {
  VALUE value = backend_base_switch_fiber(backend, idle);

  return backend->how == RESUME_RAISE ? error_invoke(value) : value;
}

/* Nobody else is there and nothing can come: a turn through the queue would change nothing. */
static inline bool alone_in_the_world_p(const struct backend_base *backend,
                                        const struct fiber_state *self) {
  return !backend->runqueue.length && !backend_base_pending_p(backend) && self->incoming == Qundef;
}

enum { MOST_QUICK = 32 };

bool backend_base_quick_p(struct backend_base *backend) {
  if (backend->quick_at != backend->switch_count) backend->quick_count = 0;
  backend->quick_at = backend->switch_count;
  return ++backend->quick_count <= MOST_QUICK;
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* A fiber that gives others their turn goes to the end of the queue, and mostly the next one has done the same.
 * Then there is nothing to look at but whether it is time for a poll, or whether something uncommon is the case:
 * for that there is the long way, through switch_from. The order is the same on both. */
static inline bool uncommon_p(struct backend_base *backend, const struct fiber_state *self) {
  return backend->interrupted || backend->in_handler || self->queued || self->wait_reason || stall_limit || timeline_on ||
         self->incoming != Qundef || !NIL_P(backend->trace_proc) || backend->unscheduled ||
         (++backend->switched > SWITCHES_PER_POLL && backend_base_pending_p(backend));
}

/* Who can be switched to at once; or NULL. */
static inline struct fiber_state *next_at_turn(struct backend_base *backend, const struct fiber_state *self) {
  struct runqueue_entry *next = runqueue_plain_next(&backend->runqueue);

  if (!next || !next->fiber || !next->fiber->at_turn || next->fiber->proxy || next->how != RESUME_RETURN) return NULL;
  return uncommon_p(backend, self) ? NULL : next->fiber;
}

/* After a turn that did not just end: an exception came, or another fiber ended, or was not as it seemed. */
static VALUE come_back_late(struct backend_base *backend, struct fiber_state *self, VALUE value, VALUE status) {
  if (backend->current != self && !backend->handover) generator_came_back(backend);
  backend->current = self;
  if (backend->handover) value = go_on(backend, self, SWITCH_MUST_WAIT);
  return come_back(backend, self, value, status);
}

/* There is no write barrier: both are spun or the first of a thread, so they are their parent's or the backend's. */
static inline VALUE turn_to(struct backend_base *backend, struct fiber_state *self, struct fiber_state *next) {
  VALUE fiber = next->fiber, value = runqueue_plain_next(&backend->runqueue)->value, status = Qundef;

  if (backend_base_keeps_statuses) status = backend_base_last_status(backend);
  runqueue_rotate(&backend->runqueue, self);
  self->away = self->at_turn = true;
  self->idle_ok = false;
  next->switches++;
  backend->switch_count++;
  backend->current = next;
  backend->how = RESUME_RETURN;
  backend->handover = false;
  value = rb_fiber_transfer(fiber, 1, &value);
  self->away = self->at_turn = false;
  if (RB_UNLIKELY(backend->current != self || backend->handover || backend->how == RESUME_RAISE ||
                  status != Qundef || !NIL_P(self->pending) || !NIL_P(backend->trace_proc)))
    return come_back_late(backend, self, value, status);
  return value;
}

static VALUE turn_the_long_way(struct backend_base *backend, struct fiber_state *self) {
  enqueue(backend, self, Qnil, RESUME_RETURN, AT_TAIL);
  self->at_turn = self->spun || self->root;
  VALUE value = switch_from(backend, self, SWITCH_MUST_WAIT);
  self->at_turn = false;
  return value;
}

static VALUE take_turn(struct backend_base *backend, struct fiber_state *self) {
  struct fiber_state *next = self->spun || self->root ? next_at_turn(backend, self) : NULL;
  VALUE value = next ? turn_to(backend, self, next) : turn_the_long_way(backend, self);

  return RB_UNLIKELY(backend->how == RESUME_RAISE) ? error_invoke(value) : value;
}

VALUE backend_base_snooze(struct backend_base *backend) {
  struct fiber_state *self = backend_base_fiber(backend);

  if (alone_in_the_world_p(backend, self) && !backend->in_handler) {
    backend->switch_count++;
    stall_turn_ends(backend, self);
    stall_turn_begins(backend);
    return Qnil;
  }
  return take_turn(backend, self);
}

/* No two fibers are at the same place of a stack at once. So who is where the last resched of the fiber that was
 * switched to last has been, is that fiber, whatever it has resumed in between: neither Ruby's thread nor its fiber
 * need be asked for, which takes 120 instructions. */
static inline struct fiber_state *same_as_last(VALUE sched, const void *frame) {
  if (here.epoch != epoch) return NULL;
  struct fiber_state *fiber = here.backend->current;
  return fiber->frame == frame && fiber->sched == sched ? fiber : NULL;
}

static bool resched_the_long_way(VALUE sched, const void *frame) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *self = backend_base_fiber(backend);

  if (self->sched != sched) return false;
  self->frame = self->spun ? frame : NULL;
  backend_base_snooze(backend);
  return true;
}

bool backend_base_resched(VALUE sched, const void *frame) {
  struct fiber_state *self = same_as_last(sched, frame), *next;
  struct backend_base *backend = here.backend;

  if (!self || !(next = next_at_turn(backend, self))) return resched_the_long_way(sched, frame);
  VALUE value = turn_to(backend, self, next);
  if (RB_UNLIKELY(backend->how == RESUME_RAISE)) error_invoke(value);
  return true;
}

struct wait {
  struct backend_base *backend;
  struct fiber_state *self;
  enum switch_idle idle;
};

static VALUE wait_body(VALUE argument) {
  struct wait *wait = (struct wait *)argument;

  return switch_from(wait->backend, wait->self, wait->idle);
}

VALUE backend_base_wait(struct backend_base *backend, enum switch_idle idle, const char *reason,
                        VALUE subject, enum resume_how *how, int *state) {
  struct fiber_state *self = backend_base_fiber(backend);
  struct wait wait = { backend, self, idle };

  self->wait_reason = reason;
  self->wait_since = clock_now_coarse();
  FIBER_WRITE(self, wait_subject, subject);
  VALUE value = rb_protect(wait_body, (VALUE)&wait, state);
  *how = *state ? RESUME_RETURN : backend->how;
  self->wait_reason = NULL;
  self->wait_subject = Qnil;
  return value;
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

  if (backend->root && backend->root != fiber) backend->root->root = false;
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
  struct fiber_state *fiber = running(backend);

  backend->in_handler = backend->polling = backend->interrupted = backend->deaf = false;
  backend->interrupters = 0;
  backend->kill_masks = fiber->holds_kill;
  backend->kill_held = false;
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

/* ---- looking at it -------------------------------------------------------------------------- */

static void put(VALUE hash, const char *name, uint64_t number) {
  rb_hash_aset(hash, ID2SYM(rb_intern(name)), ULL2NUM(number));
}

VALUE backend_base_stats(struct backend_base *backend) {
  VALUE stats = rb_hash_new();

  put(stats, "runqueue_size", runqueue_capacity(&backend->runqueue));
  put(stats, "runqueue_length", backend->runqueue.length);
  put(stats, "runqueue_max_length", backend->runqueue.high_mark);
  put(stats, "op_count", backend->op_count);
  put(stats, "switch_count", backend->switch_count);
  put(stats, "poll_count", backend->poll_count);
  put(stats, "pending_ops", backend->open ? backend->loop.in_flight : 0);
  put(stats, "pending_timers", backend->open ? backend->loop.timers.length : 0);
  backend->op_total += backend->op_count;
  backend->switch_total += backend->switch_count;
  backend->poll_total += backend->poll_count;
  backend->op_count = backend->switch_count = backend->poll_count = 0;
  backend->runqueue.high_mark = backend->runqueue.length;
  return stats;
}

struct trace {
  VALUE proc;
  int argc;
  const VALUE *argv;
};

static VALUE trace_body(VALUE argument) {
  struct trace *trace = (struct trace *)argument;

  return rb_funcallv(trace->proc, id_call, trace->argc, trace->argv);
}

void backend_base_trace(struct backend_base *backend, int argc, const VALUE *argv) {
  struct trace trace = { backend->trace_proc, argc, argv };
  int state;

  if (NIL_P(trace.proc) || backend->tracing) return;
  backend->tracing = true;
  rb_protect(trace_body, (VALUE)&trace, &state);
  backend->tracing = false;
  if (state) rb_jump_tag(state);
}

static void finalize_all(VALUE nothing) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  (void)nothing;
  if (backend) backend_base_finalize(backend);
}

void backend_base_init(void) {
  rb_gc_register_address(&backends);
  backends = rb_ary_new();
  learn_fiber_kill();
  rb_set_end_proc(finalize_all, Qnil);
}
