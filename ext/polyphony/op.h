/* op.h - one I/O operation as data: what is asked, what came of it, who waits for it.
 * Layers above describe, drivers carry out. Plain C: no ruby.h, no GVL needed.
 *
 * Life: IDLE -> IN_FLIGHT -> (WITHDRAWING ->) SETTLED -> back to the pool.
 * An op that was submitted is settled exactly once. From submit to settle the driver (and the
 * kernel behind it) owns every pointer in the request; before and after, the submitter does.
 * Ops live in struct op_pool and never move, because the kernel holds their address. */
#ifndef POLYPHONY_OP_H
#define POLYPHONY_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

enum op_kind {
  OP_NONE,
  OP_READ,           /* rw: into base; offset -1 reads at (and moves) the file position */
  OP_WRITE,          /* rw: from base; may be short; offset as for OP_READ */
  OP_WRITEV,         /* vec; may be short */
  OP_RECV,           /* rw with MSG_ flags */
  OP_SEND,           /* rw with MSG_ flags; may be short; MSG_NOSIGNAL is always added */
  OP_ACCEPT,         /* accept4 flags in accept.flags (SOCK_CLOEXEC); result: the new descriptor */
  OP_ACCEPT_MULTI,   /* as OP_ACCEPT, settles when it ends; each socket arrives as a shot (loop.h).
                        Only where the driver has DRIVER_MULTI_ACCEPT. */
  OP_RECV_MULTI,     /* bytes arrive as shots in driver-owned buffers. Only with DRIVER_MULTI_RECV. */
  OP_CONNECT,        /* connect.addr; result 0 */
  OP_POLL,           /* poll.events (POLLIN, POLLOUT ...); result: revents */
  OP_CLOSE,          /* closes op->fd */
  OP_FSYNC,          /* fsync.datasync */
  OP_OPEN,           /* open.path, flags (O_CLOEXEC is always added), mode; result: descriptor */
  OP_STAT,           /* stat.path ("" with AT_EMPTY_PATH: op->fd itself), fills *stat.buf */
  OP_CALL,           /* call.fn(call.arg) on a worker thread of call.lane (offload.h); result: what
                        it returns */
  OP_KINDS
};

enum op_state { OP_IDLE, OP_IN_FLIGHT, OP_WITHDRAWING, OP_SETTLED };

enum op_flag {
  OP_LINKED   = 1 << 0,  /* the next submitted op starts only after this one succeeded whole;
                            else it settles with -ECANCELED. Only with DRIVER_LINK. */
  OP_DETACHED = 1 << 1,  /* nobody waits: the loop releases it when it settles */
  OP_INTERNAL = 1 << 2,  /* the driver's own (wake-up): does not keep a poll waiting */
  OP_NOTIFIED = 1 << 3,  /* is in the loop's list of news */
  OP_MORE     = 1 << 4,  /* a multishot op that is still armed after its last shot */
};

/* What OP_STAT fills. */
#ifdef __linux__
#ifndef STATX_BASIC_STATS      /* musl before 1.2.4 */
#include <linux/stat.h>
#endif
#define STAT_BUFFER struct statx
#else
#define STAT_BUFFER struct stat
#endif

enum { OP_SMALL = 168 };   /* a usual message; what is longer is not worth a copy */

/* What a multishot op received and nobody took yet. Owned by the op; see loop_shift_shot. */
struct op_shot {
  int32_t result;        /* descriptor, byte count, 0 at EOF, or -errno */
  uint32_t buffer;       /* driver's id of the buffer with the bytes, for OP_RECV_MULTI */
};

struct op {
  uint8_t kind;          /* enum op_kind */
  uint8_t state;         /* enum op_state */
  uint8_t flags;         /* enum op_flag */
  int fd;                /* the descriptor it is about; -1 when there is none */
  union {
    struct { char *base; size_t len; int64_t offset; int flags; } rw;
    struct { struct iovec *iov; unsigned count; int64_t offset; } vec;
    struct { int flags; } accept;
    struct { struct sockaddr_storage *addr; socklen_t len; } connect;
    struct { unsigned events; const char *what; } poll;  /* what: it stands for, in words; or NULL */
    struct { bool datasync; } fsync;
    struct { const char *path; int flags; mode_t mode; } open;
    struct { const char *path; int flags; unsigned mask; STAT_BUFFER *buf; } stat;
    struct { int64_t (*fn)(void *); void *arg; bool orphanable; uint8_t lane; } call;
  } as;
  int64_t result;        /* when settled: 0 or more, or -errno */
  void *owner;           /* whoever is told; layer 0 never looks inside */
  void *memory;          /* malloc'd by the submitter (addresses, vectors); freed with the op */
  void (*dispose)(void *memory);  /* frees what memory points to, before it goes; or NULL. Called in
                            any thread */

  struct op_shot *shots; /* ring of shots, NULL until the first; capacity is a power of two */
  uint32_t shots_head, shots_tail, shots_size;

  struct op *next_news;  /* loop's list of ops with news */
  struct op *fd_next;    /* others in flight on the same descriptor */
  struct op **fd_prev;   /* NULL when not linked */
  struct op *next_free;  /* pool's free list; loop->offloaded when a worker is done with it */
  struct offload_job *job;  /* offload.c's record while a worker has the op, else NULL */

  union {                /* the driver's own; libev keeps its watcher here */
    char bytes[80];
    void *align;
  } driver;

  char small[OP_SMALL];  /* the submitter's: a few bytes to be written; not cleared */
};

const char *op_kind_name(enum op_kind kind);

static inline bool op_settled_p(const struct op *op) { return op->state == OP_SETTLED; }

/* What is to be done with the result of an op that was cancelled but succeeded all the same. */
enum op_reclaim {
  OP_RECLAIM_NOTHING,    /* done is done: bytes written, descriptor closed, readiness seen */
  OP_RECLAIM_BYTES,      /* bytes read must go to the descriptor's read-ahead */
  OP_RECLAIM_DESCRIPTOR, /* result is a descriptor nobody will get: close it */
};
enum op_reclaim op_reclaim_policy(enum op_kind kind);

#endif
