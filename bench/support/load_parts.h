/* load_parts.h - what the load generators have in common: clocks, and how long answers took. */
#ifndef BENCH_LOAD_PARTS_H
#define BENCH_LOAD_PARTS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BUCKETS = 1 << 20 };            /* a bucket is one microsecond */

static uint32_t histogram[BUCKETS];
static uint64_t answers;

static void need(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static int64_t now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* In microseconds; all threads of the process. */
static double cpu_time(int pid) {
  clockid_t clock;
  struct timespec t;

  need(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0, "the clock of a process");
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static unsigned percentile(double part) {
  uint64_t rest = (uint64_t)(answers * part);
  unsigned i = 0;

  while (i < BUCKETS - 1 && rest >= histogram[i]) rest -= histogram[i++];
  return i;
}

#endif
