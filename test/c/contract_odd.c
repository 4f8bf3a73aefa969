/* What every driver owes: descriptors and requests that are out of the ordinary. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

static char buffer[1 << 16];

/* Reads once by waiting, so that the driver knows the descriptor as well as it ever will. */
static void converse(struct loop *loop, int fds[2]) {
  struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 16));

  check_pending(loop, op);
  write_all(fds[1], "hello", 5);
  CHECK_EQUAL(5, finish(loop, op));
}

/* Numbers that get another file behind the driver's back, with no poll in between. */

CONTRACT(a_number_reused_unseen_is_read_all_the_same) {
  void (*const openers[])(int[2], enum blocking) = { open_pipe, open_pair };
  int fds[2];

  for (int i = 0; i < 16; i++) {
    openers[i & 1](fds, BLOCKING);
    converse(loop, fds);
    close_both(fds);
    openers[(i >> 1) & 1](fds, BLOCKING);
    converse(loop, fds);
    converse(loop, fds);
    close_both(fds);
  }
}

CONTRACT(a_number_replaced_by_dup2_is_read_all_the_same) {
  int fds[2], others[2];

  for (int i = 0; i < 8; i++) {
    open_pair(fds, BLOCKING);
    open_pair(others, BLOCKING);
    int keep = i & 1 ? dup(fds[0]) : -1;       /* the old file lives on, epoll still has it */
    converse(loop, fds);
    dup2(others[0], fds[0]);
    struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 16));
    check_pending(loop, op);
    if (keep >= 0) write_all(fds[1], "stray", 5);
    check_pending(loop, op);
    write_all(others[1], "right", 5);
    CHECK_EQUAL(5, finish(loop, op));
    CHECK(memcmp(buffer, "right", 5) == 0);
    close_both(fds);
    close_both(others);
    if (keep >= 0) close(keep);
  }
}

CONTRACT(a_number_reused_after_a_cancel_is_read_all_the_same) {
  int fds[2];

  for (int i = 0; i < 8; i++) {
    open_pair(fds, BLOCKING);
    struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 16));
    check_pending(loop, op);
    CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
    close_both(fds);
    open_pair(fds, BLOCKING);
    converse(loop, fds);
    close_both(fds);
  }
}

CONTRACT(a_number_that_was_a_pipe_may_be_a_file_or_a_socket_now) {
  int fds[2], pipe_fds[2];

  LINUX_ONLY("MSG_NOSIGNAL");
  open_pair(fds, BLOCKING);
  open_pipe(pipe_fds, BLOCKING);
  converse(loop, pipe_fds);
  int number = pipe_fds[0], file = open_temporary();
  write_all(file, "bytes", 5);
  lseek(file, 0, SEEK_SET);
  dup2(file, number);
  CHECK_EQUAL(5, run_op(loop, op_read(loop, number, buffer, 16)));
  CHECK_EQUAL(0, run_op(loop, op_read(loop, number, buffer, 16)));
  dup2(fds[0], number);
  write_all(fds[1], "socket", 6);
  CHECK_EQUAL(6, run_op(loop, op_read(loop, number, buffer, 16)));
  close(fds[1]);
  CHECK_EQUAL(0, run_op(loop, op_read(loop, number, buffer, 16)));
  signal(SIGPIPE, SIG_DFL);
  CHECK_EQUAL(-EPIPE, run_op(loop, op_write(loop, number, "x", 1)));
  close(fds[0]), close(file), close_both(pipe_fds);
}

/* Devices. */

CONTRACT(tty_is_read_and_written_and_keeps_its_flags) {
  int master, slave;
  struct termios raw;

  CHECK(openpty(&master, &slave, NULL, NULL, NULL) == 0);
  tcgetattr(slave, &raw);
  cfmakeraw(&raw);
  tcsetattr(slave, TCSANOW, &raw);
  int flags = fcntl(slave, F_GETFL);
  for (int i = 0; i < 3; i++) {
    struct op *op = submitted(loop, op_read(loop, slave, buffer, 100));
    check_pending(loop, op);
    write_all(master, "typed", 5);
    CHECK_EQUAL(5, finish(loop, op));
    CHECK_EQUAL(6, run_op(loop, op_write(loop, slave, "echoed", 6)));
    CHECK_EQUAL(6, run_op(loop, op_read(loop, master, buffer, 100)));
  }
  struct iovec iov[2] = { { "", 0 }, { "vector", 6 } };
  struct op *vector = loop_acquire_op(loop, OP_WRITEV, slave);
  vector->as.vec.iov = iov, vector->as.vec.count = 2, vector->as.vec.offset = -1;
  CHECK_EQUAL(6, run_op(loop, vector));
  struct op *op = submitted(loop, op_read(loop, slave, buffer, 100));
  check_pending(loop, op);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  CHECK_EQUAL(flags, fcntl(slave, F_GETFL));
  close(master), close(slave);
}

CONTRACT(devices_and_proc_files_work) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC), zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  int stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

  CHECK_EQUAL(0, run_op(loop, op_read(loop, null, buffer, 16)));
  CHECK_EQUAL(5, run_op(loop, op_write(loop, null, "nobody", 5)));
  CHECK_EQUAL(16, run_op(loop, op_read(loop, zero, buffer, 16)));
  CHECK(run_op(loop, op_read(loop, stat, buffer, 4096)) > 0);
  CHECK_EQUAL(0, run_op(loop, op_read(loop, stat, buffer, 4096)));
  close(null), close(zero), close(stat);
}

CONTRACT(inotify_is_read) {
  int fd = inotify_init1(IN_CLOEXEC), made;
  char dir[] = "/tmp/polyphony-XXXXXX", path[64];

  CHECK(mkdtemp(dir) != NULL);
  snprintf(path, sizeof(path), "%s/file", dir);
  inotify_add_watch(fd, dir, IN_CREATE);
  struct op *op = submitted(loop, op_read(loop, fd, buffer, 4096));
  check_pending(loop, op);
  CHECK((made = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) >= 0);
  CHECK(finish(loop, op) > 0);
  close(made), close(fd), unlink(path), rmdir(dir);
}

CONTRACT(directory_cannot_be_read) {
  int fd = open("/tmp", O_RDONLY | O_CLOEXEC);

  CHECK_EQUAL(-EISDIR, run_op(loop, op_read(loop, fd, buffer, 16)));
  close(fd);
}

/* Requests. */

CONTRACT(recv_with_waitall_waits_for_all) {
  int fds[2];

  open_tcp_pair(fds);
  struct op *op = submitted(loop, op_recv(loop, fds[0], buffer, 10, MSG_WAITALL));
  check_pending(loop, op);
  write_all(fds[1], "abcd", 4);
  check_pending(loop, op);
  write_all(fds[1], "efghijkl", 8);
  CHECK_EQUAL(10, finish(loop, op));
  CHECK(memcmp(buffer, "abcdefghij", 10) == 0);
  CHECK_EQUAL(2, run_op(loop, op_recv(loop, fds[0], buffer, 10, 0)));

  op = submitted(loop, op_recv(loop, fds[0], buffer, 10, MSG_WAITALL));
  write_all(fds[1], "abc", 3);
  check_pending(loop, op);
  CHECK_EQUAL(3, cancel_and_finish(loop, op));

  op = submitted(loop, op_recv(loop, fds[0], buffer, 10, MSG_WAITALL));
  write_all(fds[1], "abc", 3);
  check_pending(loop, op);
  shutdown(fds[1], SHUT_WR);
  CHECK_EQUAL(3, finish(loop, op));
  close_both(fds);
}

CONTRACT(send_with_waitall_sends_all) {
  static char big[1 << 22], sink[1 << 16];
  int fds[2];
  size_t got = 0;

  open_tcp_pair(fds);
  struct op *op = submitted(loop, op_send(loop, fds[1], big, sizeof(big), MSG_WAITALL));
  while (got < sizeof(big)) {
    loop_poll(loop, 0);
    ssize_t n = recv(fds[0], sink, sizeof(sink), MSG_DONTWAIT);
    if (n > 0) got += (size_t)n;
  }
  CHECK_EQUAL(sizeof(big), finish(loop, op));
  close_both(fds);
}

CONTRACT(recv_that_must_not_wait_does_not) {
  int fds[2];

  open_pair(fds, BLOCKING);
  CHECK_EQUAL(-EAGAIN, run_op(loop, op_recv(loop, fds[0], buffer, 10, MSG_DONTWAIT)));
  write_all(fds[1], "peek", 4);
  CHECK_EQUAL(4, run_op(loop, op_recv(loop, fds[0], buffer, 10, MSG_PEEK)));
  CHECK_EQUAL(4, run_op(loop, op_recv(loop, fds[0], buffer, 10, MSG_DONTWAIT)));
  close_both(fds);
}

CONTRACT(connect_waits_for_room_in_the_queue_of_a_unix_listener) {
  struct sockaddr_storage storage = { 0 };
  struct sockaddr_un *un = (struct sockaddr_un *)&storage;
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[3], accepted[3];
  struct op *ops[3];

  un->sun_family = AF_UNIX;
  snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "polyphony-test-%d", getpid());
  socklen_t len = (socklen_t)(sizeof(sa_family_t) + 1 + strlen(un->sun_path + 1));
  CHECK(bind(listener, (struct sockaddr *)un, len) == 0 && listen(listener, 0) == 0);
  for (int i = 0; i < 3; i++) {
    fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ops[i] = loop_acquire_op(loop, OP_CONNECT, fds[i]);
    ops[i]->as.connect.addr = &storage;
    ops[i]->as.connect.len = len;
    loop_submit(loop, ops[i]);
  }
  for (int i = 0; i < 3; i++) accepted[i] = (int)run_op(loop, op_accept(loop, listener, 0));
  for (int i = 0; i < 3; i++) {
    CHECK_EQUAL(0, finish(loop, ops[i]));
    close(fds[i]), close(accepted[i]);
  }
  close(listener);
}

CONTRACT(poll_with_a_waiting_reader_takes_its_time) {
  int fds[2];

  open_pair(fds, BLOCKING);
  converse(loop, fds);
  struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 16));
  int64_t start = clock_monotonic();
  CHECK_EQUAL(0, loop_poll(loop, NSEC_PER_SEC / 10));
  int64_t took = clock_monotonic() - start;
  CHECK(took >= NSEC_PER_SEC / 10 && took < NSEC_PER_SEC / 5);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
}
