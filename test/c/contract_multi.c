/* What a driver with the feature owes: multishot ops and linked ops. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "support.h"
#include "test.h"

static void need(struct loop *loop, enum driver_feature feature, const char *name) {
  char why[64];

  snprintf(why, sizeof(why), "%s has no %s", loop->driver->name, name);
  if (!(loop->features & feature)) test_skip(why);
}

static struct op *accept_multi(struct loop *loop, int fd) {
  struct op *op = loop_acquire_op(loop, OP_ACCEPT_MULTI, fd);

  op->as.accept.flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  return submitted(loop, op);
}

static struct op_shot next_shot(struct loop *loop, struct op *op) {
  struct op_shot shot;

  while (!loop_shift_shot(op, &shot)) {
    CHECK(!op_settled_p(op));
    CHECK_EQUAL(0, loop_poll(loop, -1));
    forget_news(loop);
  }
  return shot;
}

static int connected(const struct sockaddr_in *addr) {
  int fd = open_tcp();

  CHECK(connect(fd, (struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EINPROGRESS);
  return fd;
}

CONTRACT(multi_accept_gives_each_connection) {
  struct sockaddr_in addr;
  int clients[50];

  need(loop, DRIVER_MULTI_ACCEPT, "multishot accept");
  int listener = open_listener(&addr, 64);
  struct op *op = accept_multi(loop, listener);
  check_pending(loop, op);
  for (int i = 0; i < 50; i++) clients[i] = connected(&addr);
  for (int i = 0; i < 50; i++) {
    struct op_shot shot = next_shot(loop, op);
    CHECK(shot.result >= 0);
    CHECK_EQUAL(FD_CLOEXEC, fcntl(shot.result, F_GETFD));
    close(shot.result);
    close(clients[i]);
  }
  check_pending(loop, op);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close(listener);
}

/* The harness counts descriptors. */
CONTRACT(multi_accept_that_ends_closes_what_nobody_took) {
  struct sockaddr_in addr;
  int clients[20];

  need(loop, DRIVER_MULTI_ACCEPT, "multishot accept");
  int listener = open_listener(&addr, 64);
  struct op *op = accept_multi(loop, listener);
  for (int i = 0; i < 20; i++) clients[i] = connected(&addr);
  close(next_shot(loop, op).result);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  op = accept_multi(loop, listener);               /* this one is left to loop_close */
  for (int i = 0; i < 20; i++) close(clients[i]);
  int client = connected(&addr);
  close(next_shot(loop, op).result);
  close(client);
  loop_close(loop);
  close(listener);
}

static void check_bytes(struct loop *loop, struct op_shot shot, const char *bytes) {
  CHECK_EQUAL(strlen(bytes), shot.result);
  CHECK(memcmp(loop->driver->buffer(loop, shot.buffer), bytes, strlen(bytes)) == 0);
  loop->driver->recycle(loop, shot.buffer);
}

CONTRACT(multi_recv_gives_bytes_as_they_come_and_the_end) {
  int fds[2];

  need(loop, DRIVER_MULTI_RECV, "multishot receive");
  open_pair(fds, NONBLOCKING);
  struct op *op = submitted(loop, loop_acquire_op(loop, OP_RECV_MULTI, fds[0]));
  check_pending(loop, op);
  write_all(fds[1], "one", 3);
  check_bytes(loop, next_shot(loop, op), "one");
  write_all(fds[1], "two", 3);
  check_bytes(loop, next_shot(loop, op), "two");
  close(fds[1]);
  CHECK_EQUAL(0, next_shot(loop, op).result);
  finish(loop, op);                                /* after the end it is no longer armed */
  close(fds[0]);
}

CONTRACT(multi_recv_cancelled_gives_up_or_keeps_all_bytes) {
  char rest[16];
  struct op_shot shot;

  need(loop, DRIVER_MULTI_RECV, "multishot receive");
  for (int i = 0; i < 200; i++) {
    int fds[2];
    size_t got = 0;
    open_pair(fds, NONBLOCKING);
    struct op *op = submitted(loop, loop_acquire_op(loop, OP_RECV_MULTI, fds[0]));
    if (i & 1) CHECK_EQUAL(0, loop_poll(loop, 0));
    write_all(fds[1], "abc", 3);
    if (i & 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    await(loop, op);
    for (; loop_shift_shot(op, &shot); got += (size_t)shot.result) {
      if (shot.result <= 0) break;
      loop->driver->recycle(loop, shot.buffer);
    }
    loop_release_op(loop, op);
    ssize_t n = read(fds[0], rest, sizeof(rest));
    CHECK_EQUAL(3, got + (n > 0 ? (size_t)n : 0));
    close_both(fds);
  }
}

/* Nothing is given back until the op ends for want of buffers; then all is, and it goes on. */
CONTRACT(multi_recv_survives_a_lack_of_buffers) {
  enum { TOTAL = 16 << 20 };
  struct { struct op_shot shot; } *held = calloc(1 << 16, sizeof(*held));
  unsigned holding = 0, ends = 0;
  uint32_t sent = 0, got = 0;
  int fds[2];

  need(loop, DRIVER_MULTI_RECV, "multishot receive");
  open_pair(fds, NONBLOCKING);
  struct op *op = submitted(loop, loop_acquire_op(loop, OP_RECV_MULTI, fds[0]));
  while (got < TOTAL) {
    char bytes[4096];
    for (uint32_t i = 0; i < sizeof(bytes); i++) bytes[i] = (char)((sent + i) * 31 >> 3);
    ssize_t n = sent < TOTAL ? send(fds[1], bytes, sizeof(bytes), 0) : 0;
    if (n > 0) sent += (uint32_t)n;
    CHECK_EQUAL(0, loop_poll(loop, 0));
    forget_news(loop);
    for (struct op_shot shot; loop_shift_shot(op, &shot);) {
      if (shot.result <= 0) {
        CHECK_EQUAL(-ENOBUFS, shot.result);
        continue;
      }
      const char *part = loop->driver->buffer(loop, shot.buffer);
      for (int32_t i = 0; i < shot.result; i++, got++) CHECK_EQUAL((char)(got * 31 >> 3), part[i]);
      held[holding++].shot = shot;
    }
    if (!op_settled_p(op) && got < TOTAL) continue;
    if (op_settled_p(op)) CHECK_EQUAL(-ENOBUFS, op->result);
    while (holding > 0) loop->driver->recycle(loop, held[--holding].shot.buffer);
    if (!op_settled_p(op)) continue;
    ends++;
    loop_release_op(loop, op);
    op = submitted(loop, loop_acquire_op(loop, OP_RECV_MULTI, fds[0]));
  }
  CHECK(ends > 0);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
  free(held);
}

static struct op *linked(struct op *op) {
  op->flags |= OP_LINKED;
  return op;
}

CONTRACT(linked_ops_run_one_after_the_other) {
  int fds[2], pipe_fds[2];
  char byte, buffer[8];

  need(loop, DRIVER_LINK, "links");
  open_pipe(fds, BLOCKING);
  open_pipe(pipe_fds, BLOCKING);
  struct op *head = submitted(loop, linked(op_read(loop, fds[0], &byte, 1)));
  struct op *next = submitted(loop, op_write(loop, pipe_fds[1], "after", 5));
  check_pending(loop, next);
  CHECK_EQUAL(0, drain(pipe_fds[0]));
  write_all(fds[1], "x", 1);
  CHECK_EQUAL(1, finish(loop, head));
  CHECK_EQUAL(5, finish(loop, next));
  CHECK_EQUAL(5, read(pipe_fds[0], buffer, 8));
  close_both(fds);
  close_both(pipe_fds);
}

CONTRACT(linked_op_is_cancelled_when_the_first_fails_or_is_cancelled) {
  int fds[2], bad = unused_descriptor();
  char byte;

  need(loop, DRIVER_LINK, "links");
  open_pipe(fds, BLOCKING);
  bad = fds[1] + 1;
  struct op *head = submitted(loop, linked(op_write(loop, bad, "x", 1)));
  struct op *next = submitted(loop, op_write(loop, fds[1], "x", 1));
  CHECK_EQUAL(-EBADF, finish(loop, head));
  CHECK_EQUAL(-ECANCELED, finish(loop, next));

  head = submitted(loop, linked(op_read(loop, fds[0], &byte, 1)));
  next = submitted(loop, op_write(loop, fds[1], "x", 1));
  check_pending(loop, next);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, head));
  CHECK_EQUAL(-ECANCELED, finish(loop, next));
  CHECK_EQUAL(0, drain(fds[0]));
  close_both(fds);
}

/* A full queue is flushed; if that comes between two linked ops, the link must not break. */
CONTRACT(linked_ops_stay_linked_when_the_queue_is_full) {
  enum { PAIRS = 5000 };
  static struct op *heads[PAIRS], *tails[PAIRS];
  int fds[2];

  need(loop, DRIVER_LINK, "links");
  open_pipe(fds, BLOCKING);
  for (int i = 0; i < PAIRS; i++) {
    if (i % 7 == 0) loop_submit(loop, op_poll(loop, fds[1], POLLOUT));   /* shifts the boundary */
    heads[i] = submitted(loop, linked(op_write(loop, fds[1] + 1, "x", 1)));
    tails[i] = submitted(loop, op_write(loop, fds[1], "x", 1));
  }
  for (int i = 0; i < PAIRS; i++) {
    CHECK_EQUAL(-EBADF, finish(loop, heads[i]));
    CHECK_EQUAL(-ECANCELED, finish(loop, tails[i]));
  }
  CHECK_EQUAL(0, drain(fds[0]));
  close_both(fds);
}

CONTRACT(linked_chains_that_succeed_keep_their_order) {
  enum { COUNT = 3000 };
  static struct op *ops[COUNT];
  char got[COUNT];
  int fds[2];

  need(loop, DRIVER_LINK, "links");
  open_pipe(fds, BLOCKING);
  for (int i = 0; i < COUNT; i++) {
    ops[i] = op_write(loop, fds[1], &"abc"[i % 3], 1);
    if (i % 3 < 2) ops[i]->flags |= OP_LINKED;
    loop_submit(loop, ops[i]);
  }
  for (int i = 0; i < COUNT; i++) CHECK_EQUAL(1, finish(loop, ops[i]));
  CHECK_EQUAL(COUNT, read(fds[0], got, COUNT));
  close_both(fds);
}
