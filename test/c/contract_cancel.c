/* What every driver owes: an op that is withdrawn settles without help, and nothing gets lost. */
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support.h"
#include "test.h"

/* Cancelled in three moments: described but perhaps not yet with the kernel, waiting there, and
 * with others around it. */
static void check_cancel(struct loop *loop, struct op *(*describe)(struct loop *, int), int fd) {
  struct op *others[3];

  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, submitted(loop, describe(loop, fd))));
  struct op *op = submitted(loop, describe(loop, fd));
  check_pending(loop, op);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  for (int i = 0; i < 3; i++) others[i] = submitted(loop, describe(loop, fd));
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, others[1]));
  check_pending(loop, others[0]);
  check_pending(loop, others[2]);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, others[2]));
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, others[0]));
  CHECK_EQUAL(0, loop->in_flight);
  CHECK(loop_ops_on(loop, fd) == NULL);
}

static char scratch[64];
static struct op *a_read(struct loop *loop, int fd) { return op_read(loop, fd, scratch, 8); }
static struct op *a_recv(struct loop *loop, int fd) { return op_recv(loop, fd, scratch, 8, 0); }
static struct op *a_write(struct loop *loop, int fd) { return op_write(loop, fd, scratch, 8); }
static struct op *a_send(struct loop *loop, int fd) { return op_send(loop, fd, scratch, 8, 0); }
static struct op *an_accept(struct loop *loop, int fd) { return op_accept(loop, fd, SOCK_CLOEXEC); }
static struct op *a_poll(struct loop *loop, int fd) { return op_poll(loop, fd, POLLIN); }

static struct op *a_writev(struct loop *loop, int fd) {
  static struct iovec iov = { scratch, 8 };
  struct op *op = loop_acquire_op(loop, OP_WRITEV, fd);

  op->as.vec.iov = &iov, op->as.vec.count = 1, op->as.vec.offset = -1;
  return op;
}

static void each_blocking(struct loop *loop, void (*open_both)(int[2], enum blocking),
                          struct op *(*describe)(struct loop *, int), bool writing) {
  for (enum blocking blocking = BLOCKING; blocking <= NONBLOCKING; blocking++) {
    int fds[2];
    open_both(fds, blocking);
    if (writing) fill(fds[1]);
    check_cancel(loop, describe, fds[writing]);
    close_both(fds);
  }
}

CONTRACT(cancel_of_a_read_from_a_pipe) { each_blocking(loop, open_pipe, a_read, false); }
CONTRACT(cancel_of_a_read_from_a_socket) { each_blocking(loop, open_pair, a_read, false); }
CONTRACT(cancel_of_a_recv) { each_blocking(loop, open_pair, a_recv, false); }
CONTRACT(cancel_of_a_poll) { each_blocking(loop, open_pipe, a_poll, false); }
CONTRACT(cancel_of_a_write_to_a_pipe) { each_blocking(loop, open_pipe, a_write, true); }
CONTRACT(cancel_of_a_write_to_a_socket) { each_blocking(loop, open_pair, a_write, true); }
CONTRACT(cancel_of_a_writev) { each_blocking(loop, open_pipe, a_writev, true); }
CONTRACT(cancel_of_a_send) { each_blocking(loop, open_pair, a_send, true); }

CONTRACT(cancel_of_a_read_from_an_eventfd) {
  int fd = eventfd(0, EFD_CLOEXEC);

  check_cancel(loop, a_read, fd);
  close(fd);
}

CONTRACT(cancel_of_an_accept) {
  struct sockaddr_in addr;
  int fd = open_listener(&addr, 4);

  check_cancel(loop, an_accept, fd);
  fcntl(fd, F_SETFL, 0);
  check_cancel(loop, an_accept, fd);
  close(fd);
}

/* A listener whose queue is full drops what comes, so a connect waits. */
CONTRACT(cancel_of_a_connect) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 0), fillers[8], fd = open_tcp();

  for (int i = 0; i < 8; i++) {
    fillers[i] = open_tcp();
    connect(fillers[i], (struct sockaddr *)&addr, sizeof(addr));
  }
  struct op *op = submitted(loop, op_connect(loop, fd, &addr));
  check_pending(loop, op);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  for (int i = 0; i < 8; i++) close(fillers[i]);
  close(fd), close(listener);
}

/* Those that a worker, of ours or the kernel's, may be busy with: they end one way or the other. */
CONTRACT(cancel_of_file_operations) {
  char buffer[4096];
  struct statx status;
  int fd = open_temporary();

  for (int i = 0; i < 300; i++) {
    struct op *op = loop_acquire_op(loop, OP_FSYNC, fd);
    switch (i % 5) {
      case 0: break;
      case 1: op->kind = OP_OPEN, op->fd = -1, op->as.open.path = "/dev/null"; break;
      case 2:
        op->kind = OP_STAT, op->fd = -1, op->as.stat.path = "/", op->as.stat.buf = &status;
        break;
      case 3: op->kind = OP_READ, op->as.rw.base = buffer, op->as.rw.len = 4096; break;
      case 4: op->kind = OP_WRITE, op->as.rw.base = buffer, op->as.rw.len = 4096; break;
    }
    loop_submit(loop, op);
    if (i % 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    bool opens = op->kind == OP_OPEN;
    int64_t result = finish(loop, op);
    CHECK(result >= 0 || result == -ECANCELED);
    if (opens && result >= 0) close((int)result);
  }
  close(fd);
}

CONTRACT(cancel_of_a_call) {
  struct gate gate;

  gate_init(&gate, 3);
  struct op *op = submitted(loop, op_call(loop, gate_pass, &gate, true));
  semaphore_wait(&gate.started);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  sem_post(&gate.may_end);
  semaphore_wait(&gate.ended);
}

/* Never both and never neither: the byte is in the buffer, or the kernel still has it. */
static void check_byte(struct loop *loop, struct op *op, int fd, const char *buffer) {
  char kept = 0;
  int64_t result = finish(loop, op);

  if (result == -ECANCELED) {
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    CHECK_EQUAL(1, read(fd, &kept, 1));
    fcntl(fd, F_SETFL, flags);
    CHECK_EQUAL('x', kept);
  } else {
    CHECK_EQUAL(1, result);
    CHECK_EQUAL('x', *buffer);
    CHECK_EQUAL(0, drain(fd));
  }
}

static void race_with_bytes(struct loop *loop, void (*open_both)(int[2], enum blocking)) {
  for (int i = 0; i < 800; i++) {
    char buffer[8] = "";
    int fds[2];
    open_both(fds, i & 8 ? BLOCKING : NONBLOCKING);
    struct op *op = submitted(loop, op_read(loop, fds[0], buffer, 8));
    if (i & 1) CHECK_EQUAL(0, loop_poll(loop, 0));
    write_all(fds[1], "x", 1);
    if (i & 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    check_byte(loop, op, fds[0], buffer);
    close_both(fds);
  }
}

CONTRACT(cancel_that_meets_a_byte_in_a_pipe_loses_nothing) { race_with_bytes(loop, open_pipe); }
CONTRACT(cancel_that_meets_a_byte_in_a_socket_loses_nothing) { race_with_bytes(loop, open_pair); }

static void *write_a_byte(void *fd) {
  write_all(*(int *)fd, "x", 1);
  return NULL;
}

CONTRACT(cancel_that_meets_a_byte_from_another_thread_loses_nothing) {
  for (int i = 0; i < 500; i++) {
    char buffer[8] = "";
    pthread_t thread;
    int fds[2];
    open_pair(fds, NONBLOCKING);
    struct op *op = submitted(loop, op_recv(loop, fds[0], buffer, 8, 0));
    CHECK_EQUAL(0, loop_poll(loop, 0));
    CHECK_EQUAL(0, pthread_create(&thread, NULL, write_a_byte, &fds[1]));
    for (volatile int spin = i * 40; spin > 0; spin--) continue;
    loop_cancel(loop, op);
    await(loop, op);
    pthread_join(thread, NULL);
    check_byte(loop, op, fds[0], buffer);
    close_both(fds);
  }
}

CONTRACT(cancel_that_meets_a_connection_loses_nothing) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 16);

  for (int i = 0; i < 300; i++) {
    int client = open_tcp();
    struct op *op = submitted(loop, op_accept(loop, listener, SOCK_CLOEXEC));
    if (i & 1) CHECK_EQUAL(0, loop_poll(loop, 0));
    CHECK(connect(client, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EINPROGRESS);
    if (i & 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    int64_t result = finish(loop, op);
    if (result == -ECANCELED) result = run_op(loop, op_accept(loop, listener, SOCK_CLOEXEC));
    CHECK(result >= 0);
    close((int)result), close(client);
  }
  close(listener);
}

/* What was written before a cancel counts, and only that. */
CONTRACT(cancel_of_a_half_done_write_tells_how_much_went_out) {
  static char big[1 << 22];

  for (enum blocking blocking = BLOCKING; blocking <= NONBLOCKING; blocking++) {
    int fds[2];
    open_pair(fds, blocking);
    struct op *op = submitted(loop, op_send(loop, fds[1], big, sizeof(big), 0));
    for (int i = 0; i < 3; i++) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    int64_t result = finish(loop, op);
    CHECK_EQUAL(result > 0 ? result : 0, drain(fds[0]));
    close_both(fds);
  }
}

CONTRACT(cancel_twice_settles_once) {
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < 100; i++) {
    struct op *op = submitted(loop, op_poll(loop, fds[0], POLLIN));
    if (i % 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    loop_cancel(loop, op);
    CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  }
  CHECK_EQUAL(100, loop->stats.settled);
  CHECK_EQUAL(0, loop->pool.used - (loop->pool.used ? 1 : 0));   /* at most the driver's own */
  close_both(fds);
}

CONTRACT(cancel_of_thousands_settles_them_all) {
  enum { COUNT = 5000 };
  static struct op *ops[COUNT];
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < COUNT; i++) ops[i] = submitted(loop, op_poll(loop, fds[0], POLLIN));
  CHECK_EQUAL(0, loop_poll(loop, 0));
  for (int i = 0; i < COUNT; i++) loop_cancel(loop, ops[i]);
  for (int i = 0; i < COUNT; i++) CHECK_EQUAL(-ECANCELED, finish(loop, ops[i]));
  CHECK_EQUAL(0, loop->in_flight);
  close_both(fds);
}

/* The address of a released op is used again at once: a late completion must not hit its heir. */
CONTRACT(cancel_and_reuse_of_an_op_does_not_confuse_the_driver) {
  int fds[2];
  char byte;

  open_pair(fds, NONBLOCKING);
  for (int i = 0; i < 1000; i++) {
    struct op *op = submitted(loop, op_poll(loop, fds[0], POLLIN));
    if (i % 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
    struct op *heir = submitted(loop, op_recv(loop, fds[0], &byte, 1, 0));
    check_pending(loop, heir);
    write_all(fds[1], "x", 1);
    CHECK_EQUAL(1, finish(loop, heir));
  }
  close_both(fds);
}
