/* clock.h - monotonic time in nanoseconds. */
#ifndef POLYPHONY_CLOCK_H
#define POLYPHONY_CLOCK_H

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

#endif
