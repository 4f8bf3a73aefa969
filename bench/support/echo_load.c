/* echo_load.c - asks an echo server as fast as it answers.
 *   echo_load PORT CONNECTIONS SECONDS SERVER_PID [PATH]
 * With a path, each message is a WebSocket frame, after a handshake at that path.
 * Each connection has one message of 64 bytes under way. When all have had an answer, and after a
 * warm-up of a quarter of the time, answers are counted. Every answer is compared with what was
 * sent. A connection which got no answer during the whole time is counted as starved.
 * Prints {"all": ms until each connection had an answer, "rate": answers a second, "p50": us,
 * "p999": us, "cpu": us of the server's CPU time for an answer, "starved": connections}. The CPU time tells servers apart even where this program is the
 * bottleneck, or somebody else uses the machine. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "load_parts.h"

enum { SIZE = 64, HEADER = 6, EVENTS = 256 };
#define MOST_WAIT 5000000000LL         /* ns for the first answers */

struct connection {
  int fd;
  uint32_t got;                        /* bytes of the answer under way */
  uint64_t answers;
  int64_t sent_at;
  unsigned char header[HEADER];        /* of a frame, masked with 0, which changes nothing */
  unsigned char message[SIZE];         /* right behind it */
};

static int unanswered;                 /* connections that wait for their first answer */
static uint32_t asked = SIZE, answered = SIZE;   /* bytes of a question and of its answer, headers included */

static void ask(struct connection *c) {
  unsigned char *byte = &c->message[c->answers % SIZE];

  c->got = 0;
  *byte = (*byte + 1) & 0x7f;          /* so that an old answer does not pass for this one; a text stays one */
  c->sent_at = now();
  need(send(c->fd, c->message + SIZE - asked, asked, MSG_NOSIGNAL) == asked, "send");
}

static void count_answer(struct connection *c) {
  int64_t us = (now() - c->sent_at) / 1000;

  histogram[us < BUCKETS ? us : BUCKETS - 1]++;
  answers++;
  if (c->answers++ == 0) unanswered--;
}

/* What the server has to send: a frame's header is shorter on the way back, as there is no mask. */
static int as_expected(struct connection *c, const unsigned char *got, ssize_t n) {
  unsigned char expected[HEADER + SIZE];
  uint32_t header = answered - SIZE;

  memcpy(expected, "\x81\x40", header);
  memcpy(expected + header, c->message, SIZE);
  return memcmp(got, expected + c->got, n) == 0;
}

static void take_answer(struct connection *c) {
  unsigned char buffer[HEADER + SIZE];
  ssize_t n = recv(c->fd, buffer, answered - c->got, MSG_DONTWAIT);

  if (n < 0 && errno == EAGAIN) return;
  need(n > 0, "recv");
  if (!as_expected(c, buffer, n)) {
    fprintf(stderr, "the answer is not what was sent\n");
    exit(1);
  }
  c->got += n;
  if (c->got < answered) return;
  count_answer(c);
  ask(c);
}

/* Byte by byte: what comes behind the head belongs to the first answer. */
static void shake_hands(int fd, const char *path, int port) {
  char buffer[512];
  int length = snprintf(buffer, sizeof(buffer),
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, port);
  char last[4] = "";

  need(send(fd, buffer, length, MSG_NOSIGNAL) == length, "send");
  while (memcmp(last, "\r\n\r\n", 4)) {
    memmove(last, last + 1, 3);
    need(recv(fd, last + 3, 1, 0) == 1, "recv of the handshake");
  }
}

static void open_connection(struct connection *c, int epoll, int port, const char *path) {
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
  int one = 1;

  need((c->fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
  need(connect(c->fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (path) shake_hands(c->fd, path, port);
  memcpy(c->header, "\x81\xc0\0\0\0\0", HEADER);
  need(epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) == 0, "epoll_ctl");
  memset(c->message, 'a', SIZE);
}

static void take_answers(int epoll) {
  struct epoll_event events[EVENTS];
  int n = epoll_wait(epoll, events, EVENTS, 100);

  need(n >= 0 || errno == EINTR, "epoll_wait");
  for (int i = 0; i < n; i++) take_answer(events[i].data.ptr);
}

static void run_until(int epoll, int64_t end) {
  while (now() < end) take_answers(epoll);
}

/* In milliseconds. Those who never get one must not hold up the run. */
static double run_until_all_answered(int epoll) {
  int64_t start = now();

  while (unanswered > 0 && now() < start + MOST_WAIT) take_answers(epoll);
  return (now() - start) / 1e6;
}

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6) return 2;
  int port = atoi(argv[1]), count = atoi(argv[2]), pid = atoi(argv[4]), starved = 0;
  double seconds = atof(argv[3]);
  int epoll = epoll_create1(0);
  struct connection *all = calloc(count, sizeof(*all));

  if (argc == 6) asked = SIZE + 6, answered = SIZE + 2;
  for (int i = 0; i < count; i++) open_connection(&all[i], epoll, port, argv[5]);
  unanswered = count;
  for (int i = 0; i < count; i++) ask(&all[i]);
  double all_answered = run_until_all_answered(epoll);
  run_until(epoll, now() + (int64_t)(seconds / 4 * 1e9));

  memset(histogram, 0, sizeof(histogram));
  answers = 0;
  for (int i = 0; i < count; i++) all[i].answers = 0;
  double cpu = cpu_time(pid);
  int64_t start = now();
  run_until(epoll, start + (int64_t)(seconds * 1e9));
  cpu = cpu_time(pid) - cpu;
  double time = (now() - start) / 1e9;

  for (int i = 0; i < count; i++) starved += all[i].answers == 0;
  printf("{\"all\": %.1f, \"rate\": %.0f, \"p50\": %u, \"p999\": %u, \"cpu\": %.3f, \"starved\": %d}\n",
         all_answered, answers / time, percentile(0.5), percentile(0.999), answers ? cpu / answers : 0, starved);
  return 0;
}
