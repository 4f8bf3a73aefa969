/* io_plain.c - input and output that stops the whole thread; see io.h
 *
 * For signal handlers that run on top of a fiber which waits already: there one cannot wait as fibers do, but
 * stock Ruby lets handlers print and read. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>
#include "clock.h"
#include "fd.h"
#include "io.h"

struct plain_wait {
  struct pollfd poll;
  int limit;                    /* ms; -1: none */
};

static void *poll_plainly(void *argument) {
  struct plain_wait *wait = argument;

  poll(&wait->poll, 1, wait->limit);
  return NULL;
}

static int in_milliseconds(int64_t period) {
  int64_t most = (int64_t)INT_MAX * (NSEC_PER_SEC / 1000);

  if (period < 0) return -1;
  return (int)((period < most ? period : most) / (NSEC_PER_SEC / 1000));
}

int io_plain_wait(int fd, int events, int64_t period) {
  struct plain_wait wait = { { .fd = fd, .events = (short)events }, in_milliseconds(period) };

  rb_thread_call_without_gvl(poll_plainly, &wait, RUBY_UBF_IO, NULL);
  return wait.poll.revents;
}

/* Not more than there surely is room for, once it is ready. */
static int64_t once(int fd, char *base, size_t length, int64_t position, bool writing) {
  ssize_t n;

  if (writing && length > PIPE_BUF) length = PIPE_BUF;
  if (position >= 0) n = writing ? pwrite(fd, base, length, position) : pread(fd, base, length, position);
  else n = writing ? write(fd, base, length) : read(fd, base, length);
  return n < 0 ? -errno : n;
}

static int64_t until_done(VALUE io, char *base, size_t length, int64_t position, bool writing) {
  int64_t result;

  do {
    if (position < 0) io_plain_wait(rb_io_descriptor(io), writing ? POLLOUT : POLLIN, -1);
    result = once(rb_io_descriptor(io), base, length, position, writing);
  } while (result == -EAGAIN || result == -EINTR);
  return result;
}

int64_t io_plain_read(VALUE io, char *base, size_t length, int64_t position) {
  size_t ahead = position < 0 ? fd_take_ahead(rb_io_descriptor(io), base, length) : 0;

  if (ahead > 0) return (int64_t)ahead;
  return until_done(io, base, length, position, false);
}

int64_t io_plain_write(VALUE io, const char *base, size_t length, int64_t position) {
  return until_done(io, (char *)base, length, position, true);
}
