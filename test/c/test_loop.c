/* The loop itself, on a driver that does nothing. */
#include <fcntl.h>
#include <unistd.h>
#include "support.h"
#include "test.h"

static struct loop loop;

static struct op *submit_poll(int fd) { return submitted(&loop, op_poll(&loop, fd, 1)); }

TEST(loop_gives_news_in_the_order_of_settling) {
  struct op *ops[3];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int i = 0; i < 3; i++) ops[i] = submit_poll(-1);
  CHECK_EQUAL(3, loop.in_flight);
  for (int i = 2; i >= 0; i--) loop_settle(&loop, ops[i], i);
  CHECK_EQUAL(0, loop.in_flight);
  for (int i = 2; i >= 0; i--) {
    struct op *op = loop_shift_news(&loop);
    CHECK(op == ops[i] && op_settled_p(op));
    CHECK_EQUAL(i, op->result);
    loop_release_op(&loop, op);
  }
  CHECK(loop_shift_news(&loop) == NULL);
  CHECK_EQUAL(0, loop.pool.used);
  loop_close(&loop);
}

TEST(loop_does_not_wait_while_there_is_news) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  loop_settle(&loop, submit_poll(-1), 0);
  CHECK_EQUAL(0, loop_poll(&loop, -1));
  CHECK_EQUAL(0, loop.stats.waits);
  loop_close(&loop);
}

TEST(loop_knows_the_ops_on_a_descriptor) {
  struct op *ops[3];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK(loop_ops_on(&loop, 5) == NULL);
  for (int i = 0; i < 3; i++) ops[i] = submit_poll(5);
  struct op *other = submit_poll(100000);          /* the slots move, the links must follow */
  loop_settle(&loop, ops[2], 0);
  loop_settle(&loop, ops[1], 0);
  CHECK(loop_ops_on(&loop, 5) == ops[0] && ops[0]->fd_next == NULL);
  loop_settle(&loop, ops[0], 0);
  CHECK(loop_ops_on(&loop, 5) == NULL);
  CHECK(loop_ops_on(&loop, 100000) == other);
  CHECK(loop_ops_on(&loop, -1) == NULL);
  CHECK(loop_fd_slot(&loop, -1) == NULL);
  loop_close(&loop);
}

TEST(loop_keeps_hints_when_the_slots_grow) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  loop_fd_slot(&loop, 3)->hints = FD_DRAINED;
  loop_fd_slot(&loop, 70000);
  CHECK_EQUAL(FD_DRAINED, loop_fd_slot(&loop, 3)->hints);
  loop_close(&loop);
}

TEST(loop_releases_detached_ops_and_closes_their_descriptor) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = op_accept(&loop, 0, 0);
  op->flags |= OP_DETACHED;
  op->memory = malloc(1);
  loop_submit(&loop, op);
  loop_settle(&loop, op, open("/dev/null", O_RDONLY));
  CHECK_EQUAL(0, loop.pool.used);
  CHECK(loop_shift_news(&loop) == NULL);
  loop_close(&loop);
}

TEST(loop_does_not_count_the_drivers_own_ops) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = op_poll(&loop, loop.wakeup.fd, 1);
  op->flags |= OP_INTERNAL;
  loop_submit(&loop, op);
  CHECK_EQUAL(0, loop.in_flight);
  CHECK(loop_ops_on(&loop, loop.wakeup.fd) == NULL);
  loop_settle(&loop, op, 1);
  CHECK(loop_shift_news(&loop) == NULL);
  CHECK_EQUAL(0, loop.stats.settled);
  loop_close(&loop);
}

TEST(loop_cancels_once_and_only_in_flight) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = op_poll(&loop, 0, 1);
  loop_cancel(&loop, op);                          /* idle: nothing */
  CHECK_EQUAL(OP_IDLE, op->state);
  loop_submit(&loop, op);
  loop_cancel(&loop, op);
  CHECK_EQUAL(-ECANCELED, op->result);
  loop_cancel(&loop, op);                          /* settled: nothing */
  CHECK_EQUAL(1, loop.stats.cancelled);
  CHECK_EQUAL(1, loop.stats.settled);
  loop_close(&loop);
}

TEST(loop_keeps_many_shots_in_order) {
  struct op_shot shot;
  int32_t next = 0;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = submitted(&loop, loop_acquire_op(&loop, OP_RECV_MULTI, 0));
  for (int32_t i = 0; i < 1000; i++) {
    loop_add_shot(&loop, op, (struct op_shot) { .result = i + 1 });
    if (i % 3 == 0) CHECK(loop_shift_shot(op, &shot) && shot.result == ++next);
  }
  CHECK(loop_shift_news(&loop) == op);             /* once, however many shots */
  CHECK(loop_shift_news(&loop) == NULL);
  while (loop_shift_shot(op, &shot)) CHECK_EQUAL(++next, shot.result);
  CHECK_EQUAL(1000, next);
  loop_add_shot(&loop, op, (struct op_shot) { .result = 1 });
  CHECK(loop_shift_news(&loop) == op);             /* and again after it was looked at */
  loop_close(&loop);
}

TEST(loop_closes_accepted_sockets_that_nobody_took) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int round = 0; round < 2; round++) {        /* the second is left to loop_close */
    struct op *op = submitted(&loop, loop_acquire_op(&loop, OP_ACCEPT_MULTI, 0));
    for (int i = 0; i < 20; i++)
      loop_add_shot(&loop, op, (struct op_shot) { .result = open("/dev/null", O_RDONLY) });
    loop_add_shot(&loop, op, (struct op_shot) { .result = -EMFILE });
    if (round == 1) break;
    loop_settle(&loop, op, -ECANCELED);
    loop_release_op(&loop, op);                    /* while in the list of news */
    CHECK(loop_shift_news(&loop) == NULL);
  }
  loop_close(&loop);
}

TEST(loop_recycles_buffers_that_nobody_took) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = submitted(&loop, loop_acquire_op(&loop, OP_RECV_MULTI, 0));
  for (int i = 0; i < 20; i++) loop_add_shot(&loop, op, (struct op_shot) { .result = 5 });
  loop_add_shot(&loop, op, (struct op_shot) { .result = 0 });
  loop_settle(&loop, op, 0);
  loop_release_op(&loop, op);
  CHECK_EQUAL(21, fake_recycled);
  loop_close(&loop);
}

TEST(loop_takes_any_op_out_of_the_news_on_release) {
  struct op *ops[3];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int gone = 0; gone < 3; gone++) {
    for (int i = 0; i < 3; i++) loop_settle(&loop, ops[i] = submit_poll(-1), 0);
    loop_release_op(&loop, ops[gone]);
    struct op *late = submit_poll(-1);
    loop_settle(&loop, late, 0);
    for (int i = 0; i < 3; i++) if (i != gone) CHECK(loop_shift_news(&loop) == ops[i]);
    CHECK(loop_shift_news(&loop) == late);
    CHECK(loop_shift_news(&loop) == NULL);
  }
  loop_close(&loop);
}

TEST(loop_close_settles_everything_and_closes_what_came) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int i = 0; i < 200; i++) submit_poll(i);
  struct op *op = submitted(&loop, op_accept(&loop, 0, 0));
  loop_settle(&loop, op, open("/dev/null", O_RDONLY));
  loop_close(&loop);
  loop_close(&loop);                               /* idempotent */
  CHECK_EQUAL(0, loop.in_flight);
}

TEST(loop_open_that_fails_leaves_nothing_behind) {
  fake_open_result = -EPERM;
  CHECK_EQUAL(-EPERM, loop_open(&loop, &fake_driver));
  loop_close(&loop);
}

TEST(loop_after_fork_forgets_ops_and_timers) {
  struct timer timer = { 0 };

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK_EQUAL(0, loop_after_fork(&loop));          /* with nothing to forget */
  struct op *op = submit_poll(3);
  op->memory = malloc(1);
  loop_settle(&loop, submit_poll(4), 0);
  timer_heap_arm(&loop.timers, &timer, 1);
  loop_wake(&loop);
  CHECK_EQUAL(0, loop_after_fork(&loop));
  CHECK(!timer_armed_p(&timer));
  CHECK(loop_shift_news(&loop) == NULL && loop_ops_on(&loop, 3) == NULL);
  CHECK_EQUAL(0, loop.in_flight);
  CHECK_EQUAL(0, loop.pool.used);
  loop_close(&loop);
}
