/* What only libev's driver has to fear: descriptors that go away behind its back. Debian's libev
 * aborts the process when epoll_ctl says EBADF. */
#ifdef HAVE_LIBEV
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

static char buffer[3][16];

static struct loop *open_loop(void) {
  static struct loop loop;

  CHECK_EQUAL(0, loop_open(&loop, &driver_libev));
  return &loop;
}

TEST(libev_survives_a_descriptor_closed_before_it_was_registered) {
  struct loop *loop = open_loop();
  int fds[2];

  open_pair(fds, BLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], buffer[0], 16));
  close(fds[0]);
  CHECK_EQUAL(-EBADF, finish(loop, op));
  close(fds[1]);
  loop_close(loop);
}

TEST(libev_survives_a_descriptor_closed_under_two_ops) {
  struct loop *loop = open_loop();
  int fds[2];

  for (int i = 0; i < 2; i++) {
    open_pair(fds, BLOCKING);
    fill(fds[0]);
    struct op *reader = submitted(loop, op_read(loop, fds[0], buffer[0], 16));
    struct op *writer = submitted(loop, op_write(loop, fds[0], "x", 1));
    check_pending(loop, reader);
    close(fds[0]);
    CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, i ? reader : writer));
    CHECK_EQUAL(-EBADF, finish(loop, i ? writer : reader));
    close(fds[1]);
  }
  loop_close(loop);
}

/* A stray event makes libev register everything anew, the vanished descriptor too. */
TEST(libev_survives_a_vanished_descriptor_when_it_registers_anew) {
  struct loop *loop = open_loop();
  int stray[2], lost[2], good[2];

  open_pair(stray, BLOCKING), open_pair(lost, BLOCKING), open_pair(good, BLOCKING);
  struct op *gone = submitted(loop, op_read(loop, lost[0], buffer[0], 16));
  struct op *kept = submitted(loop, op_read(loop, good[0], buffer[1], 16));
  struct op *op = submitted(loop, op_read(loop, stray[0], buffer[2], 16));
  int copy = dup(stray[0]);
  check_pending(loop, op);
  close(lost[0]);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close(stray[0]);                     /* the copy keeps the file, and epoll, interested */
  write_all(stray[1], "stray", 5);
  int64_t start = clock_monotonic();
  CHECK_EQUAL(-EBADF, finish(loop, gone));
  CHECK(clock_monotonic() - start < 20 * NSEC_PER_SEC);   /* libev itself looks up after 60 */
  check_pending(loop, kept);
  write_all(good[1], "good", 4);
  CHECK_EQUAL(4, finish(loop, kept));
  close(copy), close(stray[1]), close(lost[1]), close_both(good);
  loop_close(loop);
}

/* And it gets another descriptor for that, while others may have the number that the former one had. */
TEST(libev_is_not_taken_for_the_descriptor_it_had_before) {
  int free_later = dup(0), pair[2], good[2];
  struct loop *loop = open_loop();
  int before = loop->poller;

  LINUX_ONLY("the descriptor of libev");
  CHECK(before > free_later && loop_owns_p(loop, before));
  open_pair(pair, BLOCKING), open_pair(good, BLOCKING);
  struct op *kept = submitted(loop, op_read(loop, good[0], buffer[1], 16));
  struct op *op = submitted(loop, op_read(loop, pair[0], buffer[0], 16));
  int copy = dup(pair[0]);
  check_pending(loop, op);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close(pair[0]);
  close(free_later);
  write_all(pair[1], "stray", 5);
  for (int i = 0; i < 3; i++) check_pending(loop, kept);
  int other = dup(0);
  CHECK_EQUAL(before, other);          /* it is free: libev has taken the lower one */
  CHECK(!loop_owns_p(loop, other));
#ifdef __linux__
  CHECK_EQUAL(free_later, loop->poller);
#endif
  write_all(good[1], "good", 4);
  CHECK_EQUAL(4, finish(loop, kept));
  close(other), close(copy), close(pair[1]), close_both(good);
  loop_close(loop);
}

TEST(libev_tells_waiting_ops_of_a_close) {
  struct loop *loop = open_loop();
  int fds[2];

  open_pair(fds, BLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], buffer[0], 16));
  check_pending(loop, op);
  CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_CLOSE, fds[0])));
  CHECK_EQUAL(-EBADF, finish(loop, op));
  close(fds[1]);
  loop_close(loop);
}

TEST(libev_serves_readers_in_the_order_in_which_they_came) {
  struct loop *loop = open_loop();
  struct op *ops[3];
  int fds[2];

  open_pair(fds, BLOCKING);
  for (int i = 0; i < 3; i++) ops[i] = submitted(loop, op_read(loop, fds[0], buffer[i], 1));
  check_pending(loop, ops[0]);
  write_all(fds[1], "a", 1);
  CHECK_EQUAL(1, finish(loop, ops[0]));
  write_all(fds[1], "bcd", 3);
  ops[0] = submitted(loop, op_read(loop, fds[0], buffer[0], 1));   /* must not be the next */
  for (int i = 0; i < 3; i++) CHECK_EQUAL(1, finish(loop, ops[i]));
  CHECK(buffer[1][0] == 'b' && buffer[2][0] == 'c' && buffer[0][0] == 'd');
  close_both(fds);
  loop_close(loop);
}

/* libev itself knows only reading and writing. */
TEST(libev_polls_for_what_libev_does_not_know) {
  struct loop *loop = open_loop();
  int fds[2];

  LINUX_ONLY("an epoll within an epoll");
  open_tcp_pair(fds);
  struct op *urgent = submitted(loop, op_poll(loop, fds[0], POLLPRI));
  struct op *either = submitted(loop, op_poll(loop, fds[0], POLLPRI | POLLRDHUP));
  struct op *nothing = submitted(loop, op_poll(loop, fds[0], 0));
  write_all(fds[1], "plain", 5);
  check_pending(loop, urgent);
  check_pending(loop, either);
  CHECK_EQUAL(1, send(fds[1], "!", 1, MSG_OOB));
  CHECK_EQUAL(POLLPRI, finish(loop, urgent));
  CHECK_EQUAL(POLLPRI, finish(loop, either));
  shutdown(fds[1], SHUT_WR);
  check_pending(loop, nothing);
  shutdown(fds[0], SHUT_WR);
  CHECK_EQUAL(POLLHUP, finish(loop, nothing));
  close_both(fds);
  loop_close(loop);
}

TEST(libev_does_not_block_on_a_full_pty) {
  struct loop *loop = open_loop();
  static char big[1 << 18];
  int master, slave;
  int64_t n = 0;

  CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
  struct termios raw;
  tcgetattr(slave, &raw);
  cfmakeraw(&raw);
  tcsetattr(slave, TCSANOW, &raw);
  int flags = fcntl(master, F_GETFL);
  for (size_t sent = 0; sent < sizeof(big) && n >= 0; sent += (size_t)n) {
    struct op *op = submitted(loop, op_write(loop, master, big, sizeof(big) - sent));
    for (int i = 0; i < 10 && !op_settled_p(op); i++) loop_poll(loop, NSEC_PER_SEC / 1000);
    forget_news(loop);
    loop_cancel(loop, op);
    n = finish(loop, op);
  }
  CHECK_EQUAL(-ECANCELED, n);
  CHECK_EQUAL(flags, fcntl(master, F_GETFL));
  close(master), close(slave);
  loop_close(loop);
}

static int64_t cpu_time(void) {
  struct rusage usage;

  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NSEC_PER_SEC +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

TEST(libev_waits_without_spinning) {
  struct loop *loop = open_loop();
  int fds[2];

  LINUX_ONLY("an epoll within an epoll");
  open_tcp_pair(fds);
  write_all(fds[1], "data", 4);
  struct op *op = submitted(loop, op_recv(loop, fds[0], buffer[0], 16, MSG_ERRQUEUE));
  int64_t before = cpu_time();
  CHECK_EQUAL(0, loop_poll(loop, NSEC_PER_SEC / 5));
  for (int i = 0; i < 100; i++) CHECK_EQUAL(0, loop_poll(loop, NSEC_PER_SEC / 1000));
  CHECK(cpu_time() - before < NSEC_PER_SEC / 20);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
  loop_close(loop);
}
#endif
