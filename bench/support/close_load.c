/* close_load.c - asks a web server, on a new connection for each request, as fast as it answers.
 *   close_load PORT CONNECTIONS SECONDS SERVER_PID PATH [REQUESTS]
 * So many connections are there at a time, each with one request under way; with REQUESTS, it ends after so many. An answer is good if it begins with a status of 200 and ends with the connection;
 * a connection that does not begin, or breaks, is counted as failed.
 * wrk takes more CPU time for a connection than a fast server does (it parses, keeps buffers, and asks the kernel more often): there it is wrk that is measured.
 * When the server has said good-bye, this end closes with a reset: a good-bye of its own, and the server's kernel confirming it, would be a sixth of what the load
 * costs, and the server's part of a connection is over by then.
 * Prints {"rate": answers a second, "p50": us, "p99": us, "cpu": us of the server's CPU time for an answer, "own": us of this program's, "failed": answers}. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "load_parts.h"

enum { MOST = 1024, ROOM = 4096 };

struct connection {
  int got;                             /* bytes of the answer */
  int64_t began;
  char start[12];                      /* of the answer */
};

static const char good[12] = "HTTP/1.1 200";
static uint64_t failed, left = UINT64_MAX;
static struct sockaddr_in address;
static char request[512];
static int length, open_connections;
static struct connection all[MOST];
static struct pollfd looks[MOST];      /* poll(2): a set that changes with every answer is not worth an epoll */

static int begin(int i) {
  all[i].got = 0;
  all[i].began = now();
  looks[i] = (struct pollfd){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .events = POLLIN | POLLRDHUP };
  need(looks[i].fd >= 0, "socket");
  /* Through the loopback, both are done when they return. */
  return connect(looks[i].fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
         send(looks[i].fd, request, length, MSG_NOSIGNAL) == length;
}

static void finish(int i) {
  struct linger with_a_reset = { .l_onoff = 1, .l_linger = 0 };

  setsockopt(looks[i].fd, SOL_SOCKET, SO_LINGER, &with_a_reset, sizeof(with_a_reset));
  close(looks[i].fd);
  looks[i].fd = -1;
}

static void ask(int i) {
  while (left > 0) {
    left--;
    if (begin(i)) {
      open_connections++;
      return;
    }
    failed++;
    finish(i);
  }
}

static void count(int i, int ok) {
  int64_t us = (now() - all[i].began) / 1000;

  finish(i);
  open_connections--;
  if (ok) histogram[us < BUCKETS ? us : BUCKETS - 1]++, answers++;
  else failed++;
  ask(i);
}

static int good_p(const struct connection *c) { return c->got > (int)sizeof(good) && memcmp(c->start, good, sizeof(good)) == 0; }

static void take(int i) {
  char buffer[ROOM];
  struct connection *c = &all[i];
  ssize_t n = recv(looks[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT);

  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    count(i, n == 0 && good_p(c));
    return;
  }
  for (int at = 0; at < n && c->got + at < (int)sizeof(c->start); at++) c->start[c->got + at] = buffer[at];
  c->got += n;
  if (n < ROOM && looks[i].revents & POLLRDHUP) count(i, good_p(c));   /* the end came along with the answer */
}

static void take_answers(int connections) {
  int n = poll(looks, connections, 100);

  need(n >= 0 || errno == EINTR, "poll");
  for (int i = 0; i < connections && n > 0; i++)
    if (looks[i].revents) take(i);
}

static void run_until(int connections, int64_t end) {
  while (open_connections && now() < end) take_answers(connections);
}

int main(int argc, char **argv) {
  if (argc != 6 && argc != 7) return 2;
  int connections = atoi(argv[2]), pid = atoi(argv[4]);
  double seconds = atof(argv[3]);

  if (connections > MOST) return 2;
  address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  length = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n", argv[5], argv[1]);
  if (argc == 7) left = strtoull(argv[6], NULL, 10);
  double cpu = cpu_time(pid), own = cpu_time(getpid());
  int64_t start = now();
  for (int i = 0; i < connections; i++) ask(i);
  run_until(connections, start + (int64_t)(seconds * 1e9));
  double time = (now() - start) / 1e9;
  cpu = cpu_time(pid) - cpu;
  own = cpu_time(getpid()) - own;

  printf("{\"rate\": %.0f, \"p50\": %u, \"p99\": %u, \"cpu\": %.3f, \"own\": %.3f, \"failed\": %lu}\n", answers / time, percentile(0.5), percentile(0.99),
         answers ? cpu / answers : 0, answers ? own / answers : 0, (unsigned long)failed);
  return 0;
}
