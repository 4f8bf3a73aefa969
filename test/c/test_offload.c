/* Worker threads, on a driver that does nothing. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "offload.h"
#include "support.h"
#include "test.h"

static struct loop loop;

static int64_t answer(void *arg) { return (int64_t)(intptr_t)arg; }

TEST(offload_gives_the_result_of_a_call) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK_EQUAL(42, run_op(&loop, op_call(&loop, answer, (void *)42, false)));
  CHECK_EQUAL(-ENOENT, run_op(&loop, op_call(&loop, answer, (void *)-ENOENT, true)));
  CHECK_EQUAL(0, loop.offloads);
  loop_close(&loop);
}

TEST(offload_carries_out_many_jobs) {
  int64_t sum = 0;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (intptr_t i = 0; i < 5000; i++)
    loop_submit(&loop, op_call(&loop, answer, (void *)i, i % 2));
  while (loop.in_flight > 0) {
    CHECK_EQUAL(0, loop_poll(&loop, -1));
    for (struct op *op; (op = loop_shift_news(&loop)); loop_release_op(&loop, op))
      sum += op->result;
  }
  CHECK_EQUAL(4999 * 5000 / 2, sum);
  loop_close(&loop);
}

static int64_t blocked_signals(void *unused) {
  sigset_t mask;
  int64_t blocked = 0;

  (void)unused;
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  for (int number = 1; number < 32; number++) blocked += sigismember(&mask, number);
  return blocked;
}

TEST(offload_blocks_signals_in_workers_only) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK_EQUAL(31 - 2, run_op(&loop, op_call(&loop, blocked_signals, NULL, false)));
  CHECK_EQUAL(0, blocked_signals(NULL));
  loop_close(&loop);
}

TEST(offload_cancel_before_the_start_never_runs_it) {
  struct gate gates[OFFLOAD_MAX_THREADS], late;
  struct op *ops[OFFLOAD_MAX_THREADS];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int i = 0; i < OFFLOAD_MAX_THREADS; i++) {
    gate_init(&gates[i], i);
    ops[i] = submitted(&loop, op_call(&loop, gate_pass, &gates[i], false));
  }
  for (int i = 0; i < OFFLOAD_MAX_THREADS; i++) semaphore_wait(&gates[i].started);
  gate_init(&late, 1);
  struct op *op = submitted(&loop, op_call(&loop, gate_pass, &late, false));
  loop_cancel(&loop, op);
  CHECK(op_settled_p(op));                         /* at once, without a poll */
  CHECK_EQUAL(-ECANCELED, finish(&loop, op));
  for (int i = 0; i < OFFLOAD_MAX_THREADS; i++) {
    sem_post(&gates[i].may_end);
    CHECK_EQUAL(i, finish(&loop, ops[i]));
  }
  CHECK_EQUAL(0, late.runs);
  loop_close(&loop);
}

TEST(offload_cancel_of_a_running_call_waits_for_it) {
  struct gate gate;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  gate_init(&gate, 7);
  struct op *op = submitted(&loop, op_call(&loop, gate_pass, &gate, false));
  semaphore_wait(&gate.started);
  loop_cancel(&loop, op);
  check_pending(&loop, op);
  sem_post(&gate.may_end);
  CHECK_EQUAL(7, finish(&loop, op));
  loop_close(&loop);
}

TEST(offload_cancel_of_an_orphanable_call_lets_it_run_on) {
  struct gate gate;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  gate_init(&gate, 7);
  struct op *op = submitted(&loop, op_call(&loop, gate_pass, &gate, true));
  semaphore_wait(&gate.started);
  loop_cancel(&loop, op);
  CHECK(op_settled_p(op));
  CHECK_EQUAL(-ECANCELED, finish(&loop, op));
  loop_close(&loop);
  memset(&loop, 0xa5, sizeof(loop));               /* the worker must not look at it any more */
  sem_post(&gate.may_end);
  semaphore_wait(&gate.ended);
}

static struct op *op_lookup(struct gate *gate, bool orphanable) {
  struct op *op = op_call(&loop, gate_pass, gate, orphanable);

  op->as.call.lane = OFFLOAD_LOOKUP;
  return op;
}

static void fill_lookups(struct gate *gates, struct op **ops) {
  for (int i = 0; i < OFFLOAD_MAX_LOOKUPS; i++) {
    gate_init(&gates[i], i);
    ops[i] = submitted(&loop, op_lookup(&gates[i], true));
  }
  for (int i = 0; i < OFFLOAD_MAX_LOOKUPS; i++) semaphore_wait(&gates[i].started);
}

static void finish_lookups(struct gate *gates, struct op **ops, int first) {
  for (int i = first; i < OFFLOAD_MAX_LOOKUPS; i++) {
    sem_post(&gates[i].may_end);
    CHECK_EQUAL(i, finish(&loop, ops[i]));
  }
}

TEST(offload_does_other_work_while_lookups_hang) {
  struct gate gates[OFFLOAD_MAX_LOOKUPS], late;
  struct op *ops[OFFLOAD_MAX_LOOKUPS];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  fill_lookups(gates, ops);
  CHECK_EQUAL(42, run_op(&loop, op_call(&loop, answer, (void *)42, false)));
  gate_init(&late, 7);
  sem_post(&late.may_end);
  struct op *op = submitted(&loop, op_lookup(&late, true));
  check_pending(&loop, op);                        /* in the queue */
  CHECK_EQUAL(0, late.runs);
  sem_post(&gates[0].may_end);
  CHECK_EQUAL(0, finish(&loop, ops[0]));
  CHECK_EQUAL(7, finish(&loop, op));
  finish_lookups(gates, ops, 1);
  loop_close(&loop);
}

TEST(offload_a_lookup_given_up_makes_room_for_the_next) {
  struct gate gates[OFFLOAD_MAX_LOOKUPS], late;
  struct op *ops[OFFLOAD_MAX_LOOKUPS];

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  fill_lookups(gates, ops);
  gate_init(&late, 7);
  struct op *op = submitted(&loop, op_lookup(&late, true));
  loop_cancel(&loop, ops[0]);
  CHECK_EQUAL(-ECANCELED, finish(&loop, ops[0]));
  semaphore_wait(&late.started);                   /* while the first still hangs */
  sem_post(&late.may_end);
  CHECK_EQUAL(7, finish(&loop, op));
  finish_lookups(gates, ops, 1);
  loop_close(&loop);
  sem_post(&gates[0].may_end);
  semaphore_wait(&gates[0].ended);
}

TEST(offload_limits_the_threads_of_lookups_given_up) {
  static struct gate gates[OFFLOAD_MAX_LOOKUP_THREADS];
  struct gate late;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int i = 0; i < OFFLOAD_MAX_LOOKUP_THREADS; i++) {
    gate_init(&gates[i], i);
    struct op *op = submitted(&loop, op_lookup(&gates[i], true));
    semaphore_wait(&gates[i].started);
    loop_cancel(&loop, op);
    CHECK_EQUAL(-ECANCELED, finish(&loop, op));
  }
  gate_init(&late, 7);
  sem_post(&late.may_end);
  struct op *op = submitted(&loop, op_lookup(&late, true));
  check_pending(&loop, op);
  CHECK_EQUAL(0, late.runs);
  for (int i = 0; i < OFFLOAD_MAX_LOOKUP_THREADS; i++) sem_post(&gates[i].may_end);
  CHECK_EQUAL(7, finish(&loop, op));
  loop_close(&loop);
  for (int i = 0; i < OFFLOAD_MAX_LOOKUP_THREADS; i++) semaphore_wait(&gates[i].ended);
}

TEST(offload_has_as_many_threads_as_it_may) {
  struct gate first, second;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  offload_limit(1, OFFLOAD_IDLE_SECONDS * INT64_C(1000000000));
  gate_init(&first, 1);
  gate_init(&second, 2);
  struct op *op = submitted(&loop, op_lookup(&first, true)), *next = submitted(&loop, op_lookup(&second, true));
  semaphore_wait(&first.started);
  check_pending(&loop, next);                      /* in the queue */
  CHECK_EQUAL(0, second.runs);
  offload_limit(0, OFFLOAD_IDLE_SECONDS * INT64_C(1000000000));
  semaphore_wait(&second.started);                 /* it need not wait for the first any more */
  sem_post(&first.may_end);
  sem_post(&second.may_end);
  CHECK_EQUAL(1, finish(&loop, op));
  CHECK_EQUAL(2, finish(&loop, next));
  loop_close(&loop);
}

static void wait_for_threads_to_end(enum offload_lane lane) {
  while (offload_stats(lane).threads > 0) poll(NULL, 0, 1);
}

TEST(offload_keeps_idle_threads_as_long_as_it_is_told) {
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK_EQUAL(42, run_op(&loop, op_call(&loop, answer, (void *)42, false)));
  CHECK(offload_stats(OFFLOAD_WORK).threads > 0);
  offload_limit(0, 1000000);                       /* those that wait already hear of it */
  wait_for_threads_to_end(OFFLOAD_WORK);
  wait_for_threads_to_end(OFFLOAD_LOOKUP);
  CHECK_EQUAL(43, run_op(&loop, op_call(&loop, answer, (void *)43, false)));
  offload_limit(0, OFFLOAD_IDLE_SECONDS * INT64_C(1000000000));
  loop_close(&loop);
}

/* A call whose memory points to more: a gate to pass, and where to tell that it was disposed of. */
struct owner {
  struct gate *gate;
  sem_t *disposed;
};

static int64_t pass_owned(void *arg) { return gate_pass(((struct owner *)arg)->gate); }
static void dispose_owner(void *memory) { sem_post(((struct owner *)memory)->disposed); }

static struct op *op_owned(struct gate *gate, sem_t *disposed) {
  struct op *op = op_call(&loop, pass_owned, NULL, true);
  struct owner *owner = op->memory = malloc(sizeof(*owner));

  *owner = (struct owner){ gate, disposed };
  op->as.call.arg = owner;
  op->dispose = dispose_owner;
  return op;
}

TEST(offload_memory_of_a_call_is_disposed_of_once) {
  struct gate gates[4];
  sem_t disposed;
  int count;

  sem_init(&disposed, 0, 0);
  for (int i = 0; i < 4; i++) gate_init(&gates[i], i);
  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  loop_release_op(&loop, op_owned(&gates[0], &disposed));      /* never submitted */
  CHECK_EQUAL(0, sem_trywait(&disposed));
  sem_post(&gates[1].may_end);
  CHECK_EQUAL(1, run_op(&loop, op_owned(&gates[1], &disposed)));
  CHECK_EQUAL(0, sem_trywait(&disposed));
  struct op *given_up = submitted(&loop, op_owned(&gates[2], &disposed));
  semaphore_wait(&gates[2].started);
  loop_cancel(&loop, given_up);
  CHECK_EQUAL(-ECANCELED, finish(&loop, given_up));
  CHECK(sem_trywait(&disposed) < 0);                           /* still in use */
  sem_post(&gates[2].may_end);
  semaphore_wait(&disposed);
  struct op *left = submitted(&loop, op_owned(&gates[3], &disposed));
  sem_post(&gates[3].may_end);
  await(&loop, left);
  loop_close(&loop);                                           /* settled, not released */
  CHECK_EQUAL(0, sem_trywait(&disposed));
  CHECK_EQUAL(0, sem_getvalue(&disposed, &count));
  CHECK_EQUAL(0, count);
}

TEST(offload_cancel_may_meet_the_end_of_a_call) {
  int64_t cancelled = 0;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  for (int i = 0; i < 3000; i++) {
    struct op *op = submitted(&loop, op_call(&loop, answer, (void *)1, i % 2));
    for (volatile int spin = i % 100 * 20; spin > 0; spin--) continue;
    loop_cancel(&loop, op);
    int64_t result = finish(&loop, op);
    CHECK(result == 1 || result == -ECANCELED);
    cancelled += result != 1;
  }
  CHECK(cancelled > 0);
  CHECK_EQUAL(0, loop.offloads);
  loop_close(&loop);
}

static void *open_gate(void *arg) {
  struct gate *gate = arg;

  sem_post(&gate->may_end);
  return NULL;
}

TEST(offload_holds_back_loop_close_until_a_call_is_done) {
  struct gate gate;
  pthread_t thread;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  gate_init(&gate, 0);
  loop_submit(&loop, op_call(&loop, gate_pass, &gate, false));
  semaphore_wait(&gate.started);
  CHECK_EQUAL(0, pthread_create(&thread, NULL, open_gate, &gate));
  loop_close(&loop);
  CHECK_EQUAL(0, sem_trywait(&gate.ended));
  pthread_join(thread, NULL);
}

static int broken_poll(struct loop *loop, int64_t timeout_ns) {
  (void)loop, (void)timeout_ns;
  return -EIO;
}

TEST(offload_holds_back_loop_close_even_when_poll_is_broken) {
  struct driver broken = fake_driver;
  struct gate gate;
  pthread_t thread;

  broken.poll = broken_poll;
  CHECK_EQUAL(0, loop_open(&loop, &broken));
  gate_init(&gate, 0);
  loop_submit(&loop, op_call(&loop, gate_pass, &gate, false));
  semaphore_wait(&gate.started);
  CHECK_EQUAL(0, pthread_create(&thread, NULL, open_gate, &gate));
  loop_close(&loop);
  CHECK_EQUAL(0, sem_trywait(&gate.ended));
  pthread_join(thread, NULL);
}

static void offload_and_leave(void) {
  struct gate gate;

  CHECK_EQUAL(0, loop_after_fork(&loop));
  CHECK_EQUAL(1, run_op(&loop, op_call(&loop, answer, (void *)1, false)));
  gate_init(&gate, 2);
  struct op *op = submitted(&loop, op_call(&loop, gate_pass, &gate, false));
  semaphore_wait(&gate.started);
  offload_after_fork();                            /* for a second loop: not to forget the first's */
  sem_post(&gate.may_end);
  CHECK_EQUAL(2, finish(&loop, op));
  loop_close(&loop);
  _exit(0);
}

TEST(offload_works_in_parent_and_child_after_a_fork) {
  struct gate gate;
  int status;

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  CHECK_EQUAL(1, run_op(&loop, op_call(&loop, answer, (void *)1, false)));   /* now one is idle */
  gate_init(&gate, 7);
  struct op *op = submitted(&loop, op_call(&loop, gate_pass, &gate, false));
  semaphore_wait(&gate.started);
  pid_t pid = fork();
  if (pid == 0) offload_and_leave();
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK_EQUAL(0, status);
  sem_post(&gate.may_end);
  CHECK_EQUAL(7, finish(&loop, op));
  loop_close(&loop);
}

static int64_t offloaded(struct op *op) {
  op->state = OP_IN_FLIGHT;                        /* as loop_submit does before it asks a driver */
  loop.in_flight++;
  offload_submit(&loop, op);
  return finish(&loop, op);
}

TEST(offload_makes_the_system_call_of_each_kind) {
  char buffer[16] = "";
  struct statx status;
  struct iovec iov[2] = { { "ab", 2 }, { "cd", 2 } };
  int fd = open_temporary();

  CHECK_EQUAL(0, loop_open(&loop, &fake_driver));
  struct op *op = loop_acquire_op(&loop, OP_WRITEV, fd);
  op->as.vec.iov = iov, op->as.vec.count = 2, op->as.vec.offset = -1;
  CHECK_EQUAL(4, offloaded(op));
  op = op_write(&loop, fd, "XY", 2);
  op->as.rw.offset = 1;
  CHECK_EQUAL(2, offloaded(op));
  op = op_read(&loop, fd, buffer, sizeof(buffer));
  CHECK_EQUAL(0, offloaded(op));                   /* at the end of the file */
  op = op_read(&loop, fd, buffer, sizeof(buffer));
  op->as.rw.offset = 0;
  CHECK_EQUAL(4, offloaded(op));
  CHECK(memcmp(buffer, "aXYd", 4) == 0);
  CHECK_EQUAL(0, offloaded(loop_acquire_op(&loop, OP_FSYNC, fd)));
  op = loop_acquire_op(&loop, OP_STAT, fd);
  op->as.stat.path = "", op->as.stat.flags = AT_EMPTY_PATH;
  op->as.stat.mask = STATX_SIZE, op->as.stat.buf = &status;
  CHECK_EQUAL(0, offloaded(op));
  if (!PORTABLE) CHECK_EQUAL(4, status.stx_size);  /* elsewhere it is a struct stat */
  CHECK_EQUAL(0, offloaded(loop_acquire_op(&loop, OP_CLOSE, fd)));
  op = loop_acquire_op(&loop, OP_OPEN, -1);
  op->as.open.path = "/dev/null", op->as.open.flags = O_RDONLY;
  fd = (int)offloaded(op);
  CHECK_EQUAL(FD_CLOEXEC, fcntl(fd, F_GETFD));
  close(fd);
  CHECK_EQUAL(-EBADF, offloaded(op_read(&loop, fd, buffer, 1)));
  CHECK_EQUAL(-EOPNOTSUPP, offloaded(loop_acquire_op(&loop, OP_ACCEPT_MULTI, 0)));
  loop_close(&loop);
}
