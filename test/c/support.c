#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

/* The fake driver. */

unsigned fake_recycled;
int fake_open_result;

static int fake_probe(char *why, size_t size) {
  (void)why, (void)size;
  return 0;
}

static int fake_open(struct loop *loop) {
  if (fake_open_result == 0) loop->driver_data = loop;
  return fake_open_result;
}

static void fake_close(struct loop *loop) { loop->driver_data = NULL; }
static int fake_after_fork(struct loop *loop) { return fake_open(loop); }
static void fake_submit(struct loop *loop, struct op *op) { (void)loop, (void)op; }
static void fake_cancel(struct loop *loop, struct op *op) { loop_settle(loop, op, -ECANCELED); }

static int fake_poll(struct loop *loop, int64_t timeout_ns) {
  struct pollfd pollfd = { .fd = loop->wakeup.fd, .events = POLLIN };

  poll(&pollfd, 1, timeout_ns < 0 ? -1 : (int)(timeout_ns / 1000000));
  wakeup_drain(&loop->wakeup);
  return 0;
}

static void fake_recycle(struct loop *loop, uint32_t buffer) {
  (void)loop, (void)buffer;
  fake_recycled++;
}

const struct driver fake_driver = {
  .name = "fake", .probe = fake_probe, .open = fake_open, .close = fake_close,
  .after_fork = fake_after_fork, .submit = fake_submit, .cancel = fake_cancel, .poll = fake_poll,
  .recycle = fake_recycle,
};

/* Ops. */

static struct op *op_rw(struct loop *loop, enum op_kind kind, int fd, const char *base, size_t len,
                        int flags) {
  struct op *op = loop_acquire_op(loop, kind, fd);

  op->as.rw.base = (char *)base;
  op->as.rw.len = len;
  op->as.rw.offset = -1;
  op->as.rw.flags = flags;
  return op;
}

struct op *op_read(struct loop *loop, int fd, char *base, size_t len) {
  return op_rw(loop, OP_READ, fd, base, len, 0);
}

struct op *op_write(struct loop *loop, int fd, const char *base, size_t len) {
  return op_rw(loop, OP_WRITE, fd, base, len, 0);
}

struct op *op_recv(struct loop *loop, int fd, char *base, size_t len, int flags) {
  return op_rw(loop, OP_RECV, fd, base, len, flags);
}

struct op *op_send(struct loop *loop, int fd, const char *base, size_t len, int flags) {
  return op_rw(loop, OP_SEND, fd, base, len, flags);
}

struct op *op_accept(struct loop *loop, int fd, int flags) {
  struct op *op = loop_acquire_op(loop, OP_ACCEPT, fd);

  op->as.accept.flags = flags;
  return op;
}

struct op *op_connect(struct loop *loop, int fd, const struct sockaddr_in *addr) {
  struct op *op = loop_acquire_op(loop, OP_CONNECT, fd);

  op->memory = calloc(1, sizeof(struct sockaddr_storage));
  memcpy(op->memory, addr, sizeof(*addr));
  op->as.connect.addr = op->memory;
  op->as.connect.len = sizeof(*addr);
  return op;
}

struct op *op_poll(struct loop *loop, int fd, unsigned events) {
  struct op *op = loop_acquire_op(loop, OP_POLL, fd);

  op->as.poll.events = events;
  return op;
}

struct op *op_call(struct loop *loop, int64_t (*fn)(void *), void *arg, bool orphanable) {
  struct op *op = loop_acquire_op(loop, OP_CALL, -1);

  op->as.call.fn = fn;
  op->as.call.arg = arg;
  op->as.call.orphanable = orphanable;
  return op;
}

struct op *submitted(struct loop *loop, struct op *op) {
  loop_submit(loop, op);
  return op;
}

void forget_news(struct loop *loop) {
  while (loop_shift_news(loop)) continue;
}

void await(struct loop *loop, struct op *op) {
  forget_news(loop);
  while (!op_settled_p(op)) {
    CHECK_EQUAL(0, loop_poll(loop, -1));
    forget_news(loop);
  }
}

int64_t finish(struct loop *loop, struct op *op) {
  await(loop, op);
  int64_t result = op->result;
  loop_release_op(loop, op);
  return result;
}

int64_t run_op(struct loop *loop, struct op *op) { return finish(loop, submitted(loop, op)); }

void check_pending(struct loop *loop, struct op *op) {
  for (int i = 0; i < 3; i++) CHECK_EQUAL(0, loop_poll(loop, 0));
  if (!op_settled_p(op)) return;
  test_fail(__FILE__, __LINE__, "%s settled with %lld, though nothing happened",
            op_kind_name(op->kind), (long long)op->result);
}

int64_t cancel_and_finish(struct loop *loop, struct op *op) {
  loop_cancel(loop, op);
  for (int i = 0; i < 100 && !op_settled_p(op); i++) CHECK_EQUAL(0, loop_poll(loop, 0));
  if (!op_settled_p(op))
    test_fail(__FILE__, __LINE__, "a cancelled %s did not settle", op_kind_name(op->kind));
  return finish(loop, op);
}

/* Descriptors. */

void open_pipe(int fds[2], enum blocking blocking) {
  CHECK_EQUAL(0, pipe2(fds, O_CLOEXEC | (blocking == NONBLOCKING ? O_NONBLOCK : 0)));
}

void open_pair(int fds[2], enum blocking blocking) {
  int type = SOCK_STREAM | SOCK_CLOEXEC | (blocking == NONBLOCKING ? SOCK_NONBLOCK : 0);

  CHECK_EQUAL(0, socketpair(AF_UNIX, type, 0, fds));
}

int open_tcp(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  CHECK(fd >= 0);
  return fd;
}

int open_listener(struct sockaddr_in *addr, int backlog) {
  socklen_t len = sizeof(*addr);
  int fd = open_tcp();

  memset(addr, 0, sizeof(*addr));
  addr->sin_family = AF_INET;
  addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQUAL(0, bind(fd, (struct sockaddr *)addr, sizeof(*addr)));
  CHECK_EQUAL(0, listen(fd, backlog));
  CHECK_EQUAL(0, getsockname(fd, (struct sockaddr *)addr, &len));
  return fd;
}

void open_tcp_pair(int fds[2]) {
  struct sockaddr_in addr;
  int listener = open_listener(&addr, 1);

  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK_EQUAL(0, connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)));
  fcntl(listener, F_SETFL, 0);
  fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  CHECK(fds[1] >= 0);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  close(listener);
}

int open_temporary(void) {
  char path[] = "/tmp/polyphony_test_XXXXXX";
  int fd = mkostemp(path, O_CLOEXEC);

  CHECK(fd >= 0);
  unlink(path);
  return fd;
}

void close_both(int fds[2]) {
  CHECK_EQUAL(0, close(fds[0]));
  CHECK_EQUAL(0, close(fds[1]));
}

static int make_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);

  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  return flags;
}

void fill(int fd) {
  static const char zeros[65536];
  int flags = make_nonblocking(fd);

  while (write(fd, zeros, sizeof(zeros)) > 0) continue;
  while (write(fd, zeros, 1) > 0) continue;
  fcntl(fd, F_SETFL, flags);
}

size_t drain(int fd) {
  static char bytes[65536];
  size_t total = 0;
  int flags = make_nonblocking(fd);

  for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) > 0; total += (size_t)n) continue;
  fcntl(fd, F_SETFL, flags);
  return total;
}

void write_all(int fd, const char *bytes, size_t len) {
  CHECK_EQUAL(len, write(fd, bytes, len));
}

int unused_descriptor(void) {
  int fd = dup(0);

  close(fd);
  return fd;
}

/* Gates. */

void gate_init(struct gate *gate, int64_t result) {
  sem_init(&gate->started, 0, 0);
  sem_init(&gate->may_end, 0, 0);
  sem_init(&gate->ended, 0, 0);
  gate->result = result;
  gate->runs = 0;
}

int64_t gate_pass(void *arg) {
  struct gate *gate = arg;
  int64_t result = gate->result;

  gate->runs++;
  sem_post(&gate->started);
  semaphore_wait(&gate->may_end);
  sem_post(&gate->ended);
  return result;
}

void gate_free(struct gate *gate) {
  sem_destroy(&gate->started);
  sem_destroy(&gate->may_end);
  sem_destroy(&gate->ended);
}

void semaphore_wait(sem_t *semaphore) {
  while (sem_wait(semaphore) < 0) CHECK_EQUAL(EINTR, errno);
}
