/* attempt.h - carries out an op at once if that is possible without waiting: what a driver that
 * only hears of readiness builds completion from. Does not block, and leaves the descriptor's
 * flags as it found them, because stdin, stdout and ttys are shared with other processes.
 * Knows neither loop nor driver. Plain C, no GVL needed. */
#ifndef POLYPHONY_ATTEMPT_H
#define POLYPHONY_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>
#include "op.h"

/* What an attempt comes to when it is not a result (0 or more, or -errno). */
#define ATTEMPT_WAIT    INT64_MIN        /* again when attempt_events(op) have come */
#define ATTEMPT_OFFLOAD (INT64_MIN + 1)  /* only a blocking call can do it: offload_submit */
#define ATTEMPT_PAUSE   (INT64_MIN + 2)  /* again in a little while, no event will tell when */

struct attempt {
  uint32_t done;    /* bytes moved so far, where MSG_WAITALL asks for all of them */
  uint8_t hints;    /* enum fd_hint of op->fd: in and out */
  bool ready;       /* attempt_events(op) have come */
};

int64_t attempt_op(struct op *op, struct attempt *attempt);

/* What to wait for, as for poll(2); errors and hang-ups always count, even with 0. */
unsigned attempt_events(const struct op *op);

/* OP_READ of a file: what is in the page cache; -EAGAIN if nothing is, -EOPNOTSUPP if that cannot be told. */
int64_t attempt_cached(const struct op *op);

/* Of pwritev2: that it raises no SIGPIPE; 0 where the kernel does not know that (before Linux 6.18). */
int attempt_nosignal(void);

#endif
