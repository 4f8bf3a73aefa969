/* clock.h - monotonic time in nanoseconds. */
#ifndef POLYPHONY_CLOCK_H
#define POLYPHONY_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC INT64_C(1000000000)
#define CLOCK_NEVER  INT64_MAX

static inline int64_t clock_read(clockid_t id) {
  struct timespec ts;

  clock_gettime(id, &ts);
  return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static inline int64_t clock_monotonic(void) { return clock_read(CLOCK_MONOTONIC); }

/* The same clock as of the kernel's last tick, some milliseconds ago: 8 ns instead of 30. */
static inline int64_t clock_monotonic_coarse(void) {
#ifdef CLOCK_MONOTONIC_COARSE
  return clock_read(CLOCK_MONOTONIC_COARSE);
#else
  return clock_read(CLOCK_MONOTONIC);
#endif
}

/* The clock of timers and of whatever is compared with them. It is the monotonic one, unless a test
 * has stopped it: then it stands still and jumps. It never goes back: when the test is over it goes on
 * from where it is, which may be ahead. Written by virtual_clock.c alone; under the GVL. */
extern struct clock_shift {
  bool stopped;
  int64_t now;                         /* while it is stopped */
  int64_t ahead;                       /* of the monotonic one, otherwise; 0 or more */
} clock_shift;

static inline int64_t clock_now(void) {
  if (__builtin_expect(clock_shift.stopped, 0)) return clock_shift.now;
  return clock_monotonic() + clock_shift.ahead;
}

static inline int64_t clock_now_coarse(void) {
  if (__builtin_expect(clock_shift.stopped, 0)) return clock_shift.now;
  return clock_monotonic_coarse() + clock_shift.ahead;
}

#endif
