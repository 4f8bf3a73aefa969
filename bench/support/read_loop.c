/* read_loop.c - read(2) of what is there already, in a loop.
 *   read_loop pipe COUNT SIZE      COUNT reads of SIZE bytes; filling the pipe is not timed
 *   read_loop file PATH COUNT SIZE COUNT reads of SIZE bytes, from the start again at the end
 * Prints {"ns": per read}: CPU time for the pipe, which never waits, wall time for the file. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now(clockid_t clock) {
  struct timespec t;

  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void need(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static void report(int64_t time, long count) { printf("{\"ns\": %.1f}\n", (double)time / count); }

static void read_pipe(long count, size_t size) {
  enum { BATCH = 512 };
  char *buffer = calloc(BATCH, size);
  int64_t time = 0;
  int fds[2];

  need(pipe(fds) == 0, "pipe");
  for (long done = 0; done < count; done += BATCH) {
    need(write(fds[1], buffer, BATCH * size) == (ssize_t)(BATCH * size), "write");
    int64_t start = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < BATCH; i++) need(read(fds[0], buffer, size) == (ssize_t)size, "read");
    time += now(CLOCK_PROCESS_CPUTIME_ID) - start;
  }
  report(time, (count + BATCH - 1) / BATCH * BATCH);
}

static void read_file(const char *path, long count, size_t size) {
  char *buffer = malloc(size);
  int fd = open(path, O_RDONLY);

  need(fd >= 0, path);
  int64_t start = now(CLOCK_MONOTONIC);
  for (long i = 0; i < count; i++) {
    ssize_t n = read(fd, buffer, size);
    need(n >= 0, "read");
    if (n < (ssize_t)size) need(lseek(fd, 0, SEEK_SET) == 0, "lseek");
  }
  report(now(CLOCK_MONOTONIC) - start, count);
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "pipe")) read_pipe(atol(argv[2]), atol(argv[3]));
  else if (argc == 5) read_file(argv[2], atol(argv[3]), atol(argv[4]));
  else return 2;
  return 0;
}
