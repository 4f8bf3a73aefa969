/* What every driver owes: opening, closing, and forking without hurting the parent. */
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

CONTRACT(open_and_close_leave_nothing_behind) {
  for (int i = 0; i < 50; i++) {
    struct loop another;
    CHECK_EQUAL(0, loop_open(&another, loop->driver));
    if (i % 2) CHECK_EQUAL(0, loop_poll(&another, 0));
    loop_close(&another);
  }
}

CONTRACT(driver_can_be_found_by_name) {
  char why[256] = "";

  CHECK(driver_find(loop->driver->name) == loop->driver);
  CHECK(driver_find("no such driver") == NULL);
  CHECK(driver_choose(loop->driver->name, why, sizeof(why)) == loop->driver);
  CHECK(driver_choose(NULL, why, sizeof(why)) != NULL);
  CHECK(driver_choose("no such driver", why, sizeof(why)) == NULL);
  CHECK(why[0] != '\0');
}

/* The harness counts descriptors, AddressSanitizer the memory. */
CONTRACT(close_with_everything_in_flight) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 8), pipe_fds[2], pair[2], client = open_tcp();
  static char memory[4][64];

  open_pipe(pipe_fds, BLOCKING);
  open_pair(pair, NONBLOCKING);
  fill(pair[1]);
  for (int i = 0; i < 100; i++) loop_submit(loop, op_poll(loop, pipe_fds[0], POLLIN));
  loop_submit(loop, op_read(loop, pipe_fds[0], memory[0], 64));
  loop_submit(loop, op_recv(loop, pair[0], memory[1], 1, MSG_PEEK));
  loop_submit(loop, op_send(loop, pair[1], memory[2], 64, 0));
  loop_submit(loop, op_accept(loop, listener, SOCK_CLOEXEC));
  CHECK_EQUAL(0, loop_poll(loop, 0));
  loop_submit(loop, op_read(loop, pipe_fds[0], memory[3], 64));   /* not with the kernel yet */
  connect(client, (struct sockaddr *)&addr, sizeof(addr));        /* will be accepted, or not */
  loop_close(loop);
  CHECK_EQUAL(0, loop->in_flight);

  write_all(pipe_fds[1], "late", 4);               /* the memory is ours again: nobody reads this */
  CHECK_EQUAL(4, drain(pipe_fds[0]));
  CHECK_EQUAL(0, memory[0][0] | memory[3][0]);
  close_both(pipe_fds);
  close_both(pair);
  close(listener), close(client);
}

CONTRACT(close_lets_a_close_through) {
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < 2; i++) {
    struct op *op = loop_acquire_op(loop, OP_CLOSE, fds[i]);
    op->flags |= OP_DETACHED;
    loop_submit(loop, op);
  }
  loop_close(loop);
  CHECK(fcntl(fds[0], F_GETFD) < 0 && fcntl(fds[1], F_GETFD) < 0);
}

static void converse(struct loop *loop) {
  int fds[2];
  char buffer[8];

  open_pair(fds, NONBLOCKING);
  for (int i = 0; i < 10; i++) {
    struct op *op = submitted(loop, op_recv(loop, fds[0], buffer, 8, 0));
    check_pending(loop, op);
    CHECK_EQUAL(3, run_op(loop, op_send(loop, fds[1], "abc", 3, 0)));
    CHECK_EQUAL(3, finish(loop, op));
  }
  struct op *op = submitted(loop, op_poll(loop, fds[0], POLLIN));
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  loop_wake(loop);
  CHECK_EQUAL(0, loop_poll(loop, -1));
  uint64_t settled = loop->stats.settled;
  int64_t start = clock_monotonic();
  CHECK_EQUAL(0, loop_poll(loop, 2000000));        /* early only if others have news */
  CHECK(clock_monotonic() - start >= 2000000 || loop->stats.settled > settled);
  close_both(fds);
}

static void check_child(pid_t pid) {
  int status;

  CHECK(pid > 0);
  CHECK(waitpid(pid, &status, 0) == pid);
  if (status != 0) test_fail(__FILE__, __LINE__, "the child ended with status %#x", status);
}

static void live_as_child(struct loop *loop) {
  CHECK_EQUAL(0, loop_after_fork(loop));
  CHECK_EQUAL(0, loop->in_flight);
  converse(loop);
  pid_t pid = fork();                              /* and a grandchild */
  if (pid == 0) {
    CHECK_EQUAL(0, loop_after_fork(loop));
    converse(loop);
    loop_close(loop);
    _exit(0);
  }
  check_child(pid);
  converse(loop);
  loop_close(loop);
  _exit(0);
}

CONTRACT(fork_gives_the_child_a_loop_and_leaves_the_parents_alone) {
  int fds[2], pair[2], queued[2];
  char bytes[3];

  open_pipe(fds, BLOCKING);
  open_pair(pair, NONBLOCKING);
  open_pair(queued, NONBLOCKING);
  struct op *read_op = submitted(loop, op_read(loop, fds[0], &bytes[0], 1));
  struct op *recv_op = submitted(loop, op_recv(loop, pair[0], &bytes[1], 1, 0));
  check_pending(loop, read_op);
  struct op *late_op = submitted(loop, op_recv(loop, queued[0], &bytes[2], 1, 0));
  pid_t pid = fork();
  if (pid == 0) live_as_child(loop);
  check_child(pid);

  check_pending(loop, read_op);
  check_pending(loop, recv_op);
  check_pending(loop, late_op);
  write_all(fds[1], "a", 1);
  write_all(pair[1], "b", 1);
  write_all(queued[1], "c", 1);
  CHECK_EQUAL(1, finish(loop, read_op));
  CHECK_EQUAL(1, finish(loop, recv_op));
  CHECK_EQUAL(1, finish(loop, late_op));
  CHECK(memcmp(bytes, "abc", 3) == 0);
  converse(loop);
  close_both(fds);
  close_both(pair);
  close_both(queued);
}

/* Parent and child work at the same time, and what the parent hears of is its own. */
CONTRACT(fork_lets_both_go_on_at_once) {
  int fds[2], to_parent[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  open_pipe(to_parent, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  check_pending(loop, op);
  pid_t pid = fork();
  if (pid == 0) {
    CHECK_EQUAL(0, loop_after_fork(loop));
    for (int i = 0; i < 20; i++) converse(loop);
    CHECK_EQUAL(1, run_op(loop, op_write(loop, fds[1], "x", 1)));   /* wakes the parent's read */
    _exit(0);                                      /* without loop_close, as after a crash */
  }
  for (int i = 0; i < 20; i++) converse(loop);
  CHECK_EQUAL(1, finish(loop, op));
  check_child(pid);
  converse(loop);
  close_both(fds);
  close_both(to_parent);
}

CONTRACT(fork_child_that_never_touches_the_loop_does_no_harm) {
  int fds[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  check_child(pid);
  check_pending(loop, op);
  write_all(fds[1], "x", 1);
  CHECK_EQUAL(1, finish(loop, op));
  close_both(fds);
}

static void *use_a_loop(void *arg) {
  struct loop loop, *other = arg;

  CHECK_EQUAL(0, loop_open(&loop, other->driver));
  converse(&loop);
  loop_close(&loop);
  return NULL;
}

CONTRACT(loops_in_several_threads_do_not_meet) {
  pthread_t threads[8];

  for (int i = 0; i < 8; i++) CHECK_EQUAL(0, pthread_create(&threads[i], NULL, use_a_loop, loop));
  converse(loop);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}
