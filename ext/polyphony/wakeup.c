/* wakeup.c - see wakeup.h */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif
#include "wakeup.h"

#ifdef __linux__
int wakeup_open(struct wakeup *w) {
  w->fd = w->write_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return w->fd < 0 ? -errno : 0;
}
#else
static int set_flags(int fd) {
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return -errno;
  return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

int wakeup_open(struct wakeup *w) {
  int fds[2], rc;

  w->fd = w->write_fd = -1;
  if (pipe(fds) < 0) return -errno;
  w->fd = fds[0];
  w->write_fd = fds[1];
  if ((rc = set_flags(fds[0])) < 0 || (rc = set_flags(fds[1])) < 0) wakeup_close(w);
  return rc;
}
#endif

void wakeup_close(struct wakeup *w) {
  int fd = w->fd, write_fd = w->write_fd;

  w->fd = w->write_fd = -1;            /* first: a signal handler may come in between */
  if (write_fd != fd && write_fd >= 0) close(write_fd);
  if (fd >= 0) close(fd);
}

void wakeup_signal(struct wakeup *w) {
  int saved = errno;
  uint64_t one = 1;
  ssize_t n;

  do n = write(w->write_fd, &one, sizeof(one));
  while (n < 0 && errno == EINTR);
  /* EAGAIN means it is full: the owner has a wake-up to see already. */
  errno = saved;
}

void wakeup_drain(struct wakeup *w) {
  char bytes[256];                     /* an eventfd gives 8 and is empty; a pipe may have more */
  ssize_t n;

  do n = read(w->fd, bytes, sizeof(bytes));
  while (n == (ssize_t)sizeof(bytes) || (n < 0 && errno == EINTR));
}
