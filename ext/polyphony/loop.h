/* loop.h - the plain half of a backend: driver, wake-up, ops, timers, counters.
 * One per thread; only that thread touches it, except loop_wake (any thread, signal handlers)
 * and the offload list, which has its own lock. Plain C, no GVL needed anywhere in this file. */
#ifndef POLYPHONY_LOOP_H
#define POLYPHONY_LOOP_H

#include <pthread.h>
#include "driver.h"
#include "op.h"
#include "op_pool.h"
#include "timer_heap.h"
#include "wakeup.h"

struct fd_slot {
  struct op *ops;               /* in flight on this descriptor, newest first */
  uint8_t hints;                /* enum fd_hint */
  uint32_t watched;             /* libev: the poll in which a reader was found ready; 0: none */
};

/* What the last operation on a descriptor taught us. Only hints: a stale one costs a system
 * call, never a wrong result (the number may have been reused by another file). */
enum fd_hint {
  FD_DRAINED = 1 << 0,          /* the last read took all there was: trying again is futile */
  FD_STREAM  = 1 << 1,          /* no socket, but not on disk either: a pipe, a tty */
  FD_ASKED   = 1 << 2,          /* page_cache.c knows about the next three */
  FD_READ_AT_ONCE  = 1 << 3,
  FD_WRITE_AT_ONCE = 1 << 4,
  FD_READ_CACHED   = 1 << 5,
  FD_NO_SOCKET = 1 << 6,        /* recv and send said so: skip them */
  FD_BLIND   = 1 << 7,          /* does not know RWF_NOWAIT: only events tell */
};

struct loop_stats {
  uint64_t submitted, settled, cancelled, polls, waits, wakes;
};

struct loop {
  const struct driver *driver;
  void *driver_data;            /* the driver's own, NULL when closed */
  uint32_t features;            /* enum driver_feature, as probed for this loop */
  struct wakeup wakeup;
  int poller;                   /* the descriptor that the driver waits with; -1 if it is not known */
  struct op_pool pool;
  struct timer_heap timers;
  struct op *news, **news_tail; /* ops settled, or with new shots, that nobody has looked at */
  unsigned in_flight;           /* ops submitted and not settled, the driver's own excluded */
  struct fd_slot *fds;          /* by descriptor */
  unsigned fds_size;
  pthread_mutex_t offload_lock;
  unsigned offloads;            /* ops that are with a worker or in the next list */
  bool chained;                 /* the last op was linked to the next one */
  int64_t files_slow_until;     /* page_cache.c's: when to try again, */
  unsigned files_rest;          /* and how many times as long as it took that was; 0: it was quick */
  struct op *held;              /* to be begun at the next poll, by next_free: see faults.h */
  struct op *offloaded;         /* done by a worker, not settled yet; under offload_lock */
  struct loop_stats stats;
};

int  loop_open(struct loop *loop, const struct driver *driver);   /* 0 or -errno */
void loop_close(struct loop *loop);       /* settles whatever is in flight first; idempotent */
int  loop_after_fork(struct loop *loop);  /* child: forgets all ops and timers, reopens; 0 or -errno */
bool loop_owns_p(const struct loop *loop, int fd);  /* whether the loop ends with that descriptor */

/* A zeroed op of that kind on that descriptor (-1: none); NULL when memory is out. */
struct op *loop_acquire_op(struct loop *loop, enum op_kind kind, int fd);
/* Gives a settled (or never submitted) op back, with op->memory and unclaimed shots' buffers. */
void loop_release_op(struct loop *loop, struct op *op);

void loop_submit(struct loop *loop, struct op *op);
void loop_cancel(struct loop *loop, struct op *op);   /* no-op unless in flight */

/* Waits at most timeout_ns (see driver.h) and collects, offloaded work included. 0 or -errno. */
int  loop_poll(struct loop *loop, int64_t timeout_ns);

/* Next op with news, in the order in which news came; NULL when there is none. */
struct op *loop_shift_news(struct loop *loop);
/* Next shot of a multishot op; false when there is none. The taker owns descriptor or buffer. */
bool loop_shift_shot(struct op *op, struct op_shot *shot);

void loop_wake(struct loop *loop);                    /* any thread, async-signal-safe */

/* The first op in flight on a descriptor, for closing it; follow op->fd_next. */
struct op *loop_ops_on(struct loop *loop, int fd);
struct fd_slot *loop_new_slot(struct loop *loop, int fd);
/* The slot of a descriptor, grown on demand; NULL when memory is out or fd is negative. */
static inline struct fd_slot *loop_fd_slot(struct loop *loop, int fd) {
  return fd >= 0 && (unsigned)fd < loop->fds_size ? &loop->fds[fd] : loop_new_slot(loop, fd);
}

/* For whoever closes or replaces (dup2) a descriptor by other means than OP_CLOSE: what we know of
 * the number is void. Left out, a wait on the file that gets the number next may notice late. */
static inline void loop_forget_fd(struct loop *loop, int fd) {
  if (fd < 0 || (unsigned)fd >= loop->fds_size) return;
  loop->fds[fd].hints = 0;
  loop->fds[fd].watched = 0;
}

/* For drivers and offload. */
void loop_settle(struct loop *loop, struct op *op, int64_t result);
void loop_add_shot(struct loop *loop, struct op *op, struct op_shot shot);  /* a multishot's news */

#endif
