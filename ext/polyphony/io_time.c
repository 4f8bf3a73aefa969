/* io_time.c - sleeping and ticking; see io.h */
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
  return number < 0 ? -1 : (int64_t)ceil(number);
}

int64_t io_period(VALUE seconds) {
  if (NIL_P(seconds)) return -1;
  int64_t period = io_nanoseconds(seconds);
  return period < 0 ? 0 : period;
}

static void arm(struct backend_base *backend, struct fiber_state *fiber, int64_t deadline) {
  backend_base_arm(backend, &fiber->timer, deadline);
  list_push(&backend->waiting, &fiber->waiting);
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
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

/* Ticks stay on the grid of the first one; those that were missed are left out. */
static int64_t next_tick(int64_t deadline, int64_t period, int64_t now) {
  deadline += period;
  if (deadline <= now && period > 0) deadline += (now - deadline) / period * period + period;
  return deadline;
}

VALUE io_timer_loop(int64_t nanoseconds) {
  struct backend_base *backend = backend_base_current();
  int64_t deadline = backend_base_now(backend) + nanoseconds;

  if (nanoseconds < 0) rb_raise(rb_eArgError, "an interval cannot be negative");
  for (;;) {
    sleep_until(backend, deadline);
    rb_yield_values(0);
    deadline = next_tick(deadline, nanoseconds, backend_base_now(backend));
  }
  return Qnil;
}
