/* slow_http.c - an HTTP server which takes its time: slow_http MILLISECONDS. Each request, which ends with an
 * empty line, is answered that much later; so many clients can wait at once. For one processor it is fast
 * enough not to be what is measured. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "echo_listen.h"

enum { MOST_FDS = 4096, MOST_DUE = 65536, BODY = 1000 };

struct due {
  int fd;
  unsigned life;                /* of the number when it asked */
  long long at;                 /* ns */
};

static struct due queue[MOST_DUE];      /* in order: all take equally long */
static unsigned head, tail, lives[MOST_FDS];
static char buffer[BUFFER], answer[BODY + 200];

static long long now(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void hang_up(int fd) {
  lives[fd]++;
  close(fd);
}

/* A client that sent a part of a head would be answered never: those that measure send it at once. */
static void listen_to(int fd, long long delay) {
  ssize_t n = recv(fd, buffer, BUFFER, MSG_DONTWAIT);

  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    hang_up(fd);
    return;
  }
  if (memmem(buffer, n, "\r\n\r\n", 4) && tail - head < MOST_DUE)
    queue[tail++ % MOST_DUE] = (struct due){ fd, lives[fd], now() + delay };
}

static void answer_due(void) {
  long long time = now();

  for (; head != tail && queue[head % MOST_DUE].at <= time; head++) {
    struct due due = queue[head % MOST_DUE];
    if (lives[due.fd] == due.life && send(due.fd, answer, strlen(answer), MSG_NOSIGNAL) < 0) hang_up(due.fd);
  }
}

static int timeout(void) {
  if (head == tail) return -1;
  long long left = queue[head % MOST_DUE].at - now();
  return left < 0 ? 0 : (int)(left / 1000000) + 1;
}

static void watch(int epoll, int fd) {
  struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

  need(fd < MOST_FDS && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void prepare(void) {
  int head_length = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", BODY);

  memset(answer + head_length, 'x', BODY);
}

int main(int argc, char **argv) {
  long long delay = (argc > 1 ? atoll(argv[1]) : 50) * 1000000;
  int server = listen_and_tell(SOCK_NONBLOCK), epoll = epoll_create1(0), fd;
  struct epoll_event events[256];

  prepare();
  watch(epoll, server);
  for (;;) {
    int n = epoll_wait(epoll, events, 256, timeout());
    for (int i = 0; i < n; i++) {
      if (events[i].data.fd != server) listen_to(events[i].data.fd, delay);
      else while ((fd = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0) watch(epoll, fd);
    }
    answer_due();
  }
}
