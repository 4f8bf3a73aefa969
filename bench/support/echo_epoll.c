/* echo_epoll.c - an echo server with epoll, level-triggered: recv, send, wait. The limit of what a
 * driver on epoll can reach. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "echo_listen.h"

static char buffer[BUFFER];

static void watch(int epoll, int fd) {
  struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

  need(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void answer(int fd) {
  ssize_t n = recv(fd, buffer, BUFFER, MSG_DONTWAIT);

  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0 || send(fd, buffer, n, MSG_NOSIGNAL) != n) close(fd);
}

int main(void) {
  int server = listen_and_tell(SOCK_NONBLOCK), epoll = epoll_create1(0), fd;
  struct epoll_event events[256];

  watch(epoll, server);
  for (;;) {
    int n = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < n; i++) {
      if (events[i].data.fd != server) answer(events[i].data.fd);
      else while ((fd = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0) watch(epoll, fd);
    }
  }
}
