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

#endif
