/* faults.c - see faults.h */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "faults.h"
#include "loop.h"
#include "op.h"

#define KIND(name) (UINT32_C(1) << OP_##name)
#define READS   (KIND(READ) | KIND(RECV))
#define WRITES  (KIND(WRITE) | KIND(WRITEV) | KIND(SEND))
#define OPENS   (KIND(ACCEPT) | KIND(ACCEPT_MULTI) | KIND(OPEN))
#define ALL     (READS | WRITES | OPENS | KIND(CONNECT) | KIND(STAT))

enum file { STREAM = 1, SOCKET = 2, DISK = 4, PIPE = 8, TTY = 16, OTHER = 32 };   /* STREAM: a socket of that type */

static const struct {
  const char *name;
  uint32_t kinds;
  unsigned files;               /* enum file; 0: any */
  int error;                    /* 0: see strike */
} faults[FAULTS] = {
  [FAULT_SHORT_READ]  = { "short_read",  READS, STREAM | DISK | PIPE | TTY, 0 },
  [FAULT_SHORT_WRITE] = { "short_write", WRITES, STREAM | DISK | PIPE | TTY, 0 },
  [FAULT_EINTR]       = { "eintr",       ALL | KIND(POLL) | KIND(FSYNC), 0, 0 },
  [FAULT_EAGAIN]      = { "eagain",      READS | WRITES | KIND(ACCEPT) | KIND(ACCEPT_MULTI) | KIND(POLL), 0, 0 },
  [FAULT_ECANCELED]   = { "ecanceled",   READS | KIND(ACCEPT), 0, ECANCELED },
  [FAULT_ENOMEM]      = { "enomem",      ALL, 0, ENOMEM },
  [FAULT_EMFILE]      = { "emfile",      OPENS, 0, EMFILE },
  [FAULT_ECONNRESET]  = { "econnreset",  READS | WRITES, STREAM, ECONNRESET },
  [FAULT_EIO]         = { "eio",         READS | WRITES | KIND(FSYNC), DISK | PIPE | TTY | OTHER, EIO },
  [FAULT_ENOSPC]      = { "enospc",      WRITES | KIND(FSYNC), DISK, ENOSPC },
};

bool faults_on;
static uint64_t rates[FAULTS], counts[FAULTS];
static uint64_t state;

const char *fault_name(enum fault fault) { return faults[fault].name; }

void faults_set(const uint64_t new_rates[FAULTS], uint64_t seed) {
  bool on = false;

  for (int i = 0; i < FAULTS; i++) on = on || new_rates[i];
  memcpy(rates, new_rates, sizeof(rates));
  memset(counts, 0, sizeof(counts));
  state = seed;
  faults_on = on;
}

void faults_get(uint64_t old_rates[FAULTS], uint64_t old_counts[FAULTS]) {
  memcpy(old_rates, rates, sizeof(rates));
  memcpy(old_counts, counts, sizeof(counts));
}

/* splitmix64, which only counts: any thread may draw. */
static uint64_t draw(void) {
  uint64_t x = __atomic_add_fetch(&state, UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED);

  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static enum file file_of(int fd) {
  struct stat stat;
  int type;
  socklen_t size = sizeof(type);

  if (fstat(fd, &stat) < 0) return OTHER;
  if (S_ISREG(stat.st_mode)) return DISK;
  if (S_ISFIFO(stat.st_mode)) return PIPE;
  if (S_ISCHR(stat.st_mode)) return TTY;
  if (!S_ISSOCK(stat.st_mode)) return OTHER;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM) return SOCKET;
  return STREAM;
}

/* A part of the bytes, at least one; 0 when there is no part. */
static size_t part(size_t length) { return length > 1 ? 1 + draw() % (length - 1) : 0; }

/* What is written to a pipe goes whole up to that size, and programs count on it. */
static bool atomic_p(const struct op *op, size_t length) {
  return length <= PIPE_BUF && file_of(op->fd) == PIPE;
}

/* The first of several only: the vector itself is the submitter's. */
static bool shorten_vector(struct op *op) {
  size_t bytes = 0;

  for (unsigned i = 0; i < op->as.vec.count; i++) bytes += op->as.vec.iov[i].iov_len;
  if (op->as.vec.count < 2 || !op->as.vec.iov[0].iov_len || atomic_p(op, bytes)) return false;
  op->as.vec.count = 1;
  return true;
}

static bool shorten(struct op *op, bool writing) {
  if (op->kind == OP_WRITEV) return shorten_vector(op);
  size_t length = part(op->as.rw.len);
  bool whole = op->kind == OP_RECV && op->as.rw.flags & (MSG_WAITALL | MSG_PEEK);

  if (!length || whole || (writing && atomic_p(op, op->as.rw.len))) return false;
  op->as.rw.len = length;
  return true;
}

static void hold(struct loop *loop, struct op *op) {
  op->next_free = loop->held;
  loop->held = op;
}

/* Whether it happened; *over: the op is not to be begun. */
static bool strike(struct loop *loop, struct op *op, enum fault fault, bool *over) {
  if (fault == FAULT_SHORT_READ || fault == FAULT_SHORT_WRITE) return shorten(op, fault == FAULT_SHORT_WRITE);
  *over = true;
  if (faults[fault].error) loop_settle(loop, op, -faults[fault].error);
  else hold(loop, op);
  return true;
}

bool faults_strike(struct loop *loop, struct op *op) {
  bool over = false;

  if (op->flags & (OP_INTERNAL | OP_DETACHED)) return false;
  for (int i = 0; i < FAULTS && !over; i++) {
    if (!rates[i] || !(faults[i].kinds & UINT32_C(1) << op->kind) || draw() >> 32 >= rates[i]) continue;
    if (faults[i].files && !(faults[i].files & (op->kind == OP_OPEN ? OTHER : file_of(op->fd)))) continue;
    if (strike(loop, op, i, &over)) __atomic_add_fetch(&counts[i], 1, __ATOMIC_RELAXED);
  }
  return over;
}
