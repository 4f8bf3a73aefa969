/* io_memory.c - reading and writing for Ruby's own buffers; see io.h
 *
 * The buffers of an IO are used by all fibers that read from it or write to it. While one of them waits,
 * another may fill the buffer, move what is in it, make it longer, or close the IO, which frees it. So the
 * kernel gets memory of the operation's own, and afterwards one looks at what has become of the buffer. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>
#include "attempt.h"
#include "clock.h"
#include "faults.h"
#include "intake.h"
#include "io.h"
#include "loading.h"
#include "page_cache.h"

enum {
  QUICK_LENGTH = 1 << 20,       /* of a write at once */
  QUICK_READ = 1 << 16,         /* for longer ones a turn of the others is no delay */
};

/* ---- one operation ---------------------------------------------------------------------------- */

static struct op *memory_op(struct backend_base *backend, enum op_kind kind, VALUE io, char *base,
                            size_t length, int64_t offset) {
  /* What is due is raised before anything is done: a busy stream could put it off for ever. */
  if (backend_base_raising_p(backend_base_fiber(backend))) io_snooze(backend);
  struct op *op = io_op(backend, kind, rb_io_descriptor(io));
  op->as.rw.base = base;
  op->as.rw.len = length;
  op->as.rw.offset = offset < 0 ? -1 : offset;
  return op;
}

static void use_own_memory(struct backend_base *backend, struct op *op, size_t length) {
  op->memory = malloc(length);
  if (!op->memory) {
    loop_release_op(&backend->loop, op);
    rb_memerror();
  }
  op->as.rw.base = op->memory;
}

/* IO#timeout, which Ruby minds only where it waits by itself. */
static void await_in_time(VALUE io, int events) {
  VALUE timeout = compat_timeout(io);
  int fd = rb_io_descriptor(io);

  if (NIL_P(timeout) || (events == POLLIN && fd_has_ahead(fd))) return;
  if (!io_wait_ready_for(backend_base_current(), fd, events, io_period(timeout), io))
    rb_raise(rb_const_get(rb_cIO, rb_intern("TimeoutError")), "Blocking operation timed out!");
}

/* ---- at once ---------------------------------------------------------------------------------- */

/* An operation for which others need not run: what is there is read, and what there is room for is written,
 * as stock Ruby does it. Who does nothing else lets others run now and then. */
struct at_once {
  struct backend_base *backend;
  struct op op;                 /* but for op.small */
  struct fd_slot *slot;         /* or NULL */
};

static bool may_go_at_once_p(struct at_once *at_once) {
  at_once->backend = backend_base_current();
  return !faults_on && backend_base_quick_p(at_once->backend);
}

static void prepare_at_once(struct at_once *at_once, enum op_kind kind, VALUE io, char *base, size_t length, int64_t offset) {
  struct op *op = &at_once->op;

  memset(op, 0, offsetof(struct op, small));
  op->kind = kind;
  op->fd = rb_io_descriptor(io);
  op->as.rw.base = base;
  op->as.rw.len = length;
  op->as.rw.offset = offset;
  at_once->slot = loop_fd_slot(&at_once->backend->loop, op->fd);
}

/* What cannot be asked without waiting, a tty for instance, has room if poll says so. */
static int64_t attempt_now(struct op *op, struct attempt *attempt) {
  int64_t result = attempt_op(op, attempt);
  struct pollfd ready = { .fd = op->fd, .events = POLLOUT };

  if (result != ATTEMPT_WAIT || op->kind == OP_READ || !(attempt->hints & FD_BLIND)) return result;
  if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return result;
  attempt->ready = true;
  return attempt_op(op, attempt);
}

/* As attempt_op. */
static int64_t try_at_once(struct at_once *at_once) {
  struct attempt attempt = { .hints = at_once->slot ? at_once->slot->hints : 0 };
  int64_t result;

  if (page_cache_try(&at_once->backend->loop, &at_once->op, &result)) return result;
  if (at_once->slot) attempt.hints = at_once->slot->hints;
  result = attempt_now(&at_once->op, &attempt);
  if (at_once->slot) at_once->slot->hints = attempt.hints;
  return result;
}

static bool later_p(int64_t result) {
  return result == ATTEMPT_WAIT || result == ATTEMPT_OFFLOAD || result == ATTEMPT_PAUSE || result == -EINTR;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Who came first is served first. */
static bool others_read_p(struct loop *loop, int fd) {
  struct op *op = loop_ops_on(loop, fd);

  while (op && op->kind != OP_READ && op->kind != OP_RECV) op = op->fd_next;
  return op != NULL;
}

/* Where the last read took all there was, one waits rather than look again; an end that is due to the fiber comes first. */
static bool futile_p(const struct at_once *at_once) {
  const struct fd_slot *slot = at_once->slot;
  bool hinted = at_once->op.as.rw.offset < 0 && slot && slot->hints & (FD_DRAINED | FD_BLIND);

  return hinted || others_read_p(&at_once->backend->loop, at_once->op.fd) ||
         backend_base_raising_p(backend_base_fiber(at_once->backend));
}

static int64_t read_at_once(VALUE io, char *base, size_t length, int64_t offset) {
  struct at_once at_once;

  if (length > QUICK_READ || !may_go_at_once_p(&at_once)) return -EAGAIN;
  prepare_at_once(&at_once, OP_READ, io, base, length, offset < 0 ? -1 : offset);
  int64_t result = futile_p(&at_once) ? -EAGAIN : try_at_once(&at_once);
  return later_p(result) ? -EAGAIN : result;
}

/* Whether it is just bytes from the kernel. */
static bool plain_p(struct backend_base *backend, VALUE io, int64_t offset) {
  if (backend->try_only || backend_base_fiber(backend)->intake) return false;
  return offset >= 0 || !(fd_ahead_count || loading_p(io) || compat_tty_p(io));
}

int64_t io_read_at_once(VALUE io, char *base, size_t length, int64_t offset) {
  return plain_p(backend_base_current(), io, offset) ? read_at_once(io, base, length, offset) : -EAGAIN;
}

static int64_t read_into(VALUE io, char *base, size_t length, int64_t offset) {
  struct backend_base *backend = backend_base_current();
  struct op *op = memory_op(backend, OP_READ, io, base, length, offset);
  int64_t result = io_await_firmly(backend, op, io);

  loop_release_op(&backend->loop, op);
  return result;
}

/* What another fiber has left in Ruby's buffer is taken first. */
static bool left_p(VALUE io) {
  size_t length;

  return compat_read_buffer(io, &length) != NULL;
}

static int64_t take_left(VALUE io, char *base) {
  size_t length;
  const char *left = compat_read_buffer(io, &length);

  if (length > 0) memmove(base, left, length);
  return (int64_t)length;
}

/* Its place in the buffer may be taken by now: then the bytes have to wait. */
static int64_t deliver(VALUE io, char *base, const struct op *op) {
  size_t left;
  int64_t count = op->result > 0 ? op->result : 0;

  rb_io_descriptor(io);         /* raises if it was closed: then there is no buffer */
  bool moved = !compat_read_buffer_p(io, base, op->as.rw.len);
  compat_read_buffer(io, &left);
  if (moved || left > 0) {
    fd_put_back(op->fd, op->memory, (size_t)count);
    return moved ? -EAGAIN : take_left(io, base);
  }
  memcpy(base, op->memory, (size_t)count);
  return op->result;
}

struct delivery {
  VALUE io;
  char *base;
  struct op *op;
  struct backend_base *backend;
};

static VALUE run_delivery(VALUE argument) {
  struct delivery *delivery = (struct delivery *)argument;

  return (VALUE)deliver(delivery->io, delivery->base, delivery->op);
}

static VALUE end_delivery(VALUE argument) {
  struct delivery *delivery = (struct delivery *)argument;

  loop_release_op(&delivery->backend->loop, delivery->op);
  return Qnil;
}

static int64_t read_into_buffer(VALUE io, char *base, size_t length) {
  struct backend_base *backend = backend_base_current();
  int64_t left = take_left(io, base);

  if (left > 0) return left;
  struct op *op = memory_op(backend, OP_READ, io, base, length, -1);
  use_own_memory(backend, op, length);
  io_await_firmly(backend, op, io);
  struct delivery delivery = { io, base, op, backend };
  return (int64_t)rb_ensure(run_delivery, (VALUE)&delivery, end_delivery, (VALUE)&delivery);
}

/* A terminal may have been told not to wait, or not for long (`getch(min: 0)`): reads end with nothing then, and
 * poll does not tell of it. */
static bool in_vain_p(VALUE io) {
  struct termios mode;
  int fd = rb_io_descriptor(io);

  if (!compat_tty_p(io) || tcgetattr(fd, &mode) < 0 || mode.c_lflag & ICANON || mode.c_cc[VMIN]) return false;
  int64_t period = mode.c_cc[VTIME] * (NSEC_PER_SEC / 10);
  return !fd_has_ahead(fd) && !io_wait_ready_for(backend_base_current(), fd, POLLIN, period, io);
}

/* For read_nonblock, which has set O_NONBLOCK. */
static int64_t try_to_read(VALUE io, char *base, size_t length) {
  ssize_t result = read(rb_io_descriptor(io), base, length);

  return result < 0 ? -errno : result;
}

static int64_t read_memory(VALUE io, char *base, size_t length, int64_t offset) {
  bool shared = offset < 0 && compat_read_buffer_p(io, base, length);
  int64_t result;

  if (offset < 0 && loading_p(io)) return loading_read(rb_io_descriptor(io), base, length);
  if (offset < 0 && in_vain_p(io)) return 0;
  if (!fd_ahead_count && (!shared || !left_p(io)) && (result = read_at_once(io, base, length, offset)) != -EAGAIN) return result;
  if (offset < 0) await_in_time(io, POLLIN);
  do {
    int fd = rb_io_descriptor(io);
    if (offset < 0 && fd_ahead_count && fd_has_ahead(fd)) {
      io_snooze(backend_base_current());
      if (shared && (result = take_left(io, base)) > 0) return result;
      size_t taken = fd_take_ahead(rb_io_descriptor(io), base, length);
      if (taken > 0) return (int64_t)taken;
    }
    result = shared ? read_into_buffer(io, base, length) : read_into(io, base, length, offset);
  } while (result == -ECANCELED);       /* somebody has given bytes back */
  return result;
}

struct noted_read {
  VALUE io;
  char *base;
  size_t length;
};

static VALUE run_noted_read(VALUE argument) {
  struct noted_read *read = (struct noted_read *)argument;

  return (VALUE)read_memory(read->io, read->base, read->length, -1);
}

/* For a stock method that needs several reads: if this one is broken off, what the others had taken
 * is put back. If the IO was closed, there is nowhere to put it. */
static int64_t read_noted(struct fiber_state *fiber, struct noted_read read) {
  struct intake *intake = fiber->intake;
  bool in_buffer = compat_read_buffer_p(read.io, read.base, read.length);
  int state;

  intake_continue(intake);
  int64_t result = (int64_t)rb_protect(run_noted_read, (VALUE)&read, &state);
  if (state && NIL_P(fiber->closing)) intake_put_back(intake, read.base);
  if (state) rb_jump_tag(state);
  if (result > 0) intake_filled(intake, read.base, (size_t)result, in_buffer);
  return result;
}

int64_t io_read_memory(VALUE io, char *base, size_t length, int64_t offset) {
  struct backend_base *backend = backend_base_current();

  if (backend->try_only) return try_to_read(io, base, length);
  struct fiber_state *fiber = backend_base_fiber(backend);
  if (offset < 0 && fiber->intake && fiber->intake->io == io)
    return read_noted(fiber, (struct noted_read){ io, base, length });
  return read_memory(io, base, length, offset);
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* What there is room for is written at once, without a switch, so that what a program prints, in an
 * ensure block for instance, is printed. */
int64_t io_write_at_once(VALUE io, const char *base, size_t length) {
  struct at_once at_once;

  if (!may_go_at_once_p(&at_once)) return -EAGAIN;
  prepare_at_once(&at_once, OP_WRITE, io, (char *)base, length < QUICK_LENGTH ? length : QUICK_LENGTH, -1);
  int64_t result = try_at_once(&at_once);
  if (result == ATTEMPT_OFFLOAD && length <= PIPE_BUF) {        /* a file: it goes to the page cache */
    ssize_t written = write(at_once.op.fd, base, length);
    result = written < 0 ? -errno : written;
  }
  return later_p(result) ? -EAGAIN : result;
}

int64_t io_write_waiting(VALUE io, const char *base, size_t length, int64_t offset) {
  struct backend_base *backend = backend_base_current();

  if (offset < 0) await_in_time(io, POLLOUT);
  struct op *op = memory_op(backend, OP_WRITE, io, (char *)base, length, offset);

  if (compat_write_buffer_p(io, base, length)) {
    use_own_memory(backend, op, length);
    memcpy(op->memory, base, length);
  }
  int64_t result = io_await_firmly(backend, op, io);
  loop_release_op(&backend->loop, op);
  return result;
}

int64_t io_write_memory(VALUE io, const char *base, size_t length, int64_t offset) {
  int64_t result = offset < 0 ? io_write_at_once(io, base, length) : -EAGAIN;

  return result == -EAGAIN ? io_write_waiting(io, base, length, offset) : result;
}

/* ---- flushing --------------------------------------------------------------------------------- */

/* Ruby up to 3.2 flushes with a plain write(2), which stops the thread if the descriptor is a blocking
 * one, as that of an inherited standard output. */
static VALUE flush_some(VALUE io) {
  size_t length;
  const char *base = compat_write_buffer(io, &length);
  struct pollfd ready = { .fd = rb_io_descriptor(io), .events = POLLOUT };

  if (!length) return Qtrue;
  if (poll(&ready, 1, 0) != 1) return Qfalse;
  ssize_t written = write(ready.fd, base, length < PIPE_BUF ? length : PIPE_BUF);
  if (written > 0) compat_take_written(io, (size_t)written);
  if (written >= 0) return Qtrue;
  return errno == EAGAIN || errno == EINTR ? Qfalse : Qnil;
}

/* An error is left for Ruby to meet and to report. */
VALUE io_drain(VALUE io) {
  VALUE lock = compat_write_lock(io), done = Qtrue;

  while (!NIL_P(done) && compat_unwritten_p(io)) {
    done = RTEST(lock) ? rb_mutex_synchronize(lock, flush_some, io) : flush_some(io);
    if (done == Qfalse) io_wait_ready(backend_base_current(), rb_io_descriptor(io), POLLOUT, io);
  }
  return io;
}
