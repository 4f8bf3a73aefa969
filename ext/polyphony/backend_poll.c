/* backend_poll.c - how a thread waits for events: its timers, the time without the GVL, and the interrupts that Ruby has for
 * it. See backend_base.h */
#include "backend_parts.h"
#include "clock.h"
#include "errors.h"
#include "holding.h"
#include "stock_lock.h"
#include "timeline.h"
#include "trace.h"
#include "virtual_clock.h"

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
  backend->roused = false;
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
void backend_heed(struct backend_base *backend, int state) {
  VALUE error = rb_errinfo();
  backend->interrupted = true;  /* Ruby raises one at a time: there may be more */
  bool exception = RTEST(rb_obj_is_kind_of(error, rb_eException));
  struct fiber_state *self = backend_base_running(backend);
  if (!exception || self == backend_deputy(backend->root)) {
    drop_plain_wake(backend, self);
    rb_jump_tag(state);
  }
  rb_set_errinfo(Qnil);
  backend_base_schedule_first(backend->root, error, RESUME_RAISE);
}

/* In the fiber that runs, which is meant. */
void backend_be_interrupted(struct backend_base *backend) {
  int state;

  rb_protect(check_ints, (VALUE)backend, &state);
  if (!state) return;
  backend->interrupted = true;  /* see heed */
  rb_jump_tag(state);
}

void backend_check_interrupts(struct backend_base *backend) {
  int state;

  backend->in_handler = true;
  rb_protect(check_ints, (VALUE)backend, &state);
  backend->in_handler = false;
  if (state) backend_heed(backend, state);
}

void backend_run_errand(struct backend_base *backend) {
  void (*errand)(VALUE) = backend->errand;
  VALUE about = backend->errand_about;

  backend->errand = NULL;
  backend->errand_about = Qnil;
  errand(about);
  RB_GC_GUARD(about);
}

/* Calls, in which interrupts are run as in any other. */
static VALUE look_around(VALUE argument) {
  struct backend_base *backend = (struct backend_base *)argument;

  if (backend->errand) backend_run_errand(backend);
  fire_timers(backend);
  holding_look();
  stock_lock_look(false);
  return Qnil;
}

static bool worth_a_look_p(struct backend_base *backend) {
  return backend->loop.timers.length > 0 || backend->errand || holding_patience() >= 0 || stock_lock_patience() >= 0;
}

/* An errand that an exception came before is still to be run: nobody would wake it for that once more. */
static void poll_for(struct backend_base *backend, int64_t timeout) {
  int state = 0;

  if (RB_UNLIKELY(backend->errand != NULL)) timeout = 0;
  int rc = timeout == 0 ? loop_poll(&backend->loop, 0) : wait_without_gvl(backend, timeout, &state);

  backend->poll_count++;
  backend->switched = 0;
  backend_base_collect(backend);
  if (!state && worth_a_look_p(backend)) rb_protect(look_around, (VALUE)backend, &state);
  backend->batch = backend->runqueue.length;
  if (state) backend_heed(backend, state);
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
  if (state) backend_heed(backend, state);
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
  if (blocking) backend_check_interrupts(backend);
}

bool backend_base_wake(struct backend_base *backend) {
  if (!backend->polling) return false;
  loop_wake(&backend->loop);
  return true;
}

bool backend_base_send(struct backend_base *backend, void (*errand)(VALUE), VALUE about) {
  if (!backend->open || !backend->polling) return false;
  if (backend->errand) return backend->errand == errand && backend->errand_about == about;
  backend->errand = errand;
  RB_OBJ_WRITE(backend->self, &backend->errand_about, about);
  backend_rouse(backend);
  return true;
}
