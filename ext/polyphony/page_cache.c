/* page_cache.c - see page_cache.h */
#include <errno.h>
#include "attempt.h"
#include "page_cache.h"

#ifdef __linux__
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "clock.h"
#include "offload.h"

enum {
  MOST_BYTES = 1 << 18,                /* at a time: a copy of that takes some 50 us */
  FIRST_REST = 4, LAST_REST = 256,     /* times what the slow one took */
};
#define SLOW (NSEC_PER_SEC / 1000)     /* more than a copy takes, and less than a disk needs when it is busy */

static bool regular_p(int fd) {
  struct stat st;

  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Others either know RWF_NOWAIT, so that a driver's own try is enough, or ask somebody for each
 * write, who may be far away or in this process. */
static uint8_t ask(int fd) {
  struct statfs fs;

  if (!regular_p(fd) || fcntl(fd, F_GETFL) & (O_SYNC | O_DSYNC | O_DIRECT) || fstatfs(fd, &fs) < 0)
    return FD_ASKED;
  switch ((unsigned long)fs.f_type) {
  case TMPFS_MAGIC:
  case RAMFS_MAGIC:
    return FD_ASKED | FD_READ_AT_ONCE | FD_WRITE_AT_ONCE;
  case EXT4_SUPER_MAGIC:
  case OVERLAYFS_SUPER_MAGIC:
    return FD_ASKED | FD_WRITE_AT_ONCE | FD_READ_CACHED;
  default:
    return FD_ASKED | FD_READ_CACHED;
  }
}

static uint8_t hints_of(struct fd_slot *slot, int fd) {
  if (!(slot->hints & FD_ASKED)) slot->hints |= ask(fd);
  return slot->hints;
}

/* What has a place, and it is not the first, is a file or a disk; of pipes, sockets, terminals and what else may keep us waiting it is
 * not to be had, or always 0. To ask for that takes 130 ns here, fstat 300. */
static bool placed_p(int fd) { return lseek(fd, 0, SEEK_CUR) > 0; }

/* What the number stood for may have been closed behind our back: a pipe would keep us for good. */
static bool at_once_p(struct loop *loop, const struct op *op) {
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  if (!slot || !(hints_of(slot, op->fd) & (op->kind == OP_READ ? FD_READ_AT_ONCE : FD_WRITE_AT_ONCE))) return false;
  return placed_p(op->fd) || regular_p(op->fd);
}

/* Of a part that is there the rest may not be: at a position the driver fetches all. What the number stands for by now is no matter,
 * for nothing here waits, unless others wait for it. */
static bool cached_p(struct loop *loop, const struct op *op, int64_t *result) {
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  if (!slot || op->as.rw.len > MOST_BYTES || !(hints_of(slot, op->fd) & FD_READ_CACHED)) return false;
  if (slot->ops && (slot->ops != op || op->fd_next)) return false;
  *result = attempt_cached(op);
  if (*result == -EOPNOTSUPP) slot->hints &= ~FD_READ_CACHED;
  if (*result > 0 && (size_t)*result < op->as.rw.len) return op->as.rw.offset < 0;
  return *result >= 0;
}

static size_t vector_size(const struct op *op) {
  size_t size = 0;

  for (unsigned i = 0; i < op->as.vec.count && size <= MOST_BYTES; i++) size += op->as.vec.iov[i].iov_len;
  return size;
}

/* One slow call may be the scheduler's doing, which took the processor away. Those that follow each
 * other are the disk's, and wait for longer and longer until we ask again. */
static void note_duration(struct loop *loop, int64_t began, int64_t took) {
  if (took <= SLOW) {
    loop->files_rest = 0;
    return;
  }
  loop->files_rest = loop->files_rest ? loop->files_rest * 4 : FIRST_REST;
  if (loop->files_rest > LAST_REST) loop->files_rest = LAST_REST;
  loop->files_slow_until = began + took * (1 + loop->files_rest);
}

bool page_cache_do(struct loop *loop, const struct op *op, int64_t *result) {
  if (op->kind == OP_READ && cached_p(loop, op, result)) return true;
  if (!at_once_p(loop, op)) return false;

  struct op part = *op;
  if (op->kind != OP_WRITEV && part.as.rw.len > MOST_BYTES) part.as.rw.len = MOST_BYTES;
  if (op->kind == OP_WRITEV && vector_size(op) > MOST_BYTES) return false;

  int64_t began = clock_monotonic();
  if (began < loop->files_slow_until) return false;
  *result = op_execute(&part);
  note_duration(loop, began, clock_monotonic() - began);
  return true;
}
#else
bool page_cache_do(struct loop *loop, const struct op *op, int64_t *result) {
  (void)loop, (void)op, (void)result;
  return false;
}
#endif
