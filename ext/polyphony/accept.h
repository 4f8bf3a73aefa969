/* accept.h - accept4(2), and what does its work where there is none. Plain C. */
#ifndef POLYPHONY_ACCEPT_H
#define POLYPHONY_ACCEPT_H

#include <fcntl.h>
#include <sys/socket.h>

#ifdef SOCK_CLOEXEC
#define ACCEPT_AS_STOCK (SOCK_CLOEXEC | SOCK_NONBLOCK)
#else
#define ACCEPT_AS_STOCK 0       /* there is one way: what follows sets both */
#endif

/* Where it is not one call, a child that another thread forks in between has the socket, too. */
static inline int accept_with(int fd, struct sockaddr *address, socklen_t *length, int flags) {
#ifdef SOCK_CLOEXEC
  return accept4(fd, address, length, flags);
#else
  int accepted = accept(fd, address, length);

  (void)flags;
  if (accepted < 0) return accepted;
  fcntl(accepted, F_SETFD, FD_CLOEXEC);
  fcntl(accepted, F_SETFL, O_RDWR | O_NONBLOCK);
  return accepted;
#endif
}

#endif
