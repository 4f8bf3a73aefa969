/* What is carried out at once: on a driver that does nothing, only that settles. */
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "clock.h"
#include "loop.h"
#include "support.h"
#include "test.h"

#ifdef __linux__
static struct loop loop;

static int open_in_memory(int flags) {
  LINUX_ONLY("what is known of file systems");
  char name[] = "/dev/shm/polyphony-XXXXXX";
  int fd = mkostemp(name, flags | O_CLOEXEC);

  if (fd < 0) test_skip("no tmpfs at /dev/shm");
  unlink(name);
  return fd;
}

static void open_fake(void) { CHECK_EQUAL(0, loop_open(&loop, &fake_driver)); }

static void give_up(struct op *op) {
  loop_settle(&loop, op, -ECANCELED);
  loop_release_op(&loop, op);
}

static void check_at_once(int64_t result, struct op *op) {
  loop_submit(&loop, op);
  CHECK(op_settled_p(op));
  CHECK_EQUAL(result, op->result);
  CHECK(loop_shift_news(&loop) == op);
  loop_release_op(&loop, op);
}

static void check_left_to_driver(struct op *op) {
  loop_submit(&loop, op);
  CHECK(!op_settled_p(op));
  give_up(op);
  loop_shift_news(&loop);
}

TEST(page_cache_writes_and_reads_memory_at_once) {
  int fd = open_in_memory(0);
  char got[6] = "";

  open_fake();
  check_at_once(5, op_write(&loop, fd, "hello", 5));
  struct op *read = op_read(&loop, fd, got, sizeof(got));
  read->as.rw.offset = 0;
  check_at_once(5, read);
  CHECK(memcmp(got, "hello", 5) == 0);
  check_at_once(0, op_read(&loop, fd, got, sizeof(got)));
  close(fd);
  loop_close(&loop);
}

static bool knows_nowait_p(int fd) {
  char byte;
  struct iovec iov = { &byte, 1 };

#ifdef RWF_NOWAIT
  return preadv2(fd, &iov, 1, 0, RWF_NOWAIT) == 1;
#else                           /* the C library is older */
  (void)fd, (void)iov;
  return false;
#endif
}

/* At a position a part is not enough: the driver fetches the rest as well. */
TEST(page_cache_reads_what_is_there_of_a_disk_at_once) {
  LINUX_ONLY("RWF_NOWAIT");
  int fd = open_temporary();
  char got[6] = "";

  write_all(fd, "hello", 5);
  if (!knows_nowait_p(fd)) test_skip("this file system, or the C library, does not know RWF_NOWAIT");
  lseek(fd, 0, SEEK_SET);
  open_fake();
  check_at_once(5, op_read(&loop, fd, got, sizeof(got)));
  CHECK(memcmp(got, "hello", 5) == 0);
  check_at_once(0, op_read(&loop, fd, got, sizeof(got)));
  struct op *whole = op_read(&loop, fd, got, 5), *part = op_read(&loop, fd, got, 6);
  whole->as.rw.offset = part->as.rw.offset = 0;
  check_at_once(5, whole);
  check_left_to_driver(part);
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_gathers_at_once) {
  int fd = open_in_memory(0);
  struct iovec iov[2] = { { "ab", 2 }, { "cde", 3 } };

  open_fake();
  struct op *op = loop_acquire_op(&loop, OP_WRITEV, fd);
  op->as.vec.iov = iov;
  op->as.vec.count = 2;
  op->as.vec.offset = -1;
  check_at_once(5, op);
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_takes_a_part_of_what_is_long) {
  enum { LONG = 1 << 20 };
  int fd = open_in_memory(0);
  char *bytes = calloc(1, LONG);

  open_fake();
  check_at_once(1 << 18, op_write(&loop, fd, bytes, LONG));
  free(bytes);
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_leaves_pipes_and_synchronous_files_to_the_driver) {
  int fds[2], fd = open_in_memory(O_SYNC);

  open_fake();
  open_pipe(fds, BLOCKING);
  check_left_to_driver(op_write(&loop, fds[1], "x", 1));
  check_left_to_driver(op_write(&loop, fd, "x", 1));
  close_both(fds);
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_does_not_trust_a_number_that_was_closed_unseen) {
  int fds[2], fd = open_in_memory(0);

  open_fake();
  check_at_once(1, op_write(&loop, fd, "x", 1));
  open_pipe(fds, BLOCKING);
  CHECK_EQUAL(fd, dup2(fds[1], fd));
  check_left_to_driver(op_write(&loop, fd, "x", 1));
  close_both(fds);
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_keeps_the_order_of_chains) {
  int fd = open_in_memory(0);

  open_fake();
  struct op *first = op_write(&loop, fd, "x", 1), *second = op_write(&loop, fd, "x", 1);
  first->flags |= OP_LINKED;
  loop_submit(&loop, first);
  loop_submit(&loop, second);
  CHECK(!op_settled_p(first) && !op_settled_p(second));
  give_up(first);
  give_up(second);
  check_at_once(1, op_write(&loop, fd, "x", 1));
  close(fd);
  loop_close(&loop);
}

TEST(page_cache_keeps_away_for_a_while_where_it_was_slow) {
  int fd = open_in_memory(0);

  open_fake();
  loop.files_slow_until = clock_monotonic() + NSEC_PER_SEC * 100;
  check_left_to_driver(op_write(&loop, fd, "x", 1));
  loop.files_slow_until = clock_monotonic();
  check_at_once(1, op_write(&loop, fd, "x", 1));
  close(fd);
  loop_close(&loop);
}
#endif
