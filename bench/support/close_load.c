/* close_load.c - asks a web server, on a new connection for each request, as fast as it answers.
 *   close_load PORT CONNECTIONS SECONDS SERVER_PID PATH [REQUESTS]
 * So many connections are there at a time, each with one request under way. After a warm-up of a quarter of the time answers are counted;
 * with REQUESTS, it ends after so many, and nothing is warmed up. An answer is good if it begins with a status of 200 and ends with the connection;
 * a connection that does not begin, or breaks, is counted as failed.
 * wrk takes twice the CPU time for a connection (it parses, keeps buffers, and asks the kernel more often), which is more than a fast server does: there it
 * is wrk that is measured.
 * Prints {"rate": answers a second, "p50": us, "p99": us, "cpu": us of the server's CPU time for an answer, "own": us of this program's, "failed": answers}. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, BUCKETS = 1 << 20, ROOM = 4096 };   /* a bucket is one microsecond */

struct connection {
  int fd;
  int got;                             /* bytes of the answer */
  int64_t began;
  char start[12];                      /* of the answer */
};

static const char good[12] = "HTTP/1.1 200";
static uint32_t histogram[BUCKETS];
static uint64_t answers, failed, left = UINT64_MAX;
static struct sockaddr_in address;
static char request[512];
static int length, epoll, open_connections;

static void need(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static int64_t now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int begin(struct connection *c) {
  struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = c };

  c->got = 0;
  c->began = now();
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  need(c->fd >= 0, "socket");
  /* Through the loopback, both are done when they return. */
  return connect(c->fd, (struct sockaddr *)&address, sizeof(address)) == 0 && send(c->fd, request, length, MSG_NOSIGNAL) == length &&
         epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) == 0;
}

static void ask(struct connection *c) {
  while (left > 0) {
    left--;
    if (begin(c)) {
      open_connections++;
      return;
    }
    failed++;
    close(c->fd);
  }
}

static void count(struct connection *c, int ok) {
  int64_t us = (now() - c->began) / 1000;

  close(c->fd);
  open_connections--;
  if (ok) histogram[us < BUCKETS ? us : BUCKETS - 1]++, answers++;
  else failed++;
  ask(c);
}

/* Until it is empty: the edge is told of once. The end is mostly there along with the answer, and need not be read. */
static void take(struct connection *c, uint32_t events) {
  char buffer[ROOM];
  ssize_t n = recv(c->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

  while (n > 0) {
    for (int i = 0; i < n && c->got + i < (int)sizeof(c->start); i++) c->start[c->got + i] = buffer[i];
    c->got += n;
    if (n < ROOM) break;
    n = recv(c->fd, buffer, sizeof(buffer), MSG_DONTWAIT);
  }
  if (n < 0 && errno == EAGAIN && !(events & EPOLLRDHUP)) return;
  if (n < 0 && errno != EAGAIN) count(c, 0);
  else if (n == 0 || events & EPOLLRDHUP) count(c, c->got > (int)sizeof(good) && memcmp(c->start, good, sizeof(good)) == 0);
}

static void take_answers(void) {
  struct epoll_event events[EVENTS];
  int n = epoll_wait(epoll, events, EVENTS, 100);

  need(n >= 0 || errno == EINTR, "epoll_wait");
  for (int i = 0; i < n; i++) take(events[i].data.ptr, events[i].events);
}

static void run_until(int64_t end) {
  while (open_connections && now() < end) take_answers();
}

/* In microseconds; all threads of the process. */
static double cpu_time(int pid) {
  clockid_t clock;
  struct timespec t;

  need(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0, "the clock of a process");
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static unsigned percentile(double part) {
  uint64_t rest = (uint64_t)(answers * part);
  unsigned i = 0;

  while (i < BUCKETS - 1 && rest >= histogram[i]) rest -= histogram[i++];
  return i;
}

int main(int argc, char **argv) {
  if (argc != 6 && argc != 7) return 2;
  int connections = atoi(argv[2]), pid = atoi(argv[4]);
  double seconds = atof(argv[3]);
  struct connection *all = calloc(connections, sizeof(*all));

  address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  length = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n", argv[5], argv[1]);
  epoll = epoll_create1(0);
  if (argc == 7) left = strtoull(argv[6], NULL, 10);
  for (int i = 0; i < connections; i++) ask(&all[i]);
  if (argc == 6) {
    run_until(now() + (int64_t)(seconds / 4 * 1e9));
    memset(histogram, 0, sizeof(histogram));
    answers = failed = 0;
  }
  double cpu = cpu_time(pid), own = cpu_time(getpid());
  int64_t start = now();
  run_until(start + (int64_t)(seconds * 1e9));
  double time = (now() - start) / 1e9;
  cpu = cpu_time(pid) - cpu;
  own = cpu_time(getpid()) - own;

  printf("{\"rate\": %.0f, \"p50\": %u, \"p99\": %u, \"cpu\": %.3f, \"own\": %.3f, \"failed\": %lu}\n", answers / time, percentile(0.5), percentile(0.99),
         answers ? cpu / answers : 0, answers ? own / answers : 0, (unsigned long)failed);
  return 0;
}
