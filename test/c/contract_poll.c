/* What every driver owes: waiting, waking, and any number of operations at once. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

static const int64_t timeouts[] = { 1, 50000, 200000, 1000000, 1500000, 5000000, 20000000 };

static void check_timeouts(struct loop *loop) {
  for (unsigned i = 0; i < sizeof(timeouts) / sizeof(*timeouts); i++) {
    int64_t start = clock_monotonic();
    CHECK_EQUAL(0, loop_poll(loop, timeouts[i]));
    CHECK(clock_monotonic() - start >= timeouts[i]);
  }
}

CONTRACT(poll_is_never_early) {
  int fds[2];
  char byte;

  check_timeouts(loop);                            /* with nothing in flight */
  open_pipe(fds, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  check_timeouts(loop);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
}

/* The best of many: a busy machine makes any of them longer. */
static int64_t shortest_poll(struct loop *loop, int64_t timeout) {
  int64_t best = NSEC_PER_SEC;

  for (int i = 0; i < 200 && best >= timeout + 400000; i++) {
    int64_t start = clock_monotonic();
    CHECK_EQUAL(0, loop_poll(loop, timeout));
    int64_t took = clock_monotonic() - start;
    if (took < best) best = took;
  }
  return best;
}

CONTRACT(poll_counts_in_less_than_milliseconds) {
  static const int64_t times[] = { 100000, 1200000, 3300000 };
  int fds[2];
  char byte;

  LINUX_ONLY("the wait on the descriptor of libev");
  open_pipe(fds, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  for (unsigned i = 0; i < sizeof(times) / sizeof(*times); i++) CHECK(shortest_poll(loop, times[i]) < times[i] + 400000);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
}

CONTRACT(poll_comes_back_for_what_comes_shortly_before_the_timeout) {
  int fds[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < 3; i++) {
    struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
    write_all(fds[1], "x", 1);
    while (!op_settled_p(op)) CHECK_EQUAL(0, loop_poll(loop, 1000000));
    CHECK_EQUAL(1, finish(loop, op));
  }
  close_both(fds);
}

CONTRACT(poll_of_zero_does_not_wait) {
  int fds[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
  int64_t start = clock_monotonic();
  for (int i = 0; i < 1000; i++) CHECK_EQUAL(0, loop_poll(loop, 0));
  CHECK(clock_monotonic() - start < 5 * NSEC_PER_SEC);
  CHECK_EQUAL(-ECANCELED, cancel_and_finish(loop, op));
  close_both(fds);
}

CONTRACT(poll_comes_back_for_what_came_long_before_the_timeout) {
  int fds[2];
  char byte;

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < 3; i++) {
    struct op *op = submitted(loop, op_read(loop, fds[0], &byte, 1));
    check_pending(loop, op);
    write_all(fds[1], "x", 1);
    while (!op_settled_p(op)) CHECK_EQUAL(0, loop_poll(loop, 3600 * NSEC_PER_SEC));
    CHECK_EQUAL(1, finish(loop, op));
  }
  close_both(fds);
}

static void *wake(void *loop) {
  loop_wake(loop);
  return NULL;
}

CONTRACT(wake_by_a_thread_ends_a_poll) {
  pthread_t thread;

  for (int i = 0; i < 200; i++) {
    CHECK_EQUAL(0, pthread_create(&thread, NULL, wake, loop));
    CHECK_EQUAL(0, loop_poll(loop, -1));
    pthread_join(thread, NULL);
  }
  CHECK_EQUAL(200, loop->stats.wakes);
}

CONTRACT(wake_before_a_poll_is_not_lost_and_does_not_stay) {
  for (int i = 0; i < 100; i++) {
    for (int times = 0; times <= i; times++) loop_wake(loop);
    CHECK_EQUAL(0, loop_poll(loop, -1));
  }
  for (int i = 0; i < 5; i++) CHECK_EQUAL(0, loop_poll(loop, 0));
  int64_t start = clock_monotonic();               /* drained: waits again */
  CHECK_EQUAL(0, loop_poll(loop, 5000000));
  CHECK(clock_monotonic() - start >= 5000000);
}

CONTRACT(wake_during_a_poll_of_zero_is_seen) {
  loop_wake(loop);
  CHECK_EQUAL(0, loop_poll(loop, 0));              /* may see it */
  loop_wake(loop);
  CHECK_EQUAL(0, loop_poll(loop, -1));             /* must see this one */
}

static struct loop *handled;
static volatile sig_atomic_t signals;
static void wake_from_handler(int number) {
  (void)number;
  signals++;
  loop_wake(handled);
}

struct pest {
  pthread_t victim;
  sem_t enough;
};

/* Again and again, as one signal might come just before the victim waits. */
static void *pester(void *arg) {
  struct pest *pest = arg;

  while (sem_trywait(&pest->enough) < 0) {
    pthread_kill(pest->victim, SIGUSR1);
    usleep(500);
  }
  return NULL;
}

static void wait_among_signals(struct loop *loop, void (*handler)(int)) {
  struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
  struct pest pest = { .victim = pthread_self() };
  pthread_t thread;

  handled = loop;
  sigaction(SIGUSR1, &action, NULL);
  sem_init(&pest.enough, 0, 0);
  CHECK_EQUAL(0, pthread_create(&thread, NULL, pester, &pest));
  for (int i = 0; i < 20; i++) CHECK_EQUAL(0, loop_poll(loop, -1));
  sem_post(&pest.enough);
  pthread_join(thread, NULL);
  CHECK(signals > 0);
}

CONTRACT(wake_by_a_signal_handler_ends_a_poll) { wait_among_signals(loop, wake_from_handler); }

static void count_signal(int number) { signals += number == SIGUSR1; }

CONTRACT(signal_alone_ends_a_poll) { wait_among_signals(loop, count_signal); }

CONTRACT(thousands_of_polls_are_told_at_once) {
  enum { COUNT = 20000 };                          /* more than any queue has places */
  static struct op *ops[COUNT];
  int fds[2];

  open_pipe(fds, NONBLOCKING);
  for (int i = 0; i < COUNT; i++) ops[i] = submitted(loop, op_poll(loop, fds[0], POLLIN));
  CHECK_EQUAL(0, loop_poll(loop, 0));
  CHECK_EQUAL(COUNT, loop->in_flight);
  write_all(fds[1], "x", 1);
  for (int i = 0; i < COUNT; i++) CHECK_EQUAL(POLLIN, finish(loop, ops[i]));
  CHECK_EQUAL(0, loop->in_flight);
  close_both(fds);
}

CONTRACT(thousands_of_ops_that_settle_at_once_are_all_seen) {
  enum { COUNT = 20000 };
  int fds[2];
  unsigned seen = 0;

  open_pipe(fds, NONBLOCKING);
  write_all(fds[1], "x", 1);
  for (int i = 0; i < COUNT; i++) loop_submit(loop, op_poll(loop, fds[0], POLLIN));
  while (seen < COUNT) {
    CHECK_EQUAL(0, loop_poll(loop, -1));
    for (struct op *op; (op = loop_shift_news(loop)); seen++) {
      CHECK_EQUAL(POLLIN, op->result);
      loop_release_op(loop, op);
    }
  }
  CHECK_EQUAL(0, loop->in_flight);
  close_both(fds);
}

static unsigned pipes_possible(unsigned wanted) {
  struct rlimit limit;

  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur < wanted * 2 + 100 ? (unsigned)(limit.rlim_cur - 100) / 2 : wanted;
}

CONTRACT(thousands_of_reads_wait_on_pipes_of_their_own) {
  unsigned count = pipes_possible(5000);
  struct { int fds[2]; char byte; struct op *op; } *waits = calloc(count, sizeof(*waits));

  for (unsigned i = 0; i < count; i++) {
    open_pipe(waits[i].fds, i % 2 ? BLOCKING : NONBLOCKING);
    waits[i].op = submitted(loop, op_read(loop, waits[i].fds[0], &waits[i].byte, 1));
  }
  CHECK_EQUAL(0, loop_poll(loop, 0));
  CHECK_EQUAL(count, loop->in_flight);
  for (unsigned i = 0; i < count; i++) write_all(waits[i].fds[1], &(char) { (char)i }, 1);
  for (unsigned i = 0; i < count; i++) {
    CHECK_EQUAL(1, finish(loop, waits[i].op));
    CHECK_EQUAL((char)i, waits[i].byte);
    close_both(waits[i].fds);
  }
  free(waits);
}

/* A ping-pong of many: whoever forgets an event stops the game. */
CONTRACT(many_conversations_go_on_at_once) {
  enum { PAIRS = 100, ROUNDS = 50 };
  struct { int fds[2]; char byte; int rounds; } games[PAIRS];
  unsigned left = PAIRS;

  for (int i = 0; i < PAIRS; i++) {
    open_pair(games[i].fds, NONBLOCKING);
    games[i].rounds = 0;
    struct op *op = op_recv(loop, games[i].fds[0], &games[i].byte, 1, 0);
    op->owner = &games[i];
    loop_submit(loop, op);
    write_all(games[i].fds[1], "x", 1);
  }
  while (left > 0) {
    CHECK_EQUAL(0, loop_poll(loop, -1));
    for (struct op *op; (op = loop_shift_news(loop)); loop_release_op(loop, op)) {
      typeof(&games[0]) game = op->owner;
      CHECK_EQUAL(1, op->result);
      if (++game->rounds == ROUNDS) {
        left--;
        continue;
      }
      int side = game->rounds % 2;
      struct op *next = op_recv(loop, game->fds[side], &game->byte, 1, 0);
      next->owner = game;
      loop_submit(loop, next);
      struct op *answer = op_send(loop, game->fds[!side], "x", 1, 0);
      answer->flags |= OP_DETACHED;
      loop_submit(loop, answer);
    }
  }
  for (int i = 0; i < PAIRS; i++) close_both(games[i].fds);
}
