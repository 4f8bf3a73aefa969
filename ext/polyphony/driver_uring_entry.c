/* driver_uring_entry.c - what an op asks of the kernel, and what the kernel's answers mean.
 * Knows nothing of queues, chains and withdrawing: driver_uring.c does that. */
#ifdef HAVE_LIBURING
#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include "clock.h"
#include "driver_uring.h"
#include "offload.h"

#define MOST_BYTES 0x7ffff000          /* the kernel cuts there itself; its length has 32 bits */

#ifndef ERESTARTSYS
#define ERESTARTSYS 512                /* the kernel's own; old ones let it through */
#endif

/* Asking. */

static unsigned clamp(size_t len) {
  return len < MOST_BYTES ? (unsigned)len : MOST_BYTES;
}

/* Without MSG_WAITALL a part would count as success, and the chain go on. */
static int message_flags(struct op *op) {
  return op->as.rw.flags | (op->flags & OP_LINKED ? MSG_WAITALL : 0);
}

static int directory(const struct op *op) { return op->fd >= 0 ? op->fd : AT_FDCWD; }

static void prep_read(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_read(sqe, op->fd, op->as.rw.base, clamp(op->as.rw.len), (__u64)op->as.rw.offset);
}

static void prep_write(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  io_uring_prep_write(sqe, op->fd, op->as.rw.base, clamp(op->as.rw.len), (__u64)op->as.rw.offset);
  sqe->rw_flags = u->write_flags;
}

static void prep_writev(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  io_uring_prep_writev(sqe, op->fd, op->as.vec.iov, op->as.vec.count, (__u64)op->as.vec.offset);
  sqe->rw_flags = u->write_flags;
}

static void prep_recv(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_recv(sqe, op->fd, op->as.rw.base, clamp(op->as.rw.len), message_flags(op));
}

static void prep_send(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_send(sqe, op->fd, op->as.rw.base, clamp(op->as.rw.len),
                     message_flags(op) | MSG_NOSIGNAL);
}

static void prep_accept(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  op->as.accept.flags |= SOCK_CLOEXEC;
  if (op->kind == OP_ACCEPT) io_uring_prep_accept(sqe, op->fd, NULL, NULL, op->as.accept.flags);
  else io_uring_prep_multishot_accept(sqe, op->fd, NULL, NULL, op->as.accept.flags);
}

static void prep_recv_multi(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_recv_multishot(sqe, op->fd, NULL, 0, op->as.rw.flags);
  sqe->flags |= IOSQE_BUFFER_SELECT;
  sqe->buf_group = URING_BUFFER_GROUP;
}

static void prep_connect(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_connect(sqe, op->fd, (struct sockaddr *)op->as.connect.addr, op->as.connect.len);
}

/* io_uring passes a wake-up on only if it is about what we wait for, but leaves POLLPRI out of that
 * (IO_ASYNC_POLL_COMMON, the bit has another use there): urgent data would wake nobody. POLLRDBAND
 * stands in for it; see judge_poll. */
static unsigned poll_events(const struct op *op) {
  return op->as.poll.events | (op->as.poll.events & POLLPRI ? POLLRDBAND : 0);
}

static void prep_poll(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_poll_add(sqe, op->fd, poll_events(op));
}

static void prep_close(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_close(sqe, op->fd);
}

static void prep_fsync(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_fsync(sqe, op->fd, op->as.fsync.datasync ? IORING_FSYNC_DATASYNC : 0);
}

static void prep_open(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_openat(sqe, directory(op), op->as.open.path, op->as.open.flags | O_CLOEXEC,
                       op->as.open.mode);
}

static void prep_stat(struct uring *u, struct io_uring_sqe *sqe, struct op *op) {
  (void)u;
  io_uring_prep_statx(sqe, directory(op), op->as.stat.path, op->as.stat.flags, op->as.stat.mask,
                      op->as.stat.buf);
}

static const struct {
  void (*prep)(struct uring *, struct io_uring_sqe *, struct op *);
  short ready;                   /* what to poll for after EAGAIN; 0: EAGAIN is an answer */
} kinds[OP_KINDS] = {
  [OP_READ]         = { prep_read,       POLLIN },
  [OP_WRITE]        = { prep_write,      POLLOUT },
  [OP_WRITEV]       = { prep_writev,     POLLOUT },
  [OP_RECV]         = { prep_recv,       POLLIN },
  [OP_SEND]         = { prep_send,       POLLOUT },
  [OP_ACCEPT]       = { prep_accept,     POLLIN },
  [OP_ACCEPT_MULTI] = { prep_accept,     POLLIN },
  [OP_RECV_MULTI]   = { prep_recv_multi, POLLIN },
  [OP_CONNECT]      = { prep_connect,    POLLOUT },
  [OP_POLL]         = { prep_poll,       0 },
  [OP_CLOSE]        = { prep_close,      0 },
  [OP_FSYNC]        = { prep_fsync,      0 },
  [OP_OPEN]         = { prep_open,       0 },
  [OP_STAT]         = { prep_stat,       0 },
};

static struct __kernel_timespec nap = { .tv_nsec = URING_SLICE };

void uring_entry_prep(struct uring *u, struct io_uring_sqe *sqe, struct op *op,
                      enum uring_step step) {
  switch (step) {
  case URING_ISSUE:  kinds[op->kind].prep(u, sqe, op); break;
  case URING_AWAIT:  io_uring_prep_poll_add(sqe, op->fd, kinds[op->kind].ready); break;
  case URING_NAP:    io_uring_prep_timeout(sqe, &nap, 0, 0); break;
  case URING_WATCH:  io_uring_prep_poll_multishot(sqe, op->fd, poll_events(op)); break;
  case URING_REFUSE: io_uring_prep_read(sqe, -1, NULL, 0, 0); break;
  }
}

static bool positional_p(const struct op *op) {
  switch (op->kind) {
  case OP_READ: case OP_WRITE: return op->as.rw.offset >= 0;
  case OP_WRITEV: return op->as.vec.offset >= 0;
  default: return false;
  }
}

/* io_uring overlooks an offset where there are no positions and just waits for bytes, while
 * pread(2) and pwrite(2) refuse. Not by lseek(2): that may wait for another thread's read. */
static int check_position(int fd) {
  struct stat stat;

  if (fstat(fd, &stat) < 0) return -errno;
  return S_ISFIFO(stat.st_mode) || S_ISSOCK(stat.st_mode) ? -ESPIPE : 0;
}

int uring_entry_check(struct uring *u, const struct op *op) {
  if (!kinds[op->kind].prep) return -EOPNOTSUPP;
  if (op->kind == OP_RECV_MULTI) return uring_open_buffers(u);
  return positional_p(op) ? check_position(op->fd) : 0;
}

/* Answers. */

static int64_t asked_for(int64_t revents, unsigned events) {
  return revents & (events | POLLERR | POLLHUP | POLLNVAL);
}

int64_t uring_entry_poll_now(const struct op *op) {
  struct pollfd pollfd = { .fd = op->fd, .events = (short)op->as.poll.events };
  int n = poll(&pollfd, 1, 0);

  return n < 0 ? -errno : pollfd.revents;
}

/* io_uring's poll is less exact than poll(2). It reports POLLRDHUP unasked (IO_POLL_UNMASK), so
 * waiting for room on a half closed socket would end at once, again and again. And it believes
 * what a wake-up says that it may be about: a socket wakes for POLLRDBAND with any byte. So we look
 * ourselves where that could be, and go on watching when it was none of our business. Not in a
 * chain, where the kernel has started the next already. */
static int judge_poll(const struct op *op, int64_t *result) {
  int64_t events = asked_for(*result, op->as.poll.events);

  if (op->flags & OP_LINKED) return -1;
  if (events == 0 || (op->as.poll.events & (POLLPRI | POLLRDBAND)))
    events = uring_entry_poll_now(op);
  *result = events;
  return events == 0 ? URING_WATCH : -1;
}

/* A unix socket whose backlog is full says EAGAIN, and nothing tells when there is room again. */
static int judge_connect(const struct op *op, int64_t result) {
  if (result == -EINPROGRESS || result == -EALREADY) return URING_AWAIT;
  return result == -EAGAIN && op->as.connect.addr->ss_family == AF_UNIX ? URING_NAP : -1;
}

/* The descriptor is gone although close was interrupted; see close(2). */
static int judge_interrupted(const struct op *op, int64_t *result) {
  if (op->kind != OP_CLOSE) return URING_ISSUE;

  *result = 0;
  return -1;
}

/* Then EAGAIN is what the caller wants to hear. */
static bool told_not_to_wait_p(const struct op *op) {
  bool receives = op->kind == OP_RECV || op->kind == OP_RECV_MULTI;
  return (receives || op->kind == OP_SEND) && (op->as.rw.flags & MSG_DONTWAIT);
}

int uring_entry_judge(const struct op *op, int64_t *result) {
  if (*result == -EINTR || *result == -ERESTARTSYS) return judge_interrupted(op, result);
  if (op->kind == OP_CONNECT) return judge_connect(op, *result);
  if (op->kind == OP_POLL && *result >= 0) return judge_poll(op, result);
  if (*result != -EAGAIN || !kinds[op->kind].ready || told_not_to_wait_p(op)) return -1;
  return URING_AWAIT;
}

static int64_t connect_result(int fd) {
  int error = 0;
  socklen_t len = sizeof(error);

  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? -errno : -error;
}

static int64_t accept_again(const struct op *op) {
  int fd = accept4(op->fd, NULL, NULL, op->as.accept.flags);
  return fd < 0 ? -errno : fd;
}

/* Its descriptor is O_NONBLOCK (that is how it came here) and ready. */
static int64_t call_again(struct op *op) {
  int flags = op->as.rw.flags;
  int64_t result;

  if (op->kind == OP_CONNECT) return connect_result(op->fd);
  if (op->kind == OP_ACCEPT_MULTI) return accept_again(op);
  if (op->kind != OP_RECV && op->kind != OP_SEND) return op_execute(op);
  op->as.rw.flags |= MSG_DONTWAIT;
  result = op_execute(op);
  op->as.rw.flags = flags;
  return result;
}

int uring_entry_retry(struct op *op, int64_t *result) {
  if (*result < 0) return -1;
  if (!asked_for(*result, (unsigned)kinds[op->kind].ready)) return URING_NAP;  /* POLLRDHUP */
  if (op->kind == OP_RECV_MULTI) return URING_ISSUE;   /* its buffers are the kernel's */
  *result = call_again(op);
  return *result == -EAGAIN || *result == -EINTR ? URING_AWAIT : -1;
}

static size_t wanted_bytes(const struct op *op) {
  size_t bytes = 0;

  switch (op->kind) {
  case OP_READ: case OP_WRITE: case OP_RECV: case OP_SEND: return op->as.rw.len;
  case OP_WRITEV:
    for (unsigned i = 0; i < op->as.vec.count; i++) bytes += op->as.vec.iov[i].iov_len;
    return bytes;
  default: return 0;
  }
}

bool uring_entry_whole_p(const struct op *op, int64_t result) {
  return result >= 0 && (size_t)result >= wanted_bytes(op);
}

#endif
