/* sleep_storm.c - COUNT sleeps of random length, from FROM seconds to SPAN more, with one heap and one wait for the first.
 *   sleep_storm COUNT [FROM SPAN [pwait2 | epoll | uring]]
 * pwait2 is epoll_pwait2, with nanoseconds; epoll is epoll_wait, with milliseconds, rounded up so that none is early.
 * Prints {"p50": ms late, "p99": ms late, "early": count, "lost": count}. */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

static int64_t *heap, *late;
static size_t length;

static int64_t now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void push(int64_t deadline) {
  size_t i = length++;

  for (; i > 0 && heap[(i - 1) / 2] > deadline; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = deadline;
}

static int64_t shift(void) {
  int64_t first = heap[0], last = heap[--length];
  size_t i = 0;

  for (size_t child; (child = 2 * i + 1) < length; i = child) {
    if (child + 1 < length && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= last) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return first;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return (x > y) - (x < y);
}

static int epoll;
static struct io_uring ring;

static void fail(const char *what) { perror(what), exit(1); }

static void wait_by_pwait2(int64_t left) {
  struct timespec timeout = { left / 1000000000, left % 1000000000 };
  struct epoll_event event;

  if (epoll_pwait2(epoll, &event, 1, &timeout, NULL) < 0) fail("epoll_pwait2");
}

static void wait_by_epoll(int64_t left) {
  struct epoll_event event;

  if (epoll_wait(epoll, &event, 1, (int)((left + 999999) / 1000000)) < 0) fail("epoll_wait");
}

static void wait_by_uring(int64_t left) {
  struct __kernel_timespec timeout = { left / 1000000000, left % 1000000000 };
  struct io_uring_cqe *cqe;
  int rc = io_uring_wait_cqe_timeout(&ring, &cqe, &timeout);

  if (rc < 0 && rc != -ETIME && rc != -EINTR) errno = -rc, fail("io_uring_wait_cqe_timeout");
}

static void (*open_waiter(const char *name))(int64_t) {
  int rc;

  if (strcmp(name, "uring") == 0) {
    if ((rc = io_uring_queue_init(8, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)) < 0)
      errno = -rc, fail("io_uring");
    return wait_by_uring;
  }
  if ((epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll_create1");
  return strcmp(name, "epoll") == 0 ? wait_by_epoll : wait_by_pwait2;
}

int main(int argc, char **argv) {
  size_t count = argc > 1 ? (size_t)atol(argv[1]) : 30000, done = 0, early = 0;
  double from = argc > 3 ? atof(argv[2]) : 0, span = argc > 3 ? atof(argv[3]) : 1;
  void (*wait_for)(int64_t) = open_waiter(argc > 4 ? argv[4] : "pwait2");

  heap = calloc(count, sizeof(*heap));
  late = calloc(count, sizeof(*late));
  srand(42);
  for (size_t i = 0; i < count; i++) push(now() + (int64_t)((from + rand() / (RAND_MAX + 1.0) * span) * 1e9));
  while (length) {
    int64_t left = heap[0] - now();
    if (left > 0) wait_for(left);
    while (length && heap[0] <= now()) {
      int64_t deadline = shift();
      late[done] = now() - deadline;
      if (late[done++] < 0) early++;
    }
  }
  qsort(late, count, sizeof(*late), compare);
  printf("{\"p50\": %.4f, \"p99\": %.4f, \"early\": %zu, \"lost\": %zu}\n", late[count / 2] / 1e6,
         late[count * 99 / 100] / 1e6, early, count - done);
  return 0;
}
