/* attempt.c - see attempt.h
 *
 * Reading and writing ask the socket first: recv and send have MSG_DONTWAIT and MSG_NOSIGNAL per
 * call, and whatever is no socket says ENOTSOCK at once, which is cheaper than asking fstat, and is
 * remembered. The others get RWF_NOWAIT. What knows neither (ttys, inotify, pipes before Linux 6.4) is
 * waited for, and then does not block either: a reader finds something, and POLLOUT promises
 * room for PIPE_BUF bytes. What blocks and cannot be waited for, a file on disk, is offloaded. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include <sys/uio.h>
#include <unistd.h>
#include "accept.h"
#include "attempt.h"
#include "loop.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

static int64_t result_of(int64_t n) { return n < 0 ? -errno : n; }

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static void hint(struct attempt *attempt, uint8_t bit, bool on) {
  if (on) attempt->hints |= bit;
  else attempt->hints &= ~bit;
}

/* Fewer bytes than asked for were all there was. At EOF there is no end of nothing to read. */
static void note_read(struct attempt *attempt, int64_t n, size_t asked) {
  hint(attempt, FD_DRAINED, n == -EAGAIN || (n > 0 && (size_t)n < asked));
}

/* Sockets. */

static bool stream_p(int fd) {
  int type = 0;
  socklen_t len = sizeof(type);

  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
         (type == SOCK_STREAM || type == SOCK_SEQPACKET);
}

/* With MSG_WAITALL io_uring goes on until all is there, both ways, and what has been moved is the
 * result even if an error follows. A peek would see the same bytes again, so it ends short. */
static int64_t progress(struct op *op, struct attempt *attempt, int64_t n) {
  int flags = op->as.rw.flags;
  bool again = n == -EAGAIN && !(flags & MSG_DONTWAIT);

  if (n > 0) {
    attempt->done += (uint32_t)n;
    again = (flags & MSG_WAITALL) && !(flags & MSG_PEEK) &&
            attempt->done < min_size(op->as.rw.len, INT_MAX) && stream_p(op->fd);
  }
  if (again) return ATTEMPT_WAIT;
  return attempt->done > 0 ? attempt->done : n;
}

static int64_t attempt_recv(struct op *op, struct attempt *attempt) {
  size_t len = op->as.rw.len - attempt->done;
  int64_t n = result_of(recv(op->fd, op->as.rw.base + attempt->done, len,
                             op->as.rw.flags | MSG_DONTWAIT));

  if (!(op->as.rw.flags & (MSG_PEEK | MSG_OOB))) note_read(attempt, n, len);
  return progress(op, attempt, n);
}

static int64_t attempt_send(struct op *op, struct attempt *attempt) {
  int flags = op->as.rw.flags | MSG_DONTWAIT | MSG_NOSIGNAL;
  int64_t n = result_of(send(op->fd, op->as.rw.base + attempt->done,
                             op->as.rw.len - attempt->done, flags));

  return progress(op, attempt, n);
}

static int64_t wait_if_again(int64_t n) { return n == -EAGAIN ? ATTEMPT_WAIT : n; }

static int64_t read_socket(struct op *op, struct attempt *attempt) {
  char byte;

  if (op->as.rw.len > 0) {
    int64_t n = result_of(recv(op->fd, op->as.rw.base, op->as.rw.len, MSG_DONTWAIT));
    if (n != -ENOTSOCK) note_read(attempt, n, op->as.rw.len);
    return wait_if_again(n);
  }
  /* read(2) of nothing returns 0, where recv would wait for data or eat a datagram. */
  int64_t n = result_of(recv(op->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK));
  return n > 0 || n == -EAGAIN ? 0 : n;
}

static int64_t write_socket(struct op *op) {
  int flags = MSG_DONTWAIT | MSG_NOSIGNAL;

  if (op->kind == OP_WRITE)
    return wait_if_again(result_of(send(op->fd, op->as.rw.base, op->as.rw.len, flags)));

  struct msghdr msg = { .msg_iov = op->as.vec.iov, .msg_iovlen = op->as.vec.count };
  int64_t n = result_of(sendmsg(op->fd, &msg, flags));
  return n == -EMSGSIZE && op->as.vec.count > IOV_MAX ? -EINVAL : wait_if_again(n);
}

/* Files, pipes, devices. */

#ifdef __linux__
#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x00000100        /* Linux 6.18 */
#endif

/* Safe whatever the answer: a kernel that does not know the flag refuses before it writes, so
 * no SIGPIPE comes of it. -errno if it cannot be asked now. */
static int try_nosignal(void) {
  struct iovec iov = { .iov_base = "", .iov_len = 1 };
  int fds[2];

  if (pipe2(fds, O_CLOEXEC) < 0) return -errno;
  close(fds[0]);
  /* musl has a function for it since 1.2.5. */
  bool knows = syscall(SYS_pwritev2, fds[1], &iov, 1L, -1L, -1L, RWF_NOSIGNAL) < 0 && errno == EPIPE;
  close(fds[1]);
  return knows ? RWF_NOSIGNAL : 0;
}

/* Two threads that ask at once get the same answer. */
int attempt_nosignal(void) {
  static atomic_int known = -1;
  int flag = atomic_load_explicit(&known, memory_order_relaxed);

  if (flag >= 0) return flag;
  atomic_store_explicit(&known, flag = try_nosignal(), memory_order_relaxed);
  return flag > 0 ? flag : 0;
}
#else
int attempt_nosignal(void) { return 0; }
#endif

#ifdef RWF_NOWAIT
/* Kernels before 4.6 do not know the call, later ones perhaps not the flag: the same to us. */
static int64_t nowait_result(int64_t n) {
  return n < 0 && errno == ENOSYS ? -EOPNOTSUPP : result_of(n);
}

static int64_t read_nowait(int fd, char *base, size_t len, int64_t offset) {
  struct iovec iov = { .iov_base = base, .iov_len = len };
  return nowait_result(preadv2(fd, &iov, 1, offset, RWF_NOWAIT));
}

static int64_t write_nowait(struct op *op) {
  struct iovec iov = { .iov_base = op->as.rw.base, .iov_len = op->as.rw.len };
  int flags = RWF_NOWAIT | attempt_nosignal();

  if (op->kind == OP_WRITE) return nowait_result(pwritev2(op->fd, &iov, 1, op->as.rw.offset, flags));
  return nowait_result(pwritev2(op->fd, op->as.vec.iov, (int)op->as.vec.count, op->as.vec.offset, flags));
}
#else
static int64_t read_nowait(int fd, char *base, size_t len, int64_t offset) {
  (void)fd, (void)base, (void)len, (void)offset;
  return -EOPNOTSUPP;
}

static int64_t write_nowait(struct op *op) {
  (void)op;
  return -EOPNOTSUPP;
}
#endif

/* Only when poll has just promised that it does not block. A signal may come all the same, and
 * after it the promise is void: ask again. */
static int64_t read_ready(struct op *op, struct attempt *attempt) {
  int64_t n = result_of(read(op->fd, op->as.rw.base, op->as.rw.len));

  note_read(attempt, n, op->as.rw.len);
  return n == -EINTR ? ATTEMPT_WAIT : wait_if_again(n);
}

/* The master of a pty does not keep poll's promise: a byte of room is enough for POLLOUT, and then
 * a write waits for the rest. It belongs to us and the program behind it knows the other end only,
 * so here the flag may be borrowed. (A slow terminal on the other end, our stdout, can hold us up
 * for as long as it takes to show PIPE_BUF bytes; one stopped with ^S is not writable at all.) */
static bool pty_master_p(int fd) {
#ifdef TIOCGPTN
  unsigned number;
  return ioctl(fd, TIOCGPTN, &number) == 0;
#else
  (void)fd;
  return false;
#endif
}

/* Poll promises room for PIPE_BUF bytes. What fits goes in one piece: others write to the same pipe. */
static int64_t write_some(int fd, const struct iovec *iov, unsigned count) {
  size_t room = PIPE_BUF;
  unsigned fitting = 0;

  while (count > 1 && iov->iov_len == 0) iov++, count--;
  while (fitting < count && fitting < IOV_MAX && iov[fitting].iov_len <= room) room -= iov[fitting++].iov_len;
  int flags = pty_master_p(fd) ? fcntl(fd, F_GETFL) : O_NONBLOCK;
  if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int64_t n = result_of(fitting ? writev(fd, iov, (int)fitting) : write(fd, iov->iov_base, PIPE_BUF));
  if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, flags);
  return n;
}

static int64_t write_ready(struct op *op) {
  struct iovec one = { .iov_base = op->as.rw.base, .iov_len = op->as.rw.len };
  bool several = op->kind == OP_WRITEV;

  if (several && op->as.vec.count == 0) return 0;
  int64_t n = several ? write_some(op->fd, op->as.vec.iov, op->as.vec.count) : write_some(op->fd, &one, 1);
  return n == -EINTR ? ATTEMPT_WAIT : wait_if_again(n);
}

/* Poll may wait for ever for what can never be done. */
static bool opened_for_p(int fd, bool reading) {
  int mode = fcntl(fd, F_GETFL) & O_ACCMODE;

  return mode == O_RDWR || mode == (reading ? O_RDONLY : O_WRONLY);
}

/* It said refusal: EAGAIN or EOPNOTSUPP. Whether to wait depends on what it is, and only now is
 * it worth a system call to find out. */
static int64_t wait_or_offload(struct op *op, struct attempt *attempt, int64_t refusal) {
  bool reading = op->kind == OP_READ;
  struct stat st;

  if (fstat(op->fd, &st) < 0) return -errno;
  bool on_disk = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode);
  hint(attempt, FD_STREAM, !on_disk && !S_ISSOCK(st.st_mode));
  hint(attempt, FD_NO_SOCKET, !S_ISSOCK(st.st_mode));
  hint(attempt, FD_BLIND, refusal == -EOPNOTSUPP && !on_disk && !S_ISSOCK(st.st_mode));
  if (on_disk) return ATTEMPT_OFFLOAD;
  if (S_ISSOCK(st.st_mode)) return reading ? read_socket(op, attempt) : write_socket(op);
  if (refusal == -EOPNOTSUPP && attempt->ready)
    return reading ? read_ready(op, attempt) : write_ready(op);
  if (refusal == -EOPNOTSUPP && !opened_for_p(op->fd, reading)) return -EBADF;
  if (reading) hint(attempt, FD_DRAINED, refusal == -EAGAIN);
  return ATTEMPT_WAIT;
}

static bool refused_p(int64_t n) { return n == -EAGAIN || n == -EOPNOTSUPP; }

/* Part of a file may be in the page cache and the rest not; io_uring fetches that too. So a short
 * read stands only if the next one finds the end, else a worker reads the whole again. */
static int64_t attempt_pread(struct op *op) {
  size_t done = 0;
  int64_t n;

  do {
    n = read_nowait(op->fd, op->as.rw.base + done, op->as.rw.len - done,
                    op->as.rw.offset + (int64_t)done);
    if (n > 0) done += (size_t)n;
  } while (n > 0 && done < op->as.rw.len);
  if (refused_p(n)) return ATTEMPT_OFFLOAD;
  return done > 0 ? (int64_t)done : n;
}

int64_t attempt_cached(const struct op *op) {
  int64_t n;

  do n = read_nowait(op->fd, op->as.rw.base, op->as.rw.len, op->as.rw.offset);
  while (n == -EINTR);
  return n;
}

static int64_t attempt_read(struct op *op, struct attempt *attempt) {
  if (op->as.rw.offset >= 0) return attempt_pread(op);
  if (!(attempt->hints & FD_NO_SOCKET)) {
    int64_t n = read_socket(op, attempt);
    if (n != -ENOTSOCK) return n;
    attempt->hints |= FD_NO_SOCKET;
  }
  int64_t n = read_nowait(op->fd, op->as.rw.base, op->as.rw.len, -1);
  if (refused_p(n)) return wait_or_offload(op, attempt, n);
  /* A file is never drained: it has bytes or an end, and epoll would not take it. */
  if (attempt->hints & FD_STREAM) note_read(attempt, n, op->as.rw.len);
  return n;
}

/* Where a write may raise SIGPIPE the futile send is not saved: if the hint were wrong, a closed socket would. */
static bool no_socket_p(const struct attempt *attempt) {
  return attempt->hints & FD_NO_SOCKET && attempt_nosignal();
}

static int64_t attempt_write(struct op *op, struct attempt *attempt) {
  int64_t offset = op->kind == OP_WRITE ? op->as.rw.offset : op->as.vec.offset;

  if (offset < 0 && !no_socket_p(attempt)) {
    int64_t n = write_socket(op);
    if (n != -ENOTSOCK) return n;
    attempt->hints |= FD_NO_SOCKET;
  }
  int64_t n = write_nowait(op);
  if (!refused_p(n)) return n;
  return offset < 0 ? wait_or_offload(op, attempt, n) : ATTEMPT_OFFLOAD;
}

/* Connections. */

/* accept4 has no flag for not waiting, and a connection that poll has seen may be gone or taken by
 * another process. So this is the one flag that is changed for good; a listener is not shared
 * with a shell, and all who accept from it are prepared to find nothing. */
static int ensure_nonblocking_listener(int fd) {
  int flags = fcntl(fd, F_GETFL), listening = 0;
  socklen_t len = sizeof(listening);

  if (flags < 0) return -errno;
  if (flags & O_NONBLOCK) return 0;
  /* Asked by mistake for anything but a listener, let accept say so and change nothing. */
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0) return -errno;
  if (!listening) return -EINVAL;
  return fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static int64_t attempt_accept(struct op *op, struct attempt *attempt) {
  int rc = attempt->ready ? 0 : ensure_nonblocking_listener(op->fd);

  if (rc < 0) return rc;
  return wait_if_again(result_of(accept_with(op->fd, NULL, NULL, op->as.accept.flags)));
}

/* Once started, a connect goes on by itself whatever the flags say: they can be put back now. */
static int64_t start_connect(struct op *op) {
  int flags = fcntl(op->fd, F_GETFL);

  if (flags < 0) return -errno;
  if (!(flags & O_NONBLOCK)) fcntl(op->fd, F_SETFL, flags | O_NONBLOCK);
  int64_t n = result_of(connect(op->fd, (struct sockaddr *)op->as.connect.addr,
                                op->as.connect.len));
  if (!(flags & O_NONBLOCK)) fcntl(op->fd, F_SETFL, flags);
  return n;
}

/* The second call, when the socket has become writable, asks how it went. Asking SO_ERROR instead
 * would leave Linux' socket half way: the next connect would return 0, not EISCONN, and one after
 * a failure ECONNABORTED. Elsewhere a second call says nothing useful after a failure. */
static int64_t end_connect(struct op *op) {
#ifndef __linux__
  int error = 0;
  socklen_t len = sizeof(error);

  if (getsockopt(op->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) return -errno;
  if (error != 0) return -error;
#endif
  int64_t n = start_connect(op);
  return n == -EISCONN ? 0 : n;
}

static int64_t attempt_connect(struct op *op, struct attempt *attempt) {
  int64_t n = attempt->ready ? end_connect(op) : start_connect(op);

  if (n == -EINPROGRESS || (n == -EALREADY && attempt->ready)) return ATTEMPT_WAIT;
  /* The queue of a unix listener is full. A blocking connect would wait for room, but nothing
   * that can be polled tells of it. */
  if (n == -EAGAIN && op->as.connect.addr->ss_family == AF_UNIX) return ATTEMPT_PAUSE;
  return n;
}

static int64_t attempt_poll(struct op *op, struct attempt *attempt) {
  struct pollfd pollfd = { .fd = op->fd, .events = (short)op->as.poll.events };

  (void)attempt;
  if (poll(&pollfd, 1, 0) < 0) return -errno;
  if (pollfd.revents & POLLNVAL) return -EBADF;
  return pollfd.revents ? pollfd.revents : ATTEMPT_WAIT;
}

static int64_t (*const attempts[OP_KINDS])(struct op *, struct attempt *) = {
  [OP_READ]    = attempt_read,
  [OP_WRITE]   = attempt_write,
  [OP_WRITEV]  = attempt_write,
  [OP_RECV]    = attempt_recv,
  [OP_SEND]    = attempt_send,
  [OP_ACCEPT]  = attempt_accept,
  [OP_CONNECT] = attempt_connect,
  [OP_POLL]    = attempt_poll,
};

int64_t attempt_op(struct op *op, struct attempt *attempt) {
  int64_t result;

  if (!attempts[op->kind]) return -EOPNOTSUPP;
  do result = attempts[op->kind](op, attempt);
  while (result == -EINTR);
  return result;
}

unsigned attempt_events(const struct op *op) {
  switch (op->kind) {
  case OP_READ:
  case OP_ACCEPT:
    return POLLIN;
  case OP_RECV:
#ifdef MSG_ERRQUEUE
    if (op->as.rw.flags & MSG_ERRQUEUE) return 0;
#endif
    return op->as.rw.flags & MSG_OOB ? POLLPRI : POLLIN;
  case OP_POLL:
    return op->as.poll.events;
  default:
    return POLLOUT;
  }
}
