/* sleep_storm.c - COUNT sleeps of random length within a second, with one heap and one epoll_pwait2.
 *   sleep_storm COUNT
 * Prints {"p50": ms late, "p99": ms late, "early": count, "lost": count}. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static void wait_for_first(int epoll) {
  int64_t left = heap[0] - now();
  struct epoll_event event;

  if (left <= 0) return;
  struct timespec timeout = { left / 1000000000, left % 1000000000 };
  if (epoll_pwait2(epoll, &event, 1, &timeout, NULL) < 0) perror("epoll_pwait2"), exit(1);
}

int main(int argc, char **argv) {
  size_t count = argc > 1 ? (size_t)atol(argv[1]) : 30000, done = 0, early = 0;
  int epoll = epoll_create1(EPOLL_CLOEXEC);

  heap = calloc(count, sizeof(*heap));
  late = calloc(count, sizeof(*late));
  srand(42);
  for (size_t i = 0; i < count; i++) push(now() + (int64_t)(rand() / (RAND_MAX + 1.0) * 1e9));
  while (length) {
    wait_for_first(epoll);
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
