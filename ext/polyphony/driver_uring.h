/* driver_uring.h - what the three driver_uring*.c share; nobody else includes it.
 * Plain C, no GVL needed. A ring belongs to the thread that opened it. */
#ifndef POLYPHONY_DRIVER_URING_H
#define POLYPHONY_DRIVER_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include "clock.h"
#include "list.h"
#include "op.h"

/* Room for one batch. More ops than that in one turn cost one system call per 256, which is lost
 * in the price of the ops; a ring of each thread should be small (16 KiB + 64 KiB here). */
#define URING_ENTRIES 256
#define URING_LEAST_ENTRIES 32          /* below that we would rather use another driver */
#define URING_COMPLETIONS_PER_ENTRY 16  /* an overflow is not lost, but costs allocations */

/* How long we wait at most while the ring cannot take something, or does not let go of an op. */
#define URING_SLICE (NSEC_PER_SEC / 200)

/* Buffers for OP_RECV_MULTI. 8 KiB holds a usual request or a TLS record's half; 256 of them are
 * as many shots as one batch can bring. 2 MiB of address space, touched only as far as used. */
#define URING_BUFFERS 256
#define URING_BUFFER_SIZE 8192
#define URING_BUFFER_GROUP 0

/* What the entry of an op in the ring is, or was. */
enum uring_step {
  URING_ISSUE,                   /* the op itself */
  URING_AWAIT,                   /* a poll, and then the plain system call */
  URING_NAP,                     /* a little time, and then ISSUE again */
  URING_WATCH,                   /* OP_POLL that was told of what it had not asked for */
  URING_REFUSE,                  /* one that fails; op->result has the reason */
};

struct uring {
  struct io_uring ring;
  unsigned generation;           /* forks seen when it was opened, see uring_inherited_p */
  uint32_t features;             /* enum driver_feature */
  bool lacks[OP_KINDS];          /* the ring has no opcode for it: a worker does it */
  int write_flags;               /* RWF_NOSIGNAL where the kernel knows it, else 0 */

  struct list queued;            /* ops that wait for room in the ring, chains in one piece */
  struct list running;           /* ops that the kernel has, or finds in the ring at next enter */
  struct op *open_chain;         /* last op of a chain whose end was not submitted yet, or NULL */
  unsigned owed;                 /* running ops whose withdrawal has to be sent (again) */
  int64_t owed_again;            /* when those sent in vain are sent again; only while owed > 0 */
  bool wake_armed, wake_once;    /* wake-up is being polled; the kernel has no multishot poll */

  struct io_uring_buf_ring *buffers;  /* and the buffers behind it; NULL until first used */
};

/* 0 or -errno. call, if not NULL, becomes the system call or the feature that was refused. */
int  uring_open(struct uring *u, unsigned entries, const char **call);
void uring_close(struct uring *u);     /* the caller has seen to it that nothing is running */
/* We are in a child of who opened it: the ring is not mapped here and must not be touched. */
bool uring_inherited_p(const struct uring *u);
void uring_forget(struct uring *u);    /* of an inherited one: drops the descriptor, no more */

int  uring_open_buffers(struct uring *u);              /* 0 or -errno; idempotent */
char *uring_buffer(struct uring *u, uint32_t buffer);
void uring_recycle(struct uring *u, uint32_t buffer);  /* ignores what is not one */

int  uring_probe(char *why, size_t size);              /* see driver.h */
void uring_describe(void (*tell)(void *argument, const char *group, const char *name, bool there), void *argument);

/* driver_uring_entry.c: what is asked of the kernel, and what its answers mean. */

int  uring_entry_check(struct uring *u, const struct op *op);   /* 0, or -errno: REFUSE it */
void uring_entry_prep(struct uring *u, struct io_uring_sqe *sqe, struct op *op,
                      enum uring_step step);

/* Both return the step to go on with, or -1 if *result is the op's; they may correct it.
 * judge: the answer to ISSUE. retry: the answer to AWAIT; makes the system call. */
int  uring_entry_judge(const struct op *op, int64_t *result);
int  uring_entry_retry(struct op *op, int64_t *result);

int64_t uring_entry_poll_now(const struct op *op);     /* OP_POLL: what poll(2) says; 0: nothing */
bool uring_entry_whole_p(const struct op *op, int64_t result);  /* a chain goes on after that */

#endif
