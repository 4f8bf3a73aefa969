/* io_await.c - the one wait; see io.h */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
#include "clock.h"
#include "io.h"
#include "offload.h"
#include "ractor.h"
#include "turn.h"

struct op *io_op(struct backend_base *backend, enum op_kind kind, int fd) {
  struct op *op = loop_acquire_op(&backend->loop, kind, fd);

  if (op) return op;
  buffer_return(backend_base_fiber(backend));
  rb_memerror();
}

struct op *io_op_writing(struct backend_base *backend, enum op_kind kind, int fd, VALUE snapshot, const char *base,
                         size_t length) {
  if (!NIL_P(snapshot)) buffer_lend_snapshot(backend_base_fiber(backend), snapshot);
  struct op *op = io_op(backend, kind, fd);

  op->as.rw.base = NIL_P(snapshot) ? memcpy(op->small, base, length) : (char *)base;
  op->as.rw.len = length;
  op->as.rw.offset = -1;
  return op;
}

struct op *io_op_with_memory(struct backend_base *backend, enum op_kind kind, int fd, size_t size) {
  struct op *op = io_op(backend, kind, fd);

  op->memory = calloc(1, size);
  if (op->memory) return op;
  loop_release_op(&backend->loop, op);
  buffer_return(backend_base_fiber(backend));
  rb_memerror();
}

/* News are looked at right after every call that may settle an op: an op in the list that has
 * been given back would be a trap. */
static void collect(struct backend_base *backend) { backend_base_collect(backend); }

/* It has settled in place, and there is nobody behind whom to take a turn. */
static bool done_p(struct backend_base *backend, const struct fiber_state *fiber, const struct op *op) {
  if (backend->loop.news != op || op->next_news || !turn_void_p(backend, fiber)) return false;
  loop_shift_news(&backend->loop);
  backend->switch_count++;
  return true;
}

/* The fiber is told when the op settles; also when it has settled in place, for then it takes
 * its turn behind the others like everyone who waited. True if it need not wait at all. */
static bool submit(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  op->state = OP_IDLE;
  op->owner = fiber;
  fiber->op = op;
  fiber->closing = Qnil;
  backend->op_count++;
  list_push(&backend->waiting, &fiber->waiting);
  backend_base_hold(backend, fiber);
  loop_submit(&backend->loop, op);
  if (!op_settled_p(op)) return false;
  if (done_p(backend, fiber, op)) return true;
  collect(backend);
  return false;
}

static VALUE take_errinfo(void) {
  VALUE error = rb_errinfo();

  rb_set_errinfo(Qnil);
  return error;
}

static void schedule_all(struct fiber_state *fiber, VALUE exceptions) {
  for (long i = 0; i < RARRAY_LEN(exceptions); i++)
    backend_base_schedule(fiber, RARRAY_AREF(exceptions, i), RESUME_RAISE);
}

/* Exceptions that arrive meanwhile are delivered at the next switchpoint. Thread#kill cannot be
 * put off: its tag is returned at once, and the op is still to be waited for. */
static int wait_for_release(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  VALUE late = rb_ary_new();
  enum resume_how how;
  int state = 0;

  while (!op_settled_p(op)) {
    VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, "the kernel to let go", Qnil, &how,
                                    &state);
    bool killed = state && !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eException));
    if (killed) break;
    if (state || how == RESUME_RAISE) rb_ary_push(late, state ? take_errinfo() : value);
    state = 0;
  }
  schedule_all(fiber, late);
  return state;
}

static void poll_in_place(struct backend_base *backend, struct op *op) {
  while (!op_settled_p(op)) loop_poll(&backend->loop, -1);
  collect(backend);
}

/* Nearly always settled after the first look: see "Op" in the design. Returns a tag, or 0. */
static int withdraw(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  int state = 0;

  op->owner = NULL;             /* it is awake: one more wake would end its next wait */
  if (!op_settled_p(op)) {
    loop_cancel(&backend->loop, op);
    loop_poll(&backend->loop, 0);
    collect(backend);
    op->owner = fiber;
    if (!op_settled_p(op)) state = wait_for_release(backend, fiber, op);
    op->owner = NULL;
    if (state) poll_in_place(backend, op);
  }
  return state;
}

static bool for_reading_p(const struct op *op) {
  return op->kind == OP_READ || op->kind == OP_RECV ||
         (op->kind == OP_POLL && op->as.poll.events & POLLIN);
}

void io_read_again(struct backend_base *backend, int fd) {
  struct op *op, *next;

  for (op = loop_ops_on(&backend->loop, fd); op; op = next) {
    next = op->fd_next;
    if (for_reading_p(op)) loop_cancel(&backend->loop, op);
  }
  list_each(node, &backend->selects) {
    struct select_wait *wait = list_entry(node, struct select_wait, link);
    struct op *waiting = wait->fiber->op;       /* of an interjection, perhaps */
    if (waiting && waiting->fd == wait->epoll && select_waits_for_p(wait, fd))
      loop_cancel(&backend->loop, waiting);
  }
  collect(backend);
}

/* The number of a descriptor that is being closed may be another file's by now. */
static void reclaim(struct backend_base *backend, struct op *op, bool closed) {
  if (op->kind == OP_ACCEPT && op->result == -ECANCELED && !closed) io_accept_again(op->fd);
  if (op->result < 0) return;
  switch (op_reclaim_policy(op->kind)) {
    case OP_RECLAIM_BYTES:
      if (closed) break;
      fd_give_back(op->fd, op->as.rw.base, (size_t)op->result);
      io_read_again(backend, op->fd);
      break;
    case OP_RECLAIM_DESCRIPTOR:
      if (op->kind == OP_ACCEPT && !closed) io_keep_accepted(op->fd, (int)op->result);
      else close((int)op->result);
      break;
    case OP_RECLAIM_NOTHING:
      break;
  }
}

/* Whoever leaves for another reason need not hear that the descriptor was closed, least of all in its next wait. */
static void leave(struct fiber_state *fiber) {
  if (!NIL_P(fiber->closing)) backend_base_unschedule(fiber, fiber->closing);
  fiber->op = NULL;
  list_remove(&fiber->waiting);
  timer_heap_disarm(&fiber->backend->loop.timers, &fiber->timer);
}

/* Withdraws, keeps what had happened, gives back memory and op. */
static int undo(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  int state = withdraw(backend, fiber, op);

  reclaim(backend, op, !NIL_P(fiber->closing));
  leave(fiber);
  buffer_return(fiber);
  loop_release_op(&backend->loop, op);
  return state;
}

/* What Thread#kill leaves there is no exception; it cannot be set, and nobody has replaced it. */
static void put_errinfo(VALUE error) {
  if (RTEST(rb_obj_is_kind_of(error, rb_eException))) rb_set_errinfo(error);
}

static void raise_from(struct backend_base *backend, struct fiber_state *fiber, struct op *op,
                       int state) {
  VALUE error = rb_errinfo();
  int killed = undo(backend, fiber, op);

  if (!killed) put_errinfo(error);
  rb_jump_tag(killed ? killed : state);
}

/* A worker goes on with the call and with its memory: the caller has to begin with a new one. */
static bool orphaned_p(const struct op *op) {
  return op->kind == OP_CALL && op->as.call.orphanable && !op->memory;
}

struct interjection {
  VALUE exception, subject, closing;
};

/* If the block, or somebody before, closed what the fiber was waiting on, the number may be another file's by now. */
static VALUE run_interjection(VALUE argument) {
  struct interjection *interjection = (struct interjection *)argument;

  error_invoke(interjection->exception);
  if (!NIL_P(interjection->closing)) rb_exc_raise(interjection->closing);
  if (RB_TYPE_P(interjection->subject, T_FILE)) rb_io_descriptor(interjection->subject);
  return Qnil;
}

/* An interjection runs on this fiber and may wait itself. So the op is withdrawn, what was lent is
 * put aside (still pinned), and the op begins anew afterwards unless it turns out to be done. */
static void interject(struct backend_base *backend, struct fiber_state *fiber, struct op *op,
                      struct interjection interjection) {
  VALUE lent = fiber->lent, held = fiber->held;
  int state = withdraw(backend, fiber, op);

  leave(fiber);
  interjection.closing = fiber->closing;
  FIBER_WRITE(fiber, held, rb_ary_new_from_args(2, held, lent));
  fiber->lent = Qnil;
  if (!state) rb_protect(run_interjection, (VALUE)&interjection, &state);
  FIBER_WRITE(fiber, lent, lent);
  FIBER_WRITE(fiber, held, held);
  FIBER_WRITE(fiber, closing, interjection.closing);
  if (state) raise_from(backend, fiber, op, state);
  if (op->result == -ECANCELED && !orphaned_p(op)) submit(backend, fiber, op);
}

static void deliver(struct backend_base *backend, struct fiber_state *fiber, struct op *op,
                    VALUE exception) {
  int killed = undo(backend, fiber, op);

  if (killed) rb_jump_tag(killed);
  error_invoke(exception);
}

static const char *reason_of(const struct op *op) {
  if (op->kind == OP_POLL && op->as.poll.what) return op->as.poll.what;
  bool lookup = op->kind == OP_CALL && op->as.call.lane == OFFLOAD_LOOKUP;

  return lookup ? "a name to be looked up" : op_kind_name(op->kind);
}

/* An interjection, too, may use the timer: it is armed anew after each. */
static void arm(struct backend_base *backend, struct fiber_state *fiber, struct op *op,
                int64_t deadline) {
  if (timer_heap_arm(&backend->loop.timers, &fiber->timer, deadline) == 0) return;
  int killed = undo(backend, fiber, op);
  if (killed) rb_jump_tag(killed);
  rb_memerror();
}

static bool expired_p(const struct fiber_state *fiber, const struct op *op, int64_t deadline) {
  return deadline != CLOCK_NEVER && !timer_armed_p(&fiber->timer) && !op_settled_p(op);
}

static void expire(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  int killed = withdraw(backend, fiber, op);

  if (op->result == -ECANCELED) op->result = -ETIMEDOUT;
  if (!killed) return;
  leave(fiber);
  buffer_return(fiber);
  loop_release_op(&backend->loop, op);
  rb_jump_tag(killed);
}

/* In a shield the exception is held back, and what was closed has ended all the same. */
static void tell_late(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  if (op->result == -ECANCELED && !NIL_P(fiber->closing)) deliver(backend, fiber, op, fiber->closing);
}

int64_t io_await_until(struct backend_base *backend, struct op *op, VALUE subject,
                       int64_t deadline) {
  struct fiber_state *fiber = backend_base_fiber(backend);
  enum resume_how how;
  int state;

  for (bool done = submit(backend, fiber, op); !done; done = op_settled_p(op)) {
    if (deadline != CLOCK_NEVER && !timer_armed_p(&fiber->timer)) arm(backend, fiber, op, deadline);
    VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, reason_of(op), subject, &how, &state);
    if (state) raise_from(backend, fiber, op, state);
    if (how == RESUME_RETURN && expired_p(fiber, op, deadline)) expire(backend, fiber, op);
    if (how == RESUME_RETURN) continue;
    if (RTEST(rb_obj_is_kind_of(value, eInterjection))) interject(backend, fiber, op, (struct interjection){ value, subject, Qnil });
    else deliver(backend, fiber, op, value);
  }
  tell_late(backend, fiber, op);
  leave(fiber);
  buffer_return(fiber);
  return op->result;
}

int64_t io_await(struct backend_base *backend, struct op *op, VALUE subject) {
  return io_await_until(backend, op, subject, CLOCK_NEVER);
}

/* Bytes taken and bytes written count, and an exception that came with them has to wait. That the
 * descriptor was closed is no news then: the next call on it will say so. */
static bool put_off(struct backend_base *backend, struct fiber_state *fiber, struct op *op,
                    VALUE exception) {
  int killed = withdraw(backend, fiber, op);

  if (killed) {
    reclaim(backend, op, !NIL_P(fiber->closing));
    leave(fiber);
    loop_release_op(&backend->loop, op);
    rb_jump_tag(killed);
  }
  if (op->result < 0) return false;
  if (exception != fiber->closing) backend_base_schedule(fiber, exception, RESUME_RAISE);
  return true;
}

int64_t io_await_firmly(struct backend_base *backend, struct op *op, VALUE subject) {
  struct fiber_state *fiber = backend_base_fiber(backend);
  enum resume_how how;
  int state;

  for (bool done = submit(backend, fiber, op); !done; done = op_settled_p(op)) {
    VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, op_kind_name(op->kind), subject,
                                    &how, &state);
    VALUE exception = state ? rb_errinfo() : value;
    if (!state && how == RESUME_RETURN) continue;
    if (!RTEST(rb_obj_is_kind_of(exception, rb_eException))) raise_from(backend, fiber, op, state);
    if (!state && RTEST(rb_obj_is_kind_of(value, eInterjection))) {
      interject(backend, fiber, op, (struct interjection){ value, subject, Qnil });
    } else {
      if (state) rb_set_errinfo(Qnil);
      if (put_off(backend, fiber, op, exception)) break;
      if (state) rb_set_errinfo(exception), raise_from(backend, fiber, op, state);
      deliver(backend, fiber, op, exception);
    }
  }
  tell_late(backend, fiber, op);
  leave(fiber);
  return op->result;
}

int64_t io_perform_until(struct backend_base *backend, struct op *op, VALUE subject, int64_t deadline) {
  int64_t result = io_await_until(backend, op, subject, deadline);

  loop_release_op(&backend->loop, op);
  return result;
}

int64_t io_perform(struct backend_base *backend, struct op *op, VALUE subject) {
  return io_perform_until(backend, op, subject, CLOCK_NEVER);
}

int64_t io_deadline_in(struct backend_base *backend, int64_t period) {
  return period < 0 ? CLOCK_NEVER : backend_base_now(backend) + period;
}

bool io_late_p(struct backend_base *backend, int64_t result, int64_t deadline) {
  return result == -ETIMEDOUT && deadline != CLOCK_NEVER && backend_base_now(backend) >= deadline;
}

/* ---- several at once, or one that goes on ---------------------------------------------------- */

static void enlist(struct backend_base *backend, struct fiber_state *fiber, struct op *op) {
  op->owner = fiber;
  fiber->op = op;
  fiber->closing = Qnil;
  list_remove(&fiber->waiting);
  list_push(&backend->waiting, &fiber->waiting);
  backend_base_hold(backend, fiber);
}

static void unlist(struct fiber_state *fiber, struct op *op) {
  op->owner = NULL;
  leave(fiber);
}

static bool has_news_p(const struct op *op) {
  return op_settled_p(op) || op->shots_head != op->shots_tail;
}

/* What is there already is taken in turn, behind the others who may run. */
bool io_await_shot(struct backend_base *backend, struct op *op, struct op_shot *shot,
                   VALUE subject) {
  struct fiber_state *fiber = backend_base_fiber(backend);
  enum resume_how how;
  int state;

  do {
    enlist(backend, fiber, op);
    if (op->state == OP_IDLE) {
      backend->op_count++;
      loop_submit(&backend->loop, op);
      collect(backend);
    }
    if (has_news_p(op)) backend_base_schedule(fiber, Qnil, RESUME_RETURN);
    VALUE value = backend_base_wait(backend, SWITCH_MUST_WAIT, op_kind_name(op->kind), subject,
                                    &how, &state);
    unlist(fiber, op);
    if (state) rb_jump_tag(state);
    if (how == RESUME_RAISE) error_invoke(value);
  } while (!has_news_p(op));
  return loop_shift_shot(op, shot);
}

int io_withdraw(struct backend_base *backend, struct op *op) {
  struct fiber_state *fiber = backend_base_fiber(backend);

  if (op->state == OP_IDLE || op_settled_p(op)) return 0;
  enlist(backend, fiber, op);
  int state = withdraw(backend, fiber, op);
  unlist(fiber, op);
  return state;
}

static bool all_settled_p(struct op **ops, unsigned count) {
  while (count > 0 && op_settled_p(ops[count - 1])) count--;
  return count == 0;
}

/* The first pass tells the driver about all of them, so one look at the kernel is enough. */
static int withdraw_all(struct backend_base *backend, struct op **ops, unsigned count) {
  int state = 0;

  for (unsigned i = 0; i < count; i++) ops[i]->owner = NULL;
  for (unsigned i = 0; i < count; i++) loop_cancel(&backend->loop, ops[i]);
  for (unsigned i = 0; i < count; i++) {
    int killed = io_withdraw(backend, ops[i]);
    if (killed) state = killed;
  }
  return state;
}

static void submit_all(struct backend_base *backend, struct fiber_state *fiber, struct op **ops,
                       unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    enlist(backend, fiber, ops[i]);
    loop_submit(&backend->loop, ops[i]);
  }
  backend->op_count += count;
  collect(backend);
}

static void release_all(struct backend_base *backend, struct op **ops, unsigned count) {
  for (unsigned i = 0; i < count; i++) loop_release_op(&backend->loop, ops[i]);
}

/* An interjection, too, ends all of them; the caller goes on where they ended. */
void io_await_all(struct backend_base *backend, struct op **ops, unsigned count, VALUE subject) {
  struct fiber_state *fiber = backend_base_fiber(backend);
  enum resume_how how;
  VALUE value, error;
  int state, killed;

  submit_all(backend, fiber, ops, count);
  do value = backend_base_wait(backend, SWITCH_MUST_WAIT, op_kind_name(ops[0]->kind), subject,
                               &how, &state);
  while (!state && how == RESUME_RETURN && !all_settled_p(ops, count));
  error = rb_errinfo();
  leave(fiber);
  killed = withdraw_all(backend, ops, count);
  buffer_return(fiber);
  if (!state && !killed && how == RESUME_RAISE) {
    rb_protect(error_invoke, value, &state);
    error = rb_errinfo();
  }
  if (!state && !killed) return;
  release_all(backend, ops, count);
  if (!killed) put_errinfo(error);
  rb_jump_tag(killed ? killed : state);
}

struct readiness {
  int fd, events;
  const char *what;             /* see op.h */
};

static int wait_ready(struct backend_base *backend, struct readiness wanted, VALUE subject, int64_t deadline) {
  struct op *op = io_op(backend, OP_POLL, wanted.fd);

  op->as.poll.events = wanted.events;
  op->as.poll.what = wanted.what;
  int64_t result = io_await_until(backend, op, subject, deadline);
  loop_release_op(&backend->loop, op);
  if (result == -ETIMEDOUT) return 0;
  if (result == -ECANCELED) return POLLIN;      /* see io_read_again */
  if (result == -EBADF && RB_TYPE_P(subject, T_FILE)) rb_io_descriptor(subject);  /* closed: raises */
  if (result < 0) error_raise_errno(result, "waiting for a descriptor to become ready");
  return (int)result;
}

int io_wait_ready_until(struct backend_base *backend, int fd, int events, VALUE subject,
                        int64_t deadline) {
  return wait_ready(backend, (struct readiness){ fd, events, NULL }, subject, deadline);
}

void io_wait_told(struct backend_base *backend, int fd, const char *what, VALUE subject) {
  wait_ready(backend, (struct readiness){ fd, POLLIN, what }, subject, CLOCK_NEVER);
}

int io_wait_ready(struct backend_base *backend, int fd, int events, VALUE subject) {
  return io_wait_ready_until(backend, fd, events, subject, CLOCK_NEVER);
}

int io_wait_ready_for(struct backend_base *backend, int fd, int events, int64_t timeout,
                      VALUE subject) {
  return io_wait_ready_until(backend, fd, events, subject, io_deadline_in(backend, timeout));
}

void io_snooze(struct backend_base *backend) { backend_base_snooze(backend); }

bool io_ready_at_once_p(int fd) { return fd_has_ahead(fd) || io_has_accepted(fd); }

void io_give_way(void) {
  struct backend_base *backend = backend_base_open_here();

  if (!backend || backend_base_quick_p(backend)) return;
  if (backend_base_may_wait_p(backend)) backend_base_snooze(backend);
}

/* ---- closing -------------------------------------------------------------------------------- */

/* Once: the same descriptor may be let go of twice, before what is left in its buffer is written and
 * after. And a select may wait for several. */
static void tell_closed(struct fiber_state *fiber) {
  if (!NIL_P(fiber->closing)) return;
  FIBER_WRITE(fiber, closing, rb_exc_new_cstr(rb_eIOError, "stream closed in another thread"));
  backend_base_schedule(fiber, fiber->closing, RESUME_RAISE);
}

/* Their op is on a descriptor of their own. */
static void tell_selects(struct backend_base *backend, int fd) {
  list_each(node, &backend->selects) {
    struct select_wait *wait = list_entry(node, struct select_wait, link);
    if (select_waits_for_p(wait, fd)) tell_closed(wait->fiber);
  }
}

/* What the kernel has not seen yet would meet whatever file gets the number next: so it is shown. */
static void release_here(struct backend_base *backend, int fd) {
  struct op *op = loop_ops_on(&backend->loop, fd), *next;
  bool any = op != NULL;

  for (; op; op = next) {
    next = op->fd_next;
    if (op->owner) tell_closed(op->owner);
    loop_cancel(&backend->loop, op);
  }
  tell_selects(backend, fd);
  loop_forget_fd(&backend->loop, fd);
  if (any) loop_poll(&backend->loop, 0);
  collect(backend);
}

/* Another thread's loop is not ours to touch; its list of waiting fibers is, under the GVL. */
static void release_there(struct backend_base *backend, int fd) {
  list_each(node, &backend->waiting) {
    struct fiber_state *fiber = list_entry(node, struct fiber_state, waiting);
    if (fiber->op && fiber->op->fd == fd) tell_closed(fiber);
  }
  tell_selects(backend, fd);
}

/* A thread that has never waited need not open a backend to close a file. */
void io_release_waiters(int fd) {
  if (!ractor_main_p()) return;   /* no IO is of two ractors */
  struct backend_base *mine = backend_base_open_here();

  if (mine) release_here(mine, fd);
  backend_base_each(release_there, mine, fd);
  fd_forget(fd);
  io_forget_accepted(fd);
}
