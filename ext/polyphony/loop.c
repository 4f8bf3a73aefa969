/* loop.c - see loop.h */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"
#include "faults.h"
#include "loop.h"
#include "offload.h"
#include "page_cache.h"

#define FIRST_FDS 64
#define MOST_FDS (1 << 20)             /* the kernel's default limit; more is a mistake of the caller's */
#define FIRST_SHOTS 8
/* While closing, looks again this often: a driver that forgets to end its poll costs time only. */
#define CLOSE_SLICE (NSEC_PER_SEC / 10)

/* Descriptors and the ops in flight on them. */

/* The first op of each slot points back into the array that has just moved. */
static void relink_slots(struct loop *loop) {
  for (unsigned i = 0; i < loop->fds_size; i++)
    if (loop->fds[i].ops) loop->fds[i].ops->fd_prev = &loop->fds[i].ops;
}

static bool grow_slots(struct loop *loop, unsigned fd) {
  size_t size = loop->fds_size ? loop->fds_size : FIRST_FDS;
  while (size <= fd) size *= 2;

  struct fd_slot *fds = realloc(loop->fds, size * sizeof(*fds));
  if (!fds) return false;
  memset(fds + loop->fds_size, 0, (size - loop->fds_size) * sizeof(*fds));
  loop->fds = fds;
  relink_slots(loop);
  loop->fds_size = (unsigned)size;
  return true;
}

struct fd_slot *loop_new_slot(struct loop *loop, int fd) {
  if (fd < 0 || fd >= MOST_FDS) return NULL;
  return grow_slots(loop, (unsigned)fd) ? &loop->fds[fd] : NULL;
}

struct op *loop_ops_on(struct loop *loop, int fd) {
  return fd >= 0 && (unsigned)fd < loop->fds_size ? loop->fds[fd].ops : NULL;
}

/* Out of memory leaves the op unlinked: closing its descriptor will not find it, all else works. */
static void link_op(struct loop *loop, struct op *op) {
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);
  if (!slot) return;

  op->fd_next = slot->ops;
  op->fd_prev = &slot->ops;
  if (op->fd_next) op->fd_next->fd_prev = &op->fd_next;
  slot->ops = op;
}

static void unlink_op(struct op *op) {
  if (!op->fd_prev) return;

  *op->fd_prev = op->fd_next;
  if (op->fd_next) op->fd_next->fd_prev = op->fd_prev;
  op->fd_next = NULL;
  op->fd_prev = NULL;
}

/* News: ops that settled or have shots. */

static void clear_news(struct loop *loop) {
  loop->news = NULL;
  loop->news_tail = &loop->news;
}

static void append_news(struct loop *loop, struct op *op) {
  if (op->flags & OP_NOTIFIED) return;

  op->flags |= OP_NOTIFIED;
  op->next_news = NULL;
  *loop->news_tail = op;
  loop->news_tail = &op->next_news;
}

struct op *loop_shift_news(struct loop *loop) {
  struct op *op = loop->news;
  if (!op) return NULL;

  loop->news = op->next_news;
  if (!loop->news) loop->news_tail = &loop->news;
  op->next_news = NULL;
  op->flags &= ~OP_NOTIFIED;
  return op;
}

/* Seldom: the owner of a multishot op gave it up before it looked at the last news. */
static void remove_news(struct loop *loop, struct op *op) {
  struct op **link = &loop->news;

  while (*link != op) link = &(*link)->next_news;
  *link = op->next_news;
  if (!*link) loop->news_tail = link;
  op->flags &= ~OP_NOTIFIED;
}

/* Shots: a ring that grows, its two ends counting up without wrapping at the size. */

static bool grow_shots(struct op *op) {
  uint32_t size = op->shots_size ? op->shots_size * 2 : FIRST_SHOTS;
  struct op_shot *shots = malloc(size * sizeof(*shots));
  if (!shots) return false;

  for (uint32_t i = op->shots_head; i != op->shots_tail; i++)
    shots[i & (size - 1)] = op->shots[i & (op->shots_size - 1)];
  free(op->shots);
  op->shots = shots;
  op->shots_size = size;
  return true;
}

/* There is room for the first ones before any can come: who cannot have it is told, as nobody is for a shot. */
static bool roomless_p(struct op *op) {
  bool multishot = op->kind == OP_ACCEPT_MULTI || op->kind == OP_RECV_MULTI;

  return multishot && !op->shots_size && !grow_shots(op);
}

static bool push_shot(struct op *op, struct op_shot shot) {
  if (op->shots_tail - op->shots_head == op->shots_size && !grow_shots(op)) return false;

  op->shots[op->shots_tail++ & (op->shots_size - 1)] = shot;
  return true;
}

bool loop_shift_shot(struct op *op, struct op_shot *shot) {
  if (op->shots_head == op->shots_tail) return false;

  *shot = op->shots[op->shots_head++ & (op->shots_size - 1)];
  return true;
}

static void discard_shot(struct loop *loop, struct op *op, struct op_shot shot) {
  if (op->kind == OP_ACCEPT_MULTI && shot.result >= 0) close(shot.result);
  /* An empty datagram has a buffer too. A closed driver has taken all of them with it. */
  if (op->kind == OP_RECV_MULTI && shot.result >= 0 && loop->driver_data)
    loop->driver->recycle(loop, shot.buffer);
}

static void discard_shots(struct loop *loop, struct op *op) {
  struct op_shot shot;

  while (loop_shift_shot(op, &shot)) discard_shot(loop, op, shot);
}

void loop_add_shot(struct loop *loop, struct op *op, struct op_shot shot) {
  if (op->flags & OP_DETACHED) {
    discard_shot(loop, op, shot);
  } else if (push_shot(op, shot)) {
    append_news(loop, op);
  } else {                             /* no memory for so many at once: end the op */
    discard_shot(loop, op, shot);
    loop_cancel(loop, op);
  }
}

/* The life of an op. */

struct op *loop_acquire_op(struct loop *loop, enum op_kind kind, int fd) {
  struct op *op = op_pool_acquire(&loop->pool);
  if (!op) return NULL;

  op->kind = kind;
  op->fd = fd;
  return op;
}

void loop_release_op(struct loop *loop, struct op *op) {
  assert(op->state == OP_IDLE || op->state == OP_SETTLED);
  if (op->flags & OP_NOTIFIED) remove_news(loop, op);
  discard_shots(loop, op);
  op_pool_release(&loop->pool, op);
}

/* Each of a chain has to be the next one that the driver sees. */
static bool in_chain_p(struct loop *loop, const struct op *op) {
  bool follows = loop->chained;

  loop->chained = op->flags & OP_LINKED;
  return follows || loop->chained;
}

static bool done_at_once_p(struct loop *loop, struct op *op) {
  int64_t result;

  if (__builtin_expect(faults_on, 0) && faults_strike(loop, op)) return true;
  if (!page_cache_try(loop, op, &result)) return false;
  loop_settle(loop, op, result);
  return true;
}

void loop_submit(struct loop *loop, struct op *op) {
  assert(op->state == OP_IDLE);
  op->state = OP_IN_FLIGHT;
  if (!(op->flags & OP_INTERNAL)) {
    loop->in_flight++;
    loop->stats.submitted++;
    link_op(loop, op);
  }
  if (roomless_p(op)) loop_settle(loop, op, -ENOMEM);
  else if (op->kind == OP_CALL) offload_submit(loop, op);
  else if (in_chain_p(loop, op) || !done_at_once_p(loop, op)) loop->driver->submit(loop, op);
}

/* What a fault has put off. */

static bool shift_held(struct loop *loop, struct op *op) {
  struct op **link = &loop->held;

  while (*link && *link != op) link = &(*link)->next_free;
  if (!*link) return false;
  *link = op->next_free;
  op->next_free = NULL;
  return true;
}

static void submit_held(struct loop *loop) {
  struct op *op;

  while ((op = loop->held)) {
    loop->held = op->next_free;
    op->next_free = NULL;
    loop->driver->submit(loop, op);
  }
}

void loop_cancel(struct loop *loop, struct op *op) {
  if (op->state != OP_IN_FLIGHT) return;

  op->state = OP_WITHDRAWING;
  loop->stats.cancelled++;
  if (op->job) offload_cancel(loop, op);
  else if (loop->held && shift_held(loop, op)) loop_settle(loop, op, -ECANCELED);
  else loop->driver->cancel(loop, op);
}

/* The result is a descriptor that nobody will ever see. */
static void discard_result(struct op *op) {
  if (op_reclaim_policy(op->kind) == OP_RECLAIM_DESCRIPTOR && op->result >= 0)
    close((int)op->result);
}

void loop_settle(struct loop *loop, struct op *op, int64_t result) {
  bool internal = op->flags & OP_INTERNAL;

  assert(internal || op->state == OP_IN_FLIGHT || op->state == OP_WITHDRAWING);
  op->state = OP_SETTLED;
  op->result = result;
  op->flags &= ~OP_MORE;
  if (internal) return;

  unlink_op(op);
  loop->in_flight--;
  loop->stats.settled++;
  if (op->flags & OP_DETACHED) {
    discard_result(op);
    loop_release_op(loop, op);
  } else {
    append_news(loop, op);
  }
}

/* Waiting. */

int loop_poll(struct loop *loop, int64_t timeout_ns) {
  if (__builtin_expect(loop->held != NULL, 0)) submit_held(loop);
  /* A worker signals only the first op of a batch, so its wake-up may be seen by now. */
  if (loop->news || __atomic_load_n(&loop->offloaded, __ATOMIC_ACQUIRE)) timeout_ns = 0;
  loop->stats.polls++;
  if (timeout_ns != 0) loop->stats.waits++;

  int rc = loop->driver->poll(loop, timeout_ns);
  offload_collect(loop);
  return rc;
}

void loop_wake(struct loop *loop) {
  __atomic_fetch_add(&loop->stats.wakes, 1, __ATOMIC_RELAXED);
  wakeup_signal(&loop->wakeup);
}

/* Opening and closing. */

bool loop_owns_p(const struct loop *loop, int fd) {
  return fd >= 0 && (fd == loop->wakeup.fd || fd == loop->wakeup.write_fd || fd == loop->poller);
}

int loop_open(struct loop *loop, const struct driver *driver) {
  int rc;

  memset(loop, 0, sizeof(*loop));
  clear_news(loop);
  op_pool_init(&loop->pool);
  timer_heap_init(&loop->timers);
  if ((rc = wakeup_open(&loop->wakeup)) < 0) return rc;
  if ((rc = -pthread_mutex_init(&loop->offload_lock, NULL)) < 0) goto close_wakeup;
  loop->driver = driver;
  if ((rc = driver->open(loop)) < 0) goto free_loop;
  return 0;

free_loop:
  loop->driver = NULL;
  op_pool_free(&loop->pool);
  pthread_mutex_destroy(&loop->offload_lock);
close_wakeup:
  wakeup_close(&loop->wakeup);
  return rc;
}

/* A close is let through: withdrawing it would leave a descriptor open that nobody knows of. */
static void cancel_before_close(struct op *op, void *loop) {
  if (!(op->flags & OP_INTERNAL) && op->kind != OP_CLOSE) loop_cancel(loop, op);
}

static void discard_news(struct loop *loop) {
  struct op *op;

  while ((op = loop_shift_news(loop))) {
    discard_shots(loop, op);
    if (op_settled_p(op)) discard_result(op);
  }
}

static void discard_unclaimed(struct op *op, void *loop) { discard_shots(loop, op); }

void loop_close(struct loop *loop) {
  if (!loop->driver) return;

  op_pool_each(&loop->pool, cancel_before_close, loop);
  do discard_news(loop);
  while (loop->in_flight > 0 && loop_poll(loop, CLOSE_SLICE) == 0);
  offload_drain(loop);                 /* there is something to wait for only if poll is broken */
  loop->driver->close(loop);
  loop->driver_data = NULL;
  discard_news(loop);
  op_pool_each(&loop->pool, discard_unclaimed, loop);

  op_pool_free(&loop->pool);
  timer_heap_free(&loop->timers);
  free(loop->fds);
  loop->fds = NULL;
  loop->fds_size = loop->in_flight = 0;
  pthread_mutex_destroy(&loop->offload_lock);
  wakeup_close(&loop->wakeup);
  loop->driver = NULL;
}

/* The child has copies of sockets that the parent will hand out. */
static void close_accepted(struct op *op, void *loop) {
  if (op->kind == OP_ACCEPT_MULTI) discard_shots(loop, op);
}

/* The lock may have been held by a worker that does not exist here, so it is made anew. The
 * wake-up too: an inherited one is shared, and draining it would steal the parent's signal. */
int loop_after_fork(struct loop *loop) {
  int rc;

  offload_after_fork();
  op_pool_each(&loop->pool, close_accepted, loop);
  op_pool_free(&loop->pool);
  timer_heap_free(&loop->timers);
  clear_news(loop);
  if (loop->fds) memset(loop->fds, 0, loop->fds_size * sizeof(*loop->fds));
  loop->in_flight = loop->offloads = 0;
  loop->offloaded = loop->held = NULL;
  pthread_mutex_init(&loop->offload_lock, NULL);
  wakeup_close(&loop->wakeup);
  if ((rc = wakeup_open(&loop->wakeup)) < 0) return rc;
  return loop->driver->after_fork(loop);
}
