/* driver_uring.c - carries ops out through io_uring; see driver.h for what it owes.
 *
 * submit only writes into the ring's memory. The next poll hands everything over and waits in one
 * system call (or, told not to wait and with nothing to hand over, in none).
 *
 * Each entry carries in its user_data the address of its op; the lowest bits tell apart what is
 * the driver's own (enum tag). All entries of one op carry the same address, so one withdrawal
 * finds it in whatever step it is:
 *
 *   ISSUE   the op itself
 *   AWAIT   it came back with EAGAIN: the descriptor is O_NONBLOCK and its driver does not know how
 *           to be asked politely (RWF_NOWAIT), so the kernel may not even have tried. We poll, and
 *           when it is ready do the plain system call, which cannot block on such a descriptor.
 *   NAP     nothing tells when to go on, so we ask again a little later: connect to a unix socket
 *           whose backlog is full; AWAIT told only that the other side has closed its half
 *   WATCH   OP_POLL was told of something it did not ask for: a multishot poll, until it is
 *   REFUSE  a request that makes no sense: an entry that fails, so that it ends its chain too
 *
 * Withdrawing. A withdrawal may come back with ENOENT although the op goes on: it was between two
 * of the kernel's queues (the second of a chain before its start, a worker that goes back to
 * polling). It is repeated at once a few times, then each URING_SLICE: a read from a disk, which
 * cannot be withdrawn but ends soon, must not make us spin.
 *
 * Chains. The kernel knows a chain only within one io_uring_enter, so ops are held back until the
 * last of a chain is there, and go into the ring in one piece. Withdrawing one that has not started
 * withdraws the running one before it as well: the kernel has no means to find it behind that.
 * When an op in a chain comes back with EAGAIN, the kernel breaks the chain off: the ops behind it
 * come back with ECANCELED, are parked, and started by us when their turn has come ("soft").
 *
 * SIGPIPE. A write to a pipe or socket whose reader is gone raises it in the thread which enters
 * the kernel, like write(2). From Linux 6.18 on we ask for none (RWF_NOSIGNAL); before, the process
 * has to ignore or handle it, as Ruby does. OP_SEND never raises it. */
#ifdef HAVE_LIBURING
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
#include "clock.h"
#include "driver.h"
#include "driver_uring.h"
#include "loop.h"
#include "offload.h"

#define WITHDRAWALS 3                  /* repeated at once that often */
#define ROUNDS 16                      /* enters in one poll, while the ring takes only a part */
#define NO_BUFFER UINT32_MAX

enum tag { TAG_OP, TAG_CANCEL, TAG_WAKEUP, TAG_MASK };

enum uring_place {
  URING_NOWHERE,                 /* not ours, or about to move on */
  URING_QUEUED,                  /* in u->queued */
  URING_RUNNING,                 /* in u->running */
  URING_PARKED,                  /* soft, and the one before it is not done */
};

enum uring_link {
  LINK_HARD,                     /* the kernel starts it after the one before */
  LINK_BROKEN,                   /* we shall; the kernel has not given it back yet */
  LINK_DUE,                      /* likewise, and the one before is done: start it then */
};

/* Lives in op->driver. */
struct uring_op {
  struct list node;              /* in queued or running, else alone */
  struct op *prev, *next;        /* in its chain, while they are not settled; or NULL */
  uint8_t step, place, link;     /* enums above; link is about the tie to prev */
  uint8_t withdrawals;           /* sent again so many times */
  bool withdrawn;
  bool owed;                     /* counted in u->owed */
};

_Static_assert(sizeof(struct uring_op) <= sizeof(((struct op *)0)->driver), "op.h has no room");

static inline struct uring_op *state_of(struct op *op) { return (struct uring_op *)&op->driver; }

static inline struct op *op_at(struct list *node) { return list_entry(node, struct op, driver); }

static bool multishot_p(const struct op *op) {
  return op->kind == OP_ACCEPT_MULTI || op->kind == OP_RECV_MULTI;
}

/* Room in the ring. */

/* Hands over what is there if it has to. False if the kernel takes nothing at the moment
 * (no memory, or completions have overflowed on an older kernel): the next poll will mend that. */
static bool make_room(struct uring *u, unsigned entries) {
  if (io_uring_sq_space_left(&u->ring) >= entries) return true;

  io_uring_submit(&u->ring);
  return io_uring_sq_space_left(&u->ring) >= entries;
}

/* The one behind op that the kernel is to start after it. */
static struct op *linked_after(struct op *op) {
  struct op *next = state_of(op)->next;
  return next && state_of(next)->link == LINK_HARD ? next : NULL;
}

/* A socket whose last receive took all there was has nothing yet: the kernel is told to wait for
 * it first, rather than to try in vain and then wait. A stale hint costs it a look. */
static void expect_wait(struct loop *loop, struct io_uring_sqe *sqe, const struct op *op) {
  struct uring *u = loop->driver_data;
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  if (op->kind == OP_RECV && u->ring.flags & IORING_SETUP_DEFER_TASKRUN &&  /* 6.1; it is 5.19 */
      slot && slot->hints & FD_DRAINED && !(op->as.rw.flags & MSG_DONTWAIT))
    sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

/* Of a read it is not known whether it was from a stream; a file is never drained. */
static void note_drained(struct loop *loop, const struct op *op, int64_t result) {
  bool receives = op->kind == OP_RECV || op->kind == OP_READ;
  struct fd_slot *slot = receives && result > 0 ? loop_fd_slot(loop, op->fd) : NULL;

  if (!slot) return;
  if ((size_t)result >= op->as.rw.len) slot->hints &= ~FD_DRAINED;
  else if (op->kind == OP_RECV) slot->hints |= FD_DRAINED;
}

static void write_entry(struct loop *loop, struct uring *u, struct op *op) {
  struct uring_op *state = state_of(op);
  struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

  uring_entry_prep(u, sqe, op, state->step);
  if (state->step == URING_ISSUE) expect_wait(loop, sqe, op);
  if (linked_after(op)) sqe->flags |= IOSQE_IO_LINK;
  sqe->user_data = (uintptr_t)op | TAG_OP;
  list_remove(&state->node);
  list_push(&u->running, &state->node);
  state->place = URING_RUNNING;
}

/* 0 if the end of the chain that starts with op was not submitted yet. */
static unsigned chain_length(struct uring *u, struct op *op) {
  unsigned length = 0;

  for (; op; op = linked_after(op), length++)
    if (op == u->open_chain) return 0;
  return length;
}

static void finish(struct loop *loop, struct op *op, int64_t result);

static void write_queued(struct loop *loop, struct uring *u) {
  while (!list_empty_p(&u->queued)) {
    struct op *op = op_at(u->queued.next), *next;
    unsigned length = chain_length(u, op);

    if (length == 0) return;
    if (length > u->ring.sq.ring_entries) {
      finish(loop, op, -E2BIG);        /* and with it those behind */
      continue;
    }
    if (!make_room(u, length)) return;
    for (; op; op = next) {
      next = linked_after(op);
      write_entry(loop, u, op);
    }
  }
}

static void start(struct loop *loop, struct op *op, enum uring_step step) {
  struct uring *u = loop->driver_data;
  struct uring_op *state = state_of(op);

  state->step = step;
  if (list_empty_p(&u->queued) && op != u->open_chain && !linked_after(op) && make_room(u, 1)) {
    write_entry(loop, u, op);
    return;
  }
  state->place = URING_QUEUED;
  list_push(&u->queued, &state->node);
  write_queued(loop, u);
}

/* Chains. */

static void join_chain(struct uring *u, struct op *op) {
  if (u->open_chain) {
    state_of(op)->prev = u->open_chain;
    state_of(u->open_chain)->next = op;
  }
  u->open_chain = op->flags & OP_LINKED ? op : NULL;
}

/* From here on the chain behind op is ours, see the top of the file. */
static void break_chain(struct op *op) {
  while ((op = linked_after(op))) state_of(op)->link = LINK_BROKEN;
}

/* The one before it has settled. What the kernel still has of a hard chain it ends by itself. */
static void pass_turn(struct loop *loop, struct op *op, bool go) {
  struct uring_op *state = state_of(op);

  state->prev = NULL;
  if (state->link == LINK_BROKEN) state->link = go ? LINK_DUE : LINK_HARD;
  if (state->place == URING_PARKED && go) {
    state->link = LINK_HARD;
    start(loop, op, URING_ISSUE);
  } else if (state->place == URING_PARKED || (state->place == URING_QUEUED && !go)) {
    finish(loop, op, -ECANCELED);
  }
}

/* The kernel gave back an op of a chain that it broke off. */
static void take_back(struct loop *loop, struct op *op) {
  struct uring_op *state = state_of(op);
  bool due = state->link == LINK_DUE;

  if (due) state->link = LINK_HARD;
  if (due) start(loop, op, URING_ISSUE);
  else state->place = URING_PARKED;
}

/* Settling. */

static void leave(struct uring *u, struct op *op) {
  struct uring_op *state = state_of(op);

  list_remove(&state->node);
  state->place = URING_NOWHERE;
  if (state->owed) u->owed--;
  state->owed = false;
}

static void finish(struct loop *loop, struct op *op, int64_t result) {
  struct uring *u = loop->driver_data;
  struct op *prev = state_of(op)->prev, *next = state_of(op)->next;
  bool whole = next && uring_entry_whole_p(op, result);

  leave(u, op);
  if (prev) state_of(prev)->next = NULL;
  if (u->open_chain == op) u->open_chain = NULL;
  loop_settle(loop, op, result);       /* from here on op may be another's */
  if (next) pass_turn(loop, next, whole);
}

/* Withdrawing. */

static void owe_withdrawal(struct uring *u, struct op *op) {
  if (!state_of(op)->owed) u->owed++;
  state_of(op)->owed = true;
}

/* Its own completion is only of interest when it fails. Before 5.17 all of them come. */
static void withdraw(struct uring *u, struct op *op) {
  if (!make_room(u, 1)) {
    owe_withdrawal(u, op);
    return;
  }
  struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
  io_uring_prep_cancel64(sqe, (uintptr_t)op | TAG_OP, 0);
  if (u->ring.features & IORING_FEAT_CQE_SKIP) sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
  sqe->user_data = (uintptr_t)op | TAG_CANCEL;
}

/* Those that found no room at once; those that were sent in vain, when the time has come. */
static void pay_owed(struct uring *u) {
  int64_t now = clock_monotonic();
  bool all = now >= u->owed_again;

  if (all) u->owed_again = now + URING_SLICE;
  list_each(node, &u->running) {
    struct uring_op *state = state_of(op_at(node));
    if (!state->owed || (!all && state->withdrawals > 0)) continue;
    state->owed = false;
    u->owed--;
    withdraw(u, op_at(node));
  }
}

/* op may have settled and be another's meanwhile; its memory is still an op's, and if it is
 * being withdrawn too, once more does no harm. */
static void complete_withdrawal(struct uring *u, struct op *op, int result) {
  struct uring_op *state = state_of(op);

  if (result >= 0 || state->place != URING_RUNNING || !state->withdrawn) return;
  if (state->withdrawals == WITHDRAWALS) {
    if (u->owed == 0) u->owed_again = clock_monotonic() + URING_SLICE;
    owe_withdrawal(u, op);
  } else {
    state->withdrawals++;
    withdraw(u, op);
  }
}

static void cancel_op(struct loop *loop, struct op *op) {
  struct uring_op *state = state_of(op);

  if (state->place != URING_RUNNING || uring_inherited_p(loop->driver_data)) {
    finish(loop, op, -ECANCELED);
    return;
  }
  state->withdrawn = true;
  if (state->link != LINK_HARD) return;  /* the kernel is about to give it back */
  while (state_of(op)->prev) {
    op = state_of(op)->prev;
    state_of(op)->withdrawn = true;
  }
  withdraw(loop->driver_data, op);
}

/* Completions. */

/* A failure has made the kernel break off the chain behind it. */
static void complete_issue(struct loop *loop, struct op *op, int64_t result) {
  bool failed = result < 0;
  int step = uring_entry_judge(op, &result);

  if (step < 0) {
    note_drained(loop, op, result);
    finish(loop, op, result);
  } else {
    if (failed) break_chain(op);
    start(loop, op, (enum uring_step)step);
  }
}

static void add_descriptor(struct loop *loop, struct op *op, int fd) {
  op->flags |= OP_MORE;
  loop_add_shot(loop, op, (struct op_shot){ .result = fd, .buffer = NO_BUFFER });
}

static void complete_await(struct loop *loop, struct op *op, int64_t result) {
  int step = uring_entry_retry(op, &result);

  if (step < 0 && op->kind == OP_ACCEPT_MULTI && result >= 0) {
    add_descriptor(loop, op, (int)result);
    if (op_settled_p(op)) return;      /* there was no memory for the shot */
    step = URING_AWAIT;
  }
  if (step < 0) finish(loop, op, result);
  else start(loop, op, (enum uring_step)step);
}

static void complete_nap(struct loop *loop, struct op *op, int64_t result) {
  if (result == -ETIME) start(loop, op, URING_ISSUE);
  else finish(loop, op, result);
}

/* A multishot poll reports changes only, so it does not insist on what is of no interest. When it
 * was of interest, the kernel has to let go before the op can settle. */
static void complete_watch(struct loop *loop, struct op *op, const struct io_uring_cqe *cqe) {
  struct uring_op *state = state_of(op);
  bool more = cqe->flags & IORING_CQE_F_MORE, withdrawn = state->withdrawn;
  int result = cqe->res;

  if (op->result == 0 && result >= 0) op->result = uring_entry_poll_now(op);
  state->withdrawn = withdrawn || op->result != 0;
  if (more && state->withdrawn && !withdrawn) withdraw(loop->driver_data, op);
  if (more) return;

  leave(loop->driver_data, op);
  if (op->result != 0) finish(loop, op, op->result);
  else if (withdrawn) finish(loop, op, -ECANCELED);
  else if (result == -EINVAL) start(loop, op, URING_NAP);      /* no multishot poll before 5.13 */
  else if (result < 0) finish(loop, op, result);
  else start(loop, op, URING_WATCH);
}

/* Whatever was in the way of success while it was being withdrawn. */
static int64_t withdrawn_result(const struct op *op, uint8_t step, int64_t result) {
  bool unfinished = step != URING_ISSUE || uring_entry_judge(op, &result) >= 0;
  return unfinished ? -ECANCELED : result;
}

static void complete(struct loop *loop, struct op *op, int64_t result) {
  struct uring_op *state = state_of(op);

  leave(loop->driver_data, op);
  if (state->withdrawn) finish(loop, op, withdrawn_result(op, state->step, result));
  else if (state->link != LINK_HARD && result == -ECANCELED) take_back(loop, op);
  else if (state->step == URING_AWAIT) complete_await(loop, op, result);
  else if (state->step == URING_NAP) complete_nap(loop, op, result);
  else if (state->step == URING_REFUSE) finish(loop, op, op->result);
  else complete_issue(loop, op, result);
}

/* The end of the bytes is a shot of 0, so that it cannot be taken for a multishot that ended for
 * some reason of the kernel's (then the op just settles with 0, and has to be submitted again). */
static void complete_shot(struct loop *loop, struct op *op, const struct io_uring_cqe *cqe) {
  bool more = cqe->flags & IORING_CQE_F_MORE, filled = cqe->flags & IORING_CQE_F_BUFFER;
  uint32_t buffer = filled ? cqe->flags >> IORING_CQE_BUFFER_SHIFT : NO_BUFFER;
  int result = cqe->res;

  if (more) op->flags |= OP_MORE;
  else op->flags &= ~OP_MORE;
  if (result >= 0) loop_add_shot(loop, op, (struct op_shot){ result, buffer });
  else uring_recycle(loop->driver_data, buffer);
  if (!more) complete(loop, op, result < 0 ? result : 0);
}

static void arm_wakeup(struct loop *loop, struct uring *u) {
  if (u->wake_armed || !make_room(u, 1)) return;

  struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
  if (u->wake_once) io_uring_prep_poll_add(sqe, loop->wakeup.fd, POLLIN);
  else io_uring_prep_poll_multishot(sqe, loop->wakeup.fd, POLLIN);
  sqe->user_data = TAG_WAKEUP;
  u->wake_armed = true;
}

/* A multishot poll reports each signal, drained or not: the counter is left to grow, and a
 * wake-up costs no system call on our side. Only arming anew looks at the counter itself. */
static void complete_wakeup(struct loop *loop, struct uring *u, const struct io_uring_cqe *cqe) {
  if (cqe->flags & IORING_CQE_F_MORE) return;

  u->wake_armed = false;
  if (cqe->res == -EINVAL) u->wake_once = true;        /* before 5.13 */
  wakeup_drain(&loop->wakeup);
}

static void complete_entry(struct loop *loop, struct uring *u, const struct io_uring_cqe *cqe) {
  struct op *op = (struct op *)(uintptr_t)(cqe->user_data & ~(__u64)TAG_MASK);

  switch (cqe->user_data & TAG_MASK) {
  case TAG_WAKEUP: complete_wakeup(loop, u, cqe); break;
  case TAG_CANCEL: complete_withdrawal(u, op, cqe->res); break;
  default:
    if (multishot_p(op) && state_of(op)->step == URING_ISSUE) complete_shot(loop, op, cqe);
    else if (state_of(op)->step == URING_WATCH) complete_watch(loop, op, cqe);
    else complete(loop, op, cqe->res);
  }
}

static unsigned reap(struct loop *loop, struct uring *u) {
  struct io_uring_cqe *cqe;
  unsigned head, count = 0;

  io_uring_for_each_cqe(&u->ring, head, cqe) {
    complete_entry(loop, u, cqe);
    count++;
  }
  io_uring_cq_advance(&u->ring, count);
  return count;
}

/* Entering the kernel. */

/* Without TASKRUN_FLAG a DEFER_TASKRUN ring does not tell. */
static bool events_pending_p(const struct uring *u) {
  unsigned flags = IO_URING_READ_ONCE(*u->ring.sq.kflags);
  unsigned defers = u->ring.flags & (IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG);

  return (flags & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN)) ||
         defers == IORING_SETUP_DEFER_TASKRUN;
}

/* "For ever" is a very long time: liburing waits again after a signal unless there is a limit. */
static struct __kernel_timespec timespec_of(int64_t ns) {
  if (ns < 0) return (struct __kernel_timespec){ .tv_sec = 1 << 30 };
  return (struct __kernel_timespec){ .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };
}

/* One system call: hands over all entries, waits for a completion if told so. */
static int enter(struct uring *u, int64_t timeout_ns) {
  struct __kernel_timespec ts = timespec_of(timeout_ns);
  struct io_uring_cqe *cqe;

  if (timeout_ns == 0) return io_uring_submit_and_get_events(&u->ring);
  return io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
}

static bool harmless_p(int rc) {
  return rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EBUSY || rc == -EAGAIN;
}

/* The ring did not take all entries and gave nothing back: the kernel is short of memory. They
 * stay where they are; wait a little, or until something completes, rather than spin. */
static void back_off(struct loop *loop, struct uring *u) {
  struct __kernel_timespec ts = timespec_of(URING_SLICE);
  struct io_uring_cqe *cqe;

  io_uring_wait_cqe_timeout(&u->ring, &cqe, &ts);
  reap(loop, u);
}

static unsigned sq_head(const struct uring *u) { return IO_URING_READ_ONCE(*u->ring.sq.khead); }

/* Hands over the entries that are there now, in several rounds if the kernel takes a part (a bad
 * entry before 5.18) or wants completions to be taken first (EBUSY); waits in the first only. */
static int exchange(struct loop *loop, struct uring *u, int64_t timeout_ns) {
  unsigned end = u->ring.sq.sqe_tail, head, count;
  int64_t wait = timeout_ns;
  int rc;

  for (unsigned round = 0; round < ROUNDS; round++) {
    head = sq_head(u);
    rc = enter(u, wait);
    count = reap(loop, u);
    if (!harmless_p(rc)) return rc;
    if ((int)(end - sq_head(u)) <= 0) return 0;
    if (count == 0 && sq_head(u) == head) break;
    wait = 0;
  }
  if (timeout_ns != 0) back_off(loop, u);
  return 0;
}

static int64_t shorter(int64_t timeout_ns, int64_t limit) {
  return timeout_ns < 0 || timeout_ns > limit ? limit : timeout_ns;
}

/* What could not be written into the ring before, or is due again. */
static void catch_up(struct loop *loop, struct uring *u) {
  if (!u->wake_armed) arm_wakeup(loop, u);
  if (u->owed > 0) pay_owed(u);
  if (!list_empty_p(&u->queued)) write_queued(loop, u);
}

static bool behind_p(const struct uring *u) {
  return u->owed > 0 || !u->wake_armed || (!list_empty_p(&u->queued) && !u->open_chain);
}

static int poll_ring(struct loop *loop, int64_t timeout_ns) {
  struct uring *u = loop->driver_data;

  if (uring_inherited_p(u)) return -EOWNERDEAD;
  catch_up(loop, u);
  if (io_uring_cq_ready(&u->ring)) timeout_ns = 0;
  if (behind_p(u)) timeout_ns = shorter(timeout_ns, URING_SLICE);
  if (timeout_ns != 0 || io_uring_sq_ready(&u->ring) || events_pending_p(u))
    return exchange(loop, u, timeout_ns);
  reap(loop, u);
  return 0;
}

/* The rest of what driver.h asks for. */

static int open_driver(struct loop *loop) {
  struct uring *u = malloc(sizeof(*u));
  int rc;

  if (!u) return -ENOMEM;
  if ((rc = uring_open(u, URING_ENTRIES, NULL)) < 0) {
    free(u);
    return rc;
  }
  loop->driver_data = u;
  loop->features = u->features;
  loop->poller = u->ring.ring_fd;
  return 0;
}

static void settle_all(struct loop *loop, struct list *ops) {
  while (!list_empty_p(ops)) finish(loop, op_at(ops->next), -ECANCELED);
}

static void cancel_all(struct loop *loop, struct uring *u) {
  settle_all(loop, &u->queued);
  list_each(node, &u->running) {
    if (state_of(op_at(node))->withdrawn) continue;
    state_of(op_at(node))->withdrawn = true;
    withdraw(u, op_at(node));
  }
}

/* poll fails if another thread closes, for only the owner may enter. Then the owner has ended, and
 * with its end the kernel withdrew its ops. */
static void let_go(struct loop *loop, struct uring *u) {
  int rc = 0;

  for (cancel_all(loop, u); rc == 0 && !list_empty_p(&u->running); cancel_all(loop, u))
    rc = poll_ring(loop, -1);
  uring_close(u);
}

static void close_driver(struct loop *loop) {
  struct uring *u = loop->driver_data;

  if (!u) return;
  if (uring_inherited_p(u)) uring_forget(u);
  else let_go(loop, u);
  settle_all(loop, &u->queued);
  settle_all(loop, &u->running);
  loop->driver_data = NULL;
  free(u);
}

/* The lists are left as they are: the ops in them are gone already. */
static int reopen_driver(struct loop *loop) {
  struct uring *u = loop->driver_data;

  if (u) uring_forget(u);
  free(u);
  loop->driver_data = NULL;
  return open_driver(loop);
}

static void submit_op(struct loop *loop, struct op *op) {
  struct uring *u = loop->driver_data;

  if (u->lacks[op->kind]) {
    offload_submit(loop, op);
    return;
  }
  if (uring_inherited_p(u)) {
    loop_settle(loop, op, -EOWNERDEAD);
    return;
  }
  int rc = uring_entry_check(u, op);
  *state_of(op) = (struct uring_op){ 0 };
  list_init(&state_of(op)->node);
  join_chain(u, op);
  op->result = rc;
  start(loop, op, rc < 0 ? URING_REFUSE : URING_ISSUE);
}

static void recycle_buffer(struct loop *loop, uint32_t buffer) {
  uring_recycle(loop->driver_data, buffer);
}

static char *find_buffer(struct loop *loop, uint32_t buffer) {
  return uring_buffer(loop->driver_data, buffer);
}

const struct driver driver_uring = {
  .name = "io_uring",
  .probe = uring_probe,
  .describe = uring_describe,
  .open = open_driver,
  .close = close_driver,
  .after_fork = reopen_driver,
  .submit = submit_op,
  .cancel = cancel_op,
  .poll = poll_ring,
  .recycle = recycle_buffer,
  .buffer = find_buffer,
};

#endif
