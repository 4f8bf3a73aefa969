/* io_time.c - sleeping and ticking; see io.h */
#include <float.h>
#include <math.h>
#include "clock.h"
#include "io.h"

int64_t io_nanoseconds(VALUE seconds) {
  if (RB_FIXNUM_P(seconds) && FIX2LONG(seconds) < INT64_MAX / 2 / NSEC_PER_SEC)
    return FIX2LONG(seconds) < 0 ? -1 : FIX2LONG(seconds) * NSEC_PER_SEC;
  if (!RTEST(rb_obj_is_kind_of(seconds, rb_cNumeric))) {  /* what divides like a number, as stock */
    struct timespec interval = rb_time_timespec_interval(seconds);
    seconds = rb_float_new((double)interval.tv_sec + (double)interval.tv_nsec / NSEC_PER_SEC);
  }
  double number = NUM2DBL(rb_to_float(seconds)) * (double)NSEC_PER_SEC;
  if (isnan(number)) rb_raise(rb_eArgError, "a duration cannot be %"PRIsVALUE, seconds);
  /* Half of the clock's range: centuries, and adding it to a deadline does not overflow. */
  if (number > (double)(INT64_MAX / 2)) return INT64_MAX / 2;
  if (number < 0) return -1;
  /* Up, so that nobody wakes early; but 0.3 s times 10^9 is not one more nanosecond for what doubles are off by. */
  return (int64_t)ceil(number * (1 - 2 * DBL_EPSILON));
}

int64_t io_interval(VALUE seconds) {
  if (NIL_P(seconds)) return -1;
  struct timespec interval = rb_time_timespec_interval(seconds);
  if (interval.tv_sec >= INT64_MAX / 2 / NSEC_PER_SEC) return INT64_MAX / 2;
  return interval.tv_sec * NSEC_PER_SEC + interval.tv_nsec;
}

int64_t io_period(VALUE seconds) {
  if (NIL_P(seconds)) return -1;
  int64_t period = io_nanoseconds(seconds);
  return period < 0 ? 0 : period;
}

static void arm(struct backend_base *backend, struct fiber_state *fiber, int64_t deadline) {
  backend_base_arm(backend, &fiber->timer, deadline);
  list_push(&backend->waiting, &fiber->waiting);
  backend_base_hold(backend, fiber);
}

static void disarm(struct backend_base *backend, struct fiber_state *fiber) {
  timer_heap_disarm(&backend->loop.timers, &fiber->timer);
  list_remove(&fiber->waiting);
}

/* A plain wake ends the sleep; its value is what sleep returns. */
static VALUE sleep_until(struct backend_base *backend, int64_t deadline) {
  struct fiber_state *fiber = backend_base_fiber(backend);
  enum resume_how how;
  int state;

  arm(backend, fiber, deadline);
  VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, "time to pass", Qnil, &how, &state);
  disarm(backend, fiber);
  if (state) rb_jump_tag(state);
  return how == RESUME_RAISE ? error_invoke(value) : value;
}

static VALUE sleep_for_ever(struct backend_base *backend) {
  enum resume_how how;
  int state;
  VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, "time to pass", Qnil, &how, &state);

  if (state) rb_jump_tag(state);
  return how == RESUME_RAISE ? error_invoke(value) : value;
}

VALUE io_sleep(int64_t nanoseconds) {
  struct backend_base *backend = backend_base_current();

  if (nanoseconds < 0) return sleep_for_ever(backend);
  return sleep_until(backend, backend_base_now(backend) + nanoseconds);
}

/* What a busy machine may keep us waiting: epoll rounds up to milliseconds, and another process
 * has the processor for some. A longer delay is of the program's own making. */
static const int64_t JITTER = 20 * 1000 * 1000;

/* The last tick of the grid up to that time. */
static int64_t last_due(int64_t tick, int64_t period, int64_t now) {
  return period > 0 && now > tick ? tick + (now - tick) / period * period : tick;
}

/* Ticks stay on the grid of the first one. Those that are late by jitter alone follow each other
 * until they have caught up: a loop of 1 ms keeps its rate. Those that other fibers or a slow block
 * made us miss are left out. */
VALUE io_timer_loop(int64_t period) {
  struct backend_base *backend = backend_base_current();
  int64_t tick = backend_base_now(backend) + period;

  if (period < 0) rb_raise(rb_eArgError, "an interval cannot be negative");
  for (;;) {
    sleep_until(backend, tick);
    int64_t started = backend_base_now(backend);
    if (started - tick > JITTER) tick = last_due(tick, period, started);
    rb_yield_values(0);
    int64_t now = backend_base_now(backend);
    if (now - started >= period) tick = last_due(tick, period, now);
    tick += period;
  }
  return Qnil;
}
