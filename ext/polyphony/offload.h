/* offload.h - plain threads that carry out what the kernel offers only as a blocking call: names
 * to addresses, waiting for any child, and, for drivers without it, open, stat, fsync and file I/O
 * that is not in the page cache. Threads start on demand, idle ones end by themselves.
 * One pool for the process. Plain C; workers never touch Ruby and have all signals blocked. */
#ifndef POLYPHONY_OFFLOAD_H
#define POLYPHONY_OFFLOAD_H

#include "loop.h"

#define OFFLOAD_MAX_THREADS 64
#define OFFLOAD_MAX_LOOKUPS 64         /* at a time that somebody waits for; the others queue */
#define OFFLOAD_MAX_LOOKUP_THREADS 256 /* with those that go on for nobody */
#define OFFLOAD_IDLE_SECONDS 10        /* all four are what holds until offload_limit is called */

/* Each has threads of its own: a dead name server keeps nobody from a file. */
enum offload_lane { OFFLOAD_WORK, OFFLOAD_LOOKUP, OFFLOAD_LANES };

/* Has a worker run the op: the blocking system call of its kind, or as.call.fn for OP_CALL. When
 * done it goes to loop->offloaded and the loop is woken; loop_poll settles it.
 * If no thread can be started the op settles at once with -EAGAIN. */
void offload_submit(struct loop *loop, struct op *op);

/* Not started yet: settles with -ECANCELED at once. Running and orphanable: likewise, and the
 * worker's result is dropped: what call.fn uses must be in op->memory, which then lives until fn
 * returns (and is disposed of by the worker). Running otherwise: settles when the worker is done, which loop_poll will see. */
void offload_cancel(struct loop *loop, struct op *op);

void offload_collect(struct loop *loop);   /* settles what workers have finished for this loop */
void offload_drain(struct loop *loop);     /* waits for all workers that have an op of this loop */
void offload_after_fork(void);             /* child: the workers are gone, forget them */

/* From now on, and in a forked child: at most that many threads in each lane, and no more than above (0: as above), and for how
 * many nanoseconds one is kept that has nothing to do. Threads that are there finish what they do. Any thread. */
void offload_limit(unsigned threads, int64_t idle);

struct offload_stats {
  unsigned threads, idle, busy, waiting; /* busy ones may be at what was given up */
  unsigned largest;                      /* number of threads there was in this process */
  uint64_t done;
};
struct offload_stats offload_stats(enum offload_lane lane);  /* any thread */

/* The blocking system call of op's kind in the calling thread; result as in op->result. */
int64_t op_execute(struct op *op);

#endif
