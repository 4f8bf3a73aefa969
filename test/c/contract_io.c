/* What every driver owes: the operations, one by one. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "support.h"
#include "test.h"

/* Pipes and sockets, blocking and not: Ruby hands us all of them. */
static void each_stream(struct loop *loop, void (*check)(struct loop *, int fds[2])) {
  void (*const openers[])(int[2], enum blocking) = { open_pipe, open_pair };

  for (int i = 0; i < 2; i++) {
    for (enum blocking blocking = BLOCKING; blocking <= NONBLOCKING; blocking++) {
      int fds[2];
      openers[i](fds, blocking);
      check(loop, fds);
    }
  }
}

static void check_read(struct loop *loop, int fds[2]) {
  char buffer[16];

  write_all(fds[1], "hello", 5);
  CHECK_EQUAL(2, run_op(loop, op_read(loop, fds[0], buffer, 2)));
  CHECK_EQUAL(3, run_op(loop, op_read(loop, fds[0], buffer + 2, 14)));   /* short */
  CHECK(memcmp(buffer, "hello", 5) == 0);

  struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 16));
  check_pending(loop, op);
  CHECK(loop_ops_on(loop, fds[0]) == op);
  write_all(fds[1], "later", 5);
  CHECK_EQUAL(5, finish(loop, op));
  CHECK(memcmp(buffer, "later", 5) == 0);
  CHECK(loop_ops_on(loop, fds[0]) == NULL);

  op = submitted(loop, op_read(loop, fds[0], buffer, 16));
  check_pending(loop, op);
  close(fds[1]);
  CHECK_EQUAL(0, finish(loop, op));
  CHECK_EQUAL(0, run_op(loop, op_read(loop, fds[0], buffer, 16)));       /* again at the end */
  close(fds[0]);
}

CONTRACT(read_waits_is_short_and_ends) { each_stream(loop, check_read); }

static void check_write(struct loop *loop, int fds[2]) {
  static char big[1 << 22];
  struct iovec iov[2] = { { "foo", 3 }, { "barbaz", 6 } };
  char buffer[16];

  CHECK_EQUAL(3, run_op(loop, op_write(loop, fds[1], "abc", 3)));
  struct op *op = loop_acquire_op(loop, OP_WRITEV, fds[1]);
  op->as.vec.iov = iov, op->as.vec.count = 2, op->as.vec.offset = -1;
  CHECK_EQUAL(9, run_op(loop, op));
  CHECK_EQUAL(12, read(fds[0], buffer, 16));
  CHECK(memcmp(buffer, "abcfoobarbaz", 12) == 0);

  fill(fds[1]);
  op = submitted(loop, op_write(loop, fds[1], "x", 1));
  check_pending(loop, op);
  drain(fds[0]);
  CHECK_EQUAL(1, finish(loop, op));
  drain(fds[0]);

  /* More than fits: may be short or wait, but nobody may be blocked meanwhile. */
  op = submitted(loop, op_write(loop, fds[1], big, sizeof(big)));
  size_t taken = 0;
  while (!op_settled_p(op)) {
    CHECK_EQUAL(0, loop_poll(loop, 0));
    taken += drain(fds[0]);
  }
  int64_t written = finish(loop, op);
  CHECK(written > 0);
  CHECK_EQUAL(written, taken + drain(fds[0]));
  close_both(fds);
}

CONTRACT(write_waits_for_room_and_never_blocks) { each_stream(loop, check_write); }

CONTRACT(write_and_read_wait_at_the_same_time_on_one_descriptor) {
  int fds[2];
  char buffer[4];

  open_pair(fds, NONBLOCKING);
  fill(fds[0]);
  struct op *write_op = submitted(loop, op_write(loop, fds[0], "x", 1));
  struct op *read_op = submitted(loop, op_read(loop, fds[0], buffer, 4));
  check_pending(loop, write_op);
  check_pending(loop, read_op);
  write_all(fds[1], "yes", 3);
  await(loop, read_op);
  CHECK(!op_settled_p(write_op));
  CHECK_EQUAL(3, finish(loop, read_op));
  drain(fds[1]);
  CHECK_EQUAL(1, finish(loop, write_op));
  close_both(fds);
}

CONTRACT(read_and_write_at_an_offset_leave_the_position_alone) {
  char buffer[8] = "";
  int fd = open_temporary();

  CHECK_EQUAL(6, run_op(loop, op_write(loop, fd, "abcdef", 6)));   /* -1: moves it to 6 */
  struct op *op = op_write(loop, fd, "XY", 2);
  op->as.rw.offset = 2;
  CHECK_EQUAL(2, run_op(loop, op));
  op = op_read(loop, fd, buffer, 8);
  op->as.rw.offset = 1;
  CHECK_EQUAL(5, run_op(loop, op));
  CHECK(memcmp(buffer, "bXYef", 5) == 0);
  CHECK_EQUAL(6, lseek(fd, 0, SEEK_CUR));
  CHECK_EQUAL(0, run_op(loop, op_read(loop, fd, buffer, 8)));
  lseek(fd, 4, SEEK_SET);
  CHECK_EQUAL(2, run_op(loop, op_read(loop, fd, buffer, 8)));
  CHECK_EQUAL(6, lseek(fd, 0, SEEK_CUR));
  close(fd);
}

CONTRACT(read_of_a_big_file_is_whole_and_right) {
  size_t size = 8 << 20, done = 0;
  char *wrote = malloc(size), *got = calloc(1, size);
  int fd = open_temporary();

  for (size_t i = 0; i < size; i++) wrote[i] = (char)(i * 2654435761u >> 13);
  while (done < size) {
    struct op *op = op_write(loop, fd, wrote + done, size - done);
    op->as.rw.offset = (int64_t)done;
    int64_t n = run_op(loop, op);
    CHECK(n > 0);
    done += (size_t)n;
  }
  CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_FSYNC, fd)));
  for (done = 0; done < size;) {
    int64_t n = run_op(loop, op_read(loop, fd, got + done, 1 << 20));
    CHECK(n > 0);
    done += (size_t)n;
  }
  CHECK(memcmp(wrote, got, size) == 0);
  close(fd);
  free(wrote);
  free(got);
}

CONTRACT(read_of_an_eventfd_waits) {
  uint64_t value = 0, three = 3;
  int fd = eventfd(0, EFD_CLOEXEC);

  struct op *op = submitted(loop, op_read(loop, fd, (char *)&value, sizeof(value)));
  check_pending(loop, op);
  CHECK_EQUAL(8, write(fd, &three, 8));
  CHECK_EQUAL(8, finish(loop, op));
  CHECK_EQUAL(3, value);
  close(fd);
}

CONTRACT(recv_and_send_honour_their_flags) {
  int fds[2];
  char buffer[8];

  for (enum blocking blocking = BLOCKING; blocking <= NONBLOCKING; blocking++) {
    open_pair(fds, blocking);
    struct op *op = submitted(loop, op_recv(loop, fds[0], buffer, 8, MSG_PEEK));
    check_pending(loop, op);
    CHECK_EQUAL(3, run_op(loop, op_send(loop, fds[1], "abc", 3, 0)));
    CHECK_EQUAL(3, finish(loop, op));
    CHECK_EQUAL(3, run_op(loop, op_recv(loop, fds[0], buffer, 8, 0)));
    CHECK(memcmp(buffer, "abc", 3) == 0);
    op = submitted(loop, op_recv(loop, fds[0], buffer, 8, 0));
    shutdown(fds[1], SHUT_WR);
    CHECK_EQUAL(0, finish(loop, op));
    close_both(fds);
  }
}

CONTRACT(send_waits_for_room_and_never_blocks) {
  static char big[1 << 22];
  int fds[2];
  size_t taken = 0;

  open_pair(fds, BLOCKING);
  fill(fds[1]);
  struct op *op = submitted(loop, op_send(loop, fds[1], big, sizeof(big), 0));
  check_pending(loop, op);
  drain(fds[0]);
  while (!op_settled_p(op)) {
    CHECK_EQUAL(0, loop_poll(loop, 0));
    taken += drain(fds[0]);
  }
  int64_t sent = finish(loop, op);
  CHECK(sent > 0);
  CHECK_EQUAL(sent, taken + drain(fds[0]));
  close_both(fds);
}

static volatile sig_atomic_t sigpipes;
static void count_sigpipe(int number) { sigpipes += number == SIGPIPE; }

CONTRACT(send_to_nobody_is_epipe_without_a_signal) {
  int fds[2];

  LINUX_ONLY("MSG_NOSIGNAL");
  signal(SIGPIPE, count_sigpipe);
  open_pair(fds, NONBLOCKING);
  fill(fds[1]);
  struct op *op = submitted(loop, op_send(loop, fds[1], "x", 1, 0));
  check_pending(loop, op);
  close(fds[0]);
  CHECK_EQUAL(-EPIPE, finish(loop, op));
  CHECK_EQUAL(-EPIPE, run_op(loop, op_send(loop, fds[1], "x", 1, 0)));
  CHECK_EQUAL(0, sigpipes);
  close(fds[1]);
}

/* A write has no MSG_NOSIGNAL; Ruby ignores SIGPIPE, and so does this test. */
static void check_broken(struct loop *loop, int fds[2]) {
  fill(fds[1]);
  struct op *op = submitted(loop, op_write(loop, fds[1], "x", 1));
  check_pending(loop, op);
  close(fds[0]);
  CHECK_EQUAL(-EPIPE, finish(loop, op));
  CHECK_EQUAL(-EPIPE, run_op(loop, op_write(loop, fds[1], "x", 1)));
  close(fds[1]);
}

CONTRACT(write_to_nobody_is_epipe) {
  signal(SIGPIPE, SIG_IGN);
  each_stream(loop, check_broken);
}

CONTRACT(requests_on_a_bad_descriptor_settle_with_ebadf) {
  int fd = unused_descriptor();
  struct iovec iov = { "x", 1 };
  struct sockaddr_in addr = { .sin_family = AF_INET };
  char byte;

  CHECK_EQUAL(-EBADF, run_op(loop, op_read(loop, fd, &byte, 1)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_write(loop, fd, "x", 1)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_recv(loop, fd, &byte, 1, 0)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_send(loop, fd, "x", 1, 0)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_accept(loop, fd, 0)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_connect(loop, fd, &addr)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_poll(loop, fd, POLLIN)));
  CHECK_EQUAL(-EBADF, run_op(loop, loop_acquire_op(loop, OP_CLOSE, fd)));
  CHECK_EQUAL(-EBADF, run_op(loop, loop_acquire_op(loop, OP_FSYNC, fd)));
  struct op *op = loop_acquire_op(loop, OP_WRITEV, fd);
  op->as.vec.iov = &iov, op->as.vec.count = 1, op->as.vec.offset = -1;
  CHECK_EQUAL(-EBADF, run_op(loop, op));
  CHECK_EQUAL(-EBADF, run_op(loop, op_read(loop, -1, &byte, 1)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_poll(loop, -1, POLLIN)));
}

/* An offset on a pipe is not here: pread(2) says ESPIPE, io_uring takes no notice of it. */
CONTRACT(requests_that_make_no_sense_settle_with_an_error) {
  int fds[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  CHECK_EQUAL(-ENOTSOCK, run_op(loop, op_recv(loop, fds[0], &byte, 1, 0)));
  CHECK_EQUAL(-ENOTSOCK, run_op(loop, op_send(loop, fds[1], "x", 1, 0)));
  CHECK_EQUAL(-ENOTSOCK, run_op(loop, op_accept(loop, fds[0], 0)));
  CHECK_EQUAL(-EBADF, run_op(loop, op_read(loop, fds[1], &byte, 1)));    /* the writing end */
  CHECK_EQUAL(-EBADF, run_op(loop, op_write(loop, fds[0], "x", 1)));
  close_both(fds);
  open_pair(fds, NONBLOCKING);
  CHECK_EQUAL(-EINVAL, run_op(loop, op_accept(loop, fds[0], 0)));        /* does not listen */
  close_both(fds);
  int directory = open("/", O_RDONLY | O_CLOEXEC);
  CHECK_EQUAL(-EISDIR, run_op(loop, op_read(loop, directory, &byte, 1)));
  close(directory);
}

CONTRACT(accept_waits_and_sets_flags) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 8), client = open_tcp();

  LINUX_ONLY("accept4(2)");
  struct op *op = submitted(loop, op_accept(loop, listener, SOCK_CLOEXEC | SOCK_NONBLOCK));
  check_pending(loop, op);
  CHECK_EQUAL(0, run_op(loop, op_connect(loop, client, &addr)));
  int server = (int)finish(loop, op);
  CHECK(server >= 0);
  CHECK_EQUAL(FD_CLOEXEC, fcntl(server, F_GETFD));
  CHECK(fcntl(server, F_GETFL) & O_NONBLOCK);

  int another = open_tcp();
  CHECK_EQUAL(0, run_op(loop, op_connect(loop, another, &addr)));
  int late = (int)run_op(loop, op_accept(loop, listener, SOCK_CLOEXEC));   /* there already */
  CHECK(late >= 0);
  CHECK(!(fcntl(late, F_GETFL) & O_NONBLOCK));
  close(late), close(another), close(server), close(client), close(listener);
}

CONTRACT(accept_on_a_blocking_listener_never_blocks) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 8), client = open_tcp();

  fcntl(listener, F_SETFL, 0);
  struct op *op = submitted(loop, op_accept(loop, listener, SOCK_CLOEXEC));
  check_pending(loop, op);
  CHECK_EQUAL(0, run_op(loop, op_connect(loop, client, &addr)));
  int server = (int)finish(loop, op);
  CHECK(server >= 0);
  close(server), close(client), close(listener);
}

CONTRACT(connect_to_nobody_is_refused) {
  struct sockaddr_in addr;
  struct sockaddr_un missing = { .sun_family = AF_UNIX, .sun_path = "/nonexistent/polyphony" };
  int fd = open_listener(&addr, 1);

  close(fd);                                       /* the port is free now */
  fd = open_tcp();
  CHECK_EQUAL(-ECONNREFUSED, run_op(loop, op_connect(loop, fd, &addr)));
  close(fd);
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct op *op = op_connect(loop, fd, &addr);
  memcpy(op->memory, &missing, sizeof(missing));
  op->as.connect.len = sizeof(missing);
  CHECK_EQUAL(-ENOENT, run_op(loop, op));
  close(fd);
}

CONTRACT(connect_on_a_blocking_socket_works) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 8), fd = open_tcp();

  fcntl(fd, F_SETFL, 0);
  CHECK_EQUAL(0, run_op(loop, op_connect(loop, fd, &addr)));
  CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));       /* the mode is the user's */
  CHECK_EQUAL(-EISCONN, run_op(loop, op_connect(loop, fd, &addr)));
  close(fd), close(listener);
}

CONTRACT(connect_of_a_datagram_socket_settles) {
  struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(9),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  CHECK_EQUAL(0, run_op(loop, op_connect(loop, fd, &addr)));
  close(fd);
}

CONTRACT(recv_takes_an_empty_datagram) {
  int fds[2];
  char byte;

  CHECK_EQUAL(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
  struct op *op = submitted(loop, op_recv(loop, fds[0], &byte, 1, 0));
  check_pending(loop, op);
  CHECK_EQUAL(0, send(fds[1], "", 0, 0));
  CHECK_EQUAL(0, finish(loop, op));
  close_both(fds);
}

CONTRACT(poll_tells_what_happened) {
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  CHECK_EQUAL(POLLOUT, run_op(loop, op_poll(loop, fds[1], POLLOUT)));
  struct op *op = submitted(loop, op_poll(loop, fds[0], POLLIN));
  check_pending(loop, op);
  write_all(fds[1], "x", 1);
  CHECK_EQUAL(POLLIN, finish(loop, op));
  CHECK_EQUAL(POLLIN, run_op(loop, op_poll(loop, fds[0], POLLIN)));
  drain(fds[0]);
  op = submitted(loop, op_poll(loop, fds[0], POLLIN));
  check_pending(loop, op);
  close(fds[1]);
  CHECK(finish(loop, op) > 0);                     /* POLLHUP, perhaps with POLLIN */
  close(fds[0]);

  open_pair(fds, NONBLOCKING);
  CHECK_EQUAL(POLLOUT, run_op(loop, op_poll(loop, fds[0], POLLIN | POLLOUT)));
  write_all(fds[1], "x", 1);
  CHECK(run_op(loop, op_poll(loop, fds[0], POLLIN | POLLOUT)) & POLLIN);
  close_both(fds);
}

CONTRACT(poll_of_a_regular_file_is_ready_at_once) {
  int fd = open_temporary();

  CHECK(run_op(loop, op_poll(loop, fd, POLLIN)) & POLLIN);
  CHECK(run_op(loop, op_poll(loop, fd, POLLOUT)) & POLLOUT);
  close(fd);
}

CONTRACT(poll_waiters_on_one_descriptor_are_all_told) {
  int fds[2];
  struct op *ops[10];

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < 10; i++) ops[i] = submitted(loop, op_poll(loop, fds[0], POLLIN));
  check_pending(loop, ops[9]);
  write_all(fds[1], "x", 1);
  for (int i = 0; i < 10; i++) CHECK_EQUAL(POLLIN, finish(loop, ops[i]));
  close_both(fds);
}

CONTRACT(close_closes) {
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_CLOSE, fds[0])));
  CHECK(fcntl(fds[0], F_GETFD) < 0);
  struct op *op = loop_acquire_op(loop, OP_CLOSE, fds[1]);
  op->flags |= OP_DETACHED;
  loop_submit(loop, op);
  while (loop->in_flight > 0) CHECK_EQUAL(0, loop_poll(loop, -1));
  CHECK(fcntl(fds[1], F_GETFD) < 0);
  CHECK(loop_shift_news(loop) == NULL);
}

/* A number comes back at once in another life; nothing of the old one may stick to it. */
CONTRACT(descriptor_numbers_can_be_reused) {
  for (int i = 0; i < 200; i++) {
    int fds[2];
    char byte = 0;

    if (i % 2) open_pipe(fds, NONBLOCKING);
    else open_pair(fds, NONBLOCKING);
    struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
    check_pending(loop, op);
    if (i % 3 == 0) {
      CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
    } else {
      write_all(fds[1], "x", 1);
      CHECK_EQUAL(1, finish(loop, op));
    }
    if (i % 5) close(fds[0]);
    else CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_CLOSE, fds[0])));
    close(fds[1]);
  }
}

CONTRACT(fsync_of_a_file_and_of_a_pipe) {
  int fd = open_temporary(), fds[2];

  write_all(fd, "x", 1);
  CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_FSYNC, fd)));
  struct op *op = loop_acquire_op(loop, OP_FSYNC, fd);
  op->as.fsync.datasync = true;
  CHECK_EQUAL(0, run_op(loop, op));
  close(fd);
  open_pipe(fds, BLOCKING);
  CHECK_EQUAL(-EINVAL, run_op(loop, loop_acquire_op(loop, OP_FSYNC, fds[0])));
  close_both(fds);
}

static int64_t run_open(struct loop *loop, const char *path, int flags, mode_t mode) {
  struct op *op = loop_acquire_op(loop, OP_OPEN, -1);

  op->as.open.path = path;
  op->as.open.flags = flags;
  op->as.open.mode = mode;
  return run_op(loop, op);
}

CONTRACT(open_gives_a_descriptor_closed_on_exec) {
  char directory[] = "/tmp/polyphony_test_XXXXXX", path[64];
  struct stat status;

  CHECK(mkdtemp(directory) != NULL);
  snprintf(path, sizeof(path), "%s/file", directory);
  CHECK_EQUAL(-ENOENT, run_open(loop, path, O_RDONLY, 0));
  int fd = (int)run_open(loop, path, O_CREAT | O_EXCL | O_RDWR, 0600);
  CHECK(fd >= 0);
  CHECK_EQUAL(FD_CLOEXEC, fcntl(fd, F_GETFD));
  CHECK_EQUAL(0, fstat(fd, &status));
  CHECK_EQUAL(0600, status.st_mode & 0777);
  CHECK_EQUAL(-EEXIST, run_open(loop, path, O_CREAT | O_EXCL | O_RDWR, 0600));
  CHECK_EQUAL(-ENOTDIR, run_open(loop, "/dev/null/x", O_RDONLY, 0));
  close(fd);
  unlink(path);
  rmdir(directory);
}

static int64_t run_stat(struct loop *loop, int fd, const char *path, int flags, struct statx *buf) {
  struct op *op = loop_acquire_op(loop, OP_STAT, fd);

  op->as.stat.path = path;
  op->as.stat.flags = flags;
  op->as.stat.mask = STATX_BASIC_STATS;
  op->as.stat.buf = buf;
  return run_op(loop, op);
}

CONTRACT(stat_by_path_and_by_descriptor) {
  struct statx status;
  int fd = open_temporary();

  LINUX_ONLY("statx(2)");
  write_all(fd, "12345", 5);
  CHECK_EQUAL(0, run_stat(loop, fd, "", AT_EMPTY_PATH, &status));
  CHECK_EQUAL(5, status.stx_size);
  CHECK_EQUAL(0, run_stat(loop, -1, "/", 0, &status));
  CHECK(S_ISDIR(status.stx_mode));
  CHECK_EQUAL(-ENOENT, run_stat(loop, -1, "/nonexistent", 0, &status));
  close(fd);
}

CONTRACT(empty_reads_and_writes_settle) {
  int fds[2];
  char byte;

  open_pair(fds, NONBLOCKING);
  write_all(fds[1], "x", 1);
  CHECK_EQUAL(0, run_op(loop, op_read(loop, fds[0], &byte, 0)));
  CHECK_EQUAL(0, run_op(loop, op_write(loop, fds[0], "", 0)));
  CHECK_EQUAL(1, run_op(loop, op_read(loop, fds[0], &byte, 1)));
  close_both(fds);
}

static int64_t double_it(void *arg) { return *(int *)arg * 2; }

CONTRACT(call_runs_beside_other_operations) {
  int fds[2], number = 21;
  char byte;

  open_pipe(fds, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  for (int i = 0; i < 100; i++)
    CHECK_EQUAL(42, run_op(loop, op_call(loop, double_it, &number, false)));
  check_pending(loop, op);
  write_all(fds[1], "x", 1);
  CHECK_EQUAL(1, finish(loop, op));
  close_both(fds);
}
