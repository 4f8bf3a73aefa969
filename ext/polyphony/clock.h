/* clock.h - monotonic time in nanoseconds. */
#ifndef POLYPHONY_CLOCK_H
#define POLYPHONY_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC INT64_C(1000000000)
#define CLOCK_NEVER  INT64_MAX

static inline int64_t clock_monotonic(void) {
  struct timespec ts;

  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The same to a few milliseconds, for a tenth of the cost: for reports. */
static inline int64_t clock_coarse(void) {
#ifdef CLOCK_MONOTONIC_COARSE
  struct timespec ts;

  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
#else
  return clock_monotonic();
#endif
}

#endif
