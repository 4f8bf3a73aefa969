/* io_splice.c - bytes from one descriptor to another without passing through Ruby; see io.h
 *
 * splice(2) is called directly and never waits: what is waited for is only readiness, the same on
 * every driver. So a cancel finds all bytes either in the target or still in the source.
 *
 * One end must be a pipe. If none is, bytes go through a private one ("hold"), which is empty
 * between two steps. What is in it when something is raised goes back to the source's read-ahead.
 * Read-ahead that is there before goes through it, too, and what Ruby has buffered of the source.
 *
 * SPLICE_F_NONBLOCK is about pipes only. Others are kept from blocking by their kind:
 *   socket   gets O_NONBLOCK for the duration of the call: tcp_splice_read and splice_to_socket
 *            look at nothing else
 *   file     if the page cache does not have it (RWF_NOWAIT tells), a worker makes the call.
 *            Writing is not asked about: it goes to the page cache, but may be slowed down there.
 *   other    ttys, devices: after poll(2) has promised, and writing at most PIPE_BUF bytes
 *
 * What does not know splice (EINVAL: files in /proc, targets with O_APPEND) is read or written the
 * plain way on that side. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "io.h"

#ifdef __linux__

#define MOST_AT_ONCE 0x7ffff000         /* the kernel's limit of one call */
#define HOLD_USUAL (64 * 1024)          /* what a pipe has unless it is asked for more */
/* Room for a long copy: five times the speed of 64 KiB from pipe to pipe, and a quarter less CPU
 * from TCP to TCP, where a MiB gains nothing more. A user may have 64 MiB in pipes (fs.pipe-user-
 * pages-soft); beyond that each new one gets a page or two, so we do not take what helps little. */
#define HOLD_LARGE (256 * 1024)
#define PLAIN_SIZE (16 * 1024)          /* bytes at a time where splice is not known */

enum side_kind { SIDE_PIPE, SIDE_SOCKET, SIDE_FILE, SIDE_OTHER };

struct side {
  VALUE io;                     /* Qundef: an end of the hold */
  int fd;
  enum side_kind kind;
  dev_t device;                 /* tells whether the number still is the same file */
  ino_t inode;
};

struct relay {
  struct backend_base *backend;
  struct side in, out;
  struct side hold_in, hold_out;  /* write and read end; fd -1 until needed */
  bool plain_in, plain_out;     /* no splice on that side */
  bool from_ruby;               /* what is in the hold was in Ruby's buffer of the source */
  size_t chunk;                 /* how many bytes at a time */
  const VALUE *affixes;         /* of io_splice_chunks */
  size_t rest;                  /* bytes of plain_out that are in `bytes` and not written */
  char bytes[PLAIN_SIZE];
};

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* ---- sides ----------------------------------------------------------------------------------- */

static enum side_kind kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return SIDE_PIPE;
  if (S_ISSOCK(mode)) return SIDE_SOCKET;
  return S_ISREG(mode) || S_ISBLK(mode) || S_ISDIR(mode) ? SIDE_FILE : SIDE_OTHER;
}

static struct side side_of(VALUE io, enum fd_direction direction) {
  struct side side = { .io = io, .fd = fd_of(io, direction) };
  struct stat st;

  if (fstat(side.fd, &st) < 0) error_raise_errno(-errno, "splice");
  side.kind = kind_of(st.st_mode);
  side.device = st.st_dev;
  side.inode = st.st_ino;
  return side;
}

/* After every switch: somebody may have closed one of them. Raises IOError then. */
static void refresh(struct relay *relay) {
  relay->in.fd = fd_of(relay->in.io, FD_READ);
  relay->out.fd = fd_of(relay->out.io, FD_WRITE);
}

static void snooze(struct relay *relay) {
  io_snooze(relay->backend);
  refresh(relay);
}

static bool ready_p(int fd, short events) {
  struct pollfd pollfd = { .fd = fd, .events = events };

  return poll(&pollfd, 1, 0) != 0;      /* an error is for the call that follows to report */
}

static void await_side(struct relay *relay, const struct side *side, short events) {
  io_wait_ready(relay->backend, side->fd, events, side->io == Qundef ? Qnil : side->io);
  refresh(relay);
}

/* One of them was not ready. If both are by now, this is a switch and no more. */
static void await(struct relay *relay, const struct side *from, const struct side *to) {
  if (ready_p(from->fd, POLLIN)) await_side(relay, to, POLLOUT);
  else await_side(relay, from, POLLIN);
}

/* ---- one call -------------------------------------------------------------------------------- */

static int64_t result_of(int64_t n) { return n < 0 ? -errno : n; }

/* The flags to put back afterwards, or -1. */
static int make_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);

  if (flags < 0 || (flags & O_NONBLOCK)) return -1;
  return fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -1 : flags;
}

static int64_t splice_now(int from, int to, size_t length) {
  int64_t n;

  do n = result_of(splice(from, NULL, to, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
  while (n == -EINTR);
  return n;
}

static int64_t splice_socket(const struct side *from, const struct side *to, size_t length) {
  int fd = from->kind == SIDE_SOCKET ? from->fd : to->fd;
  int flags = make_nonblocking(fd);
  int64_t n = splice_now(from->fd, to->fd, length);

  if (flags >= 0) fcntl(fd, F_SETFL, flags);
  return n;
}

/* 0 at the end, -EAGAIN when there is something to wait for. */
static int64_t try_move(const struct side *from, const struct side *to, size_t length) {
  if (from->kind == SIDE_OTHER && !ready_p(from->fd, POLLIN)) return -EAGAIN;
  if (to->kind == SIDE_OTHER) {
    if (!ready_p(to->fd, POLLOUT)) return -EAGAIN;
    if (length > PIPE_BUF) length = PIPE_BUF;
  }
  if (from->kind == SIDE_SOCKET || to->kind == SIDE_SOCKET) return splice_socket(from, to, length);
  return splice_now(from->fd, to->fd, length);
}

/* ---- files that are not in the page cache ---------------------------------------------------- */

struct call {
  int from, to;
  size_t length;
};

static int64_t run_call(void *argument) {
  struct call *call = argument;

  return splice_now(call->from, call->to, call->length);
}

/* A cancel waits for the worker, which waits for nothing but the disk. */
static int64_t move_on_worker(struct relay *relay, const struct side *from, const struct side *to,
                              size_t length) {
  struct op *op = io_op_with_memory(relay->backend, OP_CALL, from->fd, sizeof(struct call));

  *(struct call *)op->memory = (struct call){ from->fd, to->fd, length };
  op->as.call.fn = run_call;
  op->as.call.arg = op->memory;
  int64_t n = io_perform(relay->backend, op, from->io);
  refresh(relay);
  return n;
}

static bool cached_p(int fd, off_t offset) {
#ifdef RWF_NOWAIT
  char byte;
  struct iovec iov = { .iov_base = &byte, .iov_len = 1 };

  return preadv2(fd, &iov, 1, offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
#else
  (void)fd, (void)offset;
  return true;
#endif
}

/* The first byte and the last one stand for those in between. */
static bool on_disk_p(const struct side *from, size_t length) {
  if (from->kind != SIDE_FILE) return false;
  off_t offset = lseek(from->fd, 0, SEEK_CUR);
  if (offset < 0) return false;
  length = min_size(length, HOLD_LARGE);
  return !cached_p(from->fd, offset) || !cached_p(from->fd, offset + (off_t)length - 1);
}

/* Waits until something can be moved; 0 at the end, or -errno. Switches if it waits. */
static int64_t move(struct relay *relay, const struct side *from, const struct side *to,
                    size_t length) {
  for (;;) {
    int64_t n = on_disk_p(from, length) ? move_on_worker(relay, from, to, length)
                                        : try_move(from, to, length);
    if (n != -EAGAIN) return n;
    await(relay, from, to);
  }
}

/* ---- through the hold ------------------------------------------------------------------------ */

static int64_t checked(int64_t n) {
  if (n < 0) error_raise_errno(n, "splice");
  return n;
}

/* Whether we get it is up to the system. */
static void widen(int fd, size_t size) {
  if (fcntl(fd, F_GETPIPE_SZ) < (int)size) fcntl(fd, F_SETPIPE_SZ, (int)size);
}

static void open_hold(struct relay *relay) {
  int fds[2];

  if (relay->hold_in.fd >= 0) return;
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) error_raise_errno(-errno, "opening a pipe");
  rb_update_max_fd(fds[1]);
  relay->hold_out = (struct side){ .io = Qundef, .fd = fds[0], .kind = SIDE_PIPE };
  relay->hold_in = (struct side){ .io = Qundef, .fd = fds[1], .kind = SIDE_PIPE };
  if (relay->chunk > HOLD_USUAL) widen(fds[1], min_size(relay->chunk, HOLD_LARGE));
}

/* It is empty, so there is room. */
static int64_t put_into_hold(struct relay *relay, size_t length) {
  return result_of(write(relay->hold_in.fd, relay->bytes, length));
}

static int64_t fill_plainly(struct relay *relay, size_t length) {
  int64_t n = -EAGAIN;

  while (n == -EAGAIN || n == -EINTR) {
    if (relay->in.kind == SIDE_FILE || ready_p(relay->in.fd, POLLIN))
      n = result_of(read(relay->in.fd, relay->bytes, length));
    if (n == -EAGAIN) await_side(relay, &relay->in, POLLIN);
  }
  return n > 0 ? put_into_hold(relay, (size_t)n) : n;
}

/* After a gets, for instance. */
static bool buffered_p(VALUE io) {
  rb_io_t *file;

  if (!RB_TYPE_P(io, T_FILE)) return false;
  GetOpenFile(io, file);
  return rb_io_read_pending(file);
}

static size_t take_buffered(struct relay *relay, size_t length) {
  relay->from_ruby = buffered_p(relay->in.io);
  if (!relay->from_ruby) return 0;
  VALUE bytes = rb_funcall(relay->in.io, rb_intern("read_nonblock"), 1, SIZET2NUM(length));
  length = min_size(length, (size_t)RSTRING_LEN(bytes));
  memcpy(relay->bytes, RSTRING_PTR(bytes), length);
  RB_GC_GUARD(bytes);
  return length;
}

/* 0 at the end of the source. */
static int64_t fill(struct relay *relay) {
  size_t plain = min_size(relay->chunk, PLAIN_SIZE);
  size_t ahead = take_buffered(relay, plain);

  if (!ahead) ahead = fd_take_ahead(relay->in.fd, relay->bytes, plain);
  if (ahead > 0) return checked(put_into_hold(relay, ahead));
  if (!relay->plain_in) {
    int64_t n = move(relay, &relay->in, &relay->hold_in, relay->chunk);
    if (n != -EINVAL) return checked(n);
    relay->plain_in = true;
  }
  return checked(fill_plainly(relay, plain));
}

/* What was taken out of the hold and not written stays in relay->bytes: a wait may raise. */
static int64_t drain_plainly(struct relay *relay) {
  bool file = relay->out.kind == SIDE_FILE;

  if (!file && !ready_p(relay->out.fd, POLLOUT)) return -EAGAIN;
  if (!relay->rest) {
    int64_t n = result_of(read(relay->hold_out.fd, relay->bytes, file ? PLAIN_SIZE : PIPE_BUF));
    if (n <= 0) return n;
    relay->rest = (size_t)n;
  }
  int64_t n = result_of(write(relay->out.fd, relay->bytes, relay->rest));
  if (n <= 0) return n;
  relay->rest -= (size_t)n;
  memmove(relay->bytes, relay->bytes + n, relay->rest);
  return n;
}

static int64_t drain_some(struct relay *relay, size_t length) {
  if (!relay->plain_out) {
    int64_t n = move(relay, &relay->hold_out, &relay->out, length);
    if (n != -EINVAL) return n ? n : -EIO;      /* there is something in the hold */
    relay->plain_out = true;
  }
  int64_t n = drain_plainly(relay);
  if (n == -EAGAIN) await_side(relay, &relay->out, POLLOUT);
  return n == -EAGAIN || n == -EINTR ? 0 : n;
}

static void drain(struct relay *relay, size_t length) {
  while (length > 0) length -= (size_t)checked(drain_some(relay, length));
}

static size_t bytes_in_hold(struct relay *relay) {
  int length = 0;

  return ioctl(relay->hold_out.fd, FIONREAD, &length) < 0 ? 0 : (size_t)length;
}

static bool same_as_before_p(const struct side *side) {
  struct stat st;

  return fstat(side->fd, &st) == 0 && st.st_dev == side->device && st.st_ino == side->inode;
}

/* Back to where they came from, if that is still there. */
static void return_bytes(struct relay *relay, const char *bytes, size_t length) {
  if (!same_as_before_p(&relay->in)) return;
  if (relay->from_ruby) rb_io_ungetbyte(relay->in.io, rb_str_new(bytes, (long)length));
  else fd_put_back(relay->in.fd, bytes, length);
}

static VALUE return_to_source(VALUE argument) {
  struct relay *relay = (struct relay *)argument;
  size_t length = relay->rest + bytes_in_hold(relay);
  VALUE memory = rb_str_tmp_new((long)length);
  char *bytes = RSTRING_PTR(memory);

  memcpy(bytes, relay->bytes, relay->rest);
  ssize_t n = read(relay->hold_out.fd, bytes + relay->rest, length - relay->rest);
  return_bytes(relay, bytes, relay->rest + (n > 0 ? (size_t)n : 0));
  RB_GC_GUARD(memory);          /* bytes points into it */
  return Qnil;
}

static VALUE close_relay(VALUE argument) {
  struct relay *relay = (struct relay *)argument;

  int state = 0;

  if (relay->hold_in.fd < 0) return Qnil;
  if (relay->rest || bytes_in_hold(relay)) rb_protect(return_to_source, argument, &state);
  close(relay->hold_in.fd);
  close(relay->hold_out.fd);
  if (state) rb_jump_tag(state);
  return Qnil;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static bool both_pipes_p(const struct relay *relay) {
  return relay->in.kind == SIDE_PIPE && relay->out.kind == SIDE_PIPE;
}

static bool direct_p(const struct relay *relay) {
  return (relay->in.kind == SIDE_PIPE || relay->out.kind == SIDE_PIPE) && !relay->plain_in &&
         !relay->plain_out && !buffered_p(relay->in.io) && !fd_has_ahead(relay->in.fd);
}

/* Moves one chunk or less; 0 at the end. */
static int64_t step(struct relay *relay) {
  if (direct_p(relay)) {
    int64_t n = move(relay, &relay->in, &relay->out, relay->chunk);
    if (n != -EINVAL || both_pipes_p(relay)) return checked(n);
    relay->plain_in = relay->out.kind == SIDE_PIPE;
    relay->plain_out = !relay->plain_in;
  }
  open_hold(relay);
  int64_t n = fill(relay);
  drain(relay, (size_t)n);
  return n;
}

static VALUE run_once(VALUE argument) {
  struct relay *relay = (struct relay *)argument;

  snooze(relay);
  return LL2NUM(relay->chunk ? step(relay) : 0);
}

static VALUE run_to_end(VALUE argument) {
  struct relay *relay = (struct relay *)argument;
  int64_t n, total = 0;

  do {
    snooze(relay);
    n = step(relay);
    total += n;
  } while (n > 0);
  return LL2NUM(total);
}

static VALUE run_relay(VALUE source, VALUE target, size_t chunk, const VALUE *affixes,
                       VALUE (*body)(VALUE)) {
  struct relay relay = {
    .backend = backend_base_current(), .in = side_of(source, FD_READ),
    .out = side_of(target, FD_WRITE), .hold_in = { .fd = -1 }, .hold_out = { .fd = -1 },
    .chunk = min_size(chunk, MOST_AT_ONCE), .affixes = affixes,
  };

  return rb_ensure(body, (VALUE)&relay, close_relay, (VALUE)&relay);
}

VALUE io_splice(VALUE source, VALUE target, long maxlen) {
  if (maxlen >= 0) return run_relay(source, target, (size_t)maxlen, NULL, run_once);
  return run_relay(source, target, -(size_t)maxlen, NULL, run_to_end);
}

/* Pipes at the ends get more room, too: with 64 KiB, both sides mostly wait for each other. */
static VALUE run_double(VALUE argument) {
  struct relay *relay = (struct relay *)argument;

  if (relay->in.kind == SIDE_PIPE) widen(relay->in.fd, HOLD_LARGE);
  if (relay->out.kind == SIDE_PIPE) widen(relay->out.fd, HOLD_LARGE);
  return run_to_end(argument);
}

VALUE io_double_splice(VALUE source, VALUE target) {
  return run_relay(source, target, HOLD_LARGE, NULL, run_double);
}

/* ---- chunks with something around them ------------------------------------------------------- */

static size_t write_text(struct relay *relay, VALUE text) {
  const char *base;
  size_t length;
  VALUE snapshot = buffer_snapshot(text, &base, &length);

  if (length > 0) {
    io_write_all(relay->backend, relay->out.fd, base, length, snapshot, relay->out.io);
    refresh(relay);
  }
  RB_GC_GUARD(snapshot);        /* base points into it */
  return length;
}

static size_t write_affix(struct relay *relay, int which, int64_t length) {
  VALUE affix = relay->affixes[which];

  if (NIL_P(affix)) return 0;
  if (length >= 0 && rb_respond_to(affix, id_call)) {
    affix = rb_funcall(affix, id_call, 1, LL2NUM(length));
    refresh(relay);
  }
  return NIL_P(affix) ? 0 : write_text(relay, affix);
}

enum { PREFIX, POSTFIX, CHUNK_PREFIX, CHUNK_POSTFIX };

/* Through the hold always: what goes before a chunk depends on its length. */
static VALUE run_chunks(VALUE argument) {
  struct relay *relay = (struct relay *)argument;
  size_t total = write_affix(relay, PREFIX, -1);
  int64_t n;

  open_hold(relay);
  for (;;) {
    snooze(relay);
    if ((n = fill(relay)) == 0) break;
    total += write_affix(relay, CHUNK_PREFIX, n);
    drain(relay, (size_t)n);
    total += (size_t)n + write_affix(relay, CHUNK_POSTFIX, n);
  }
  return SIZET2NUM(total + write_affix(relay, POSTFIX, -1));
}

VALUE io_splice_chunks(VALUE source, VALUE target, const VALUE affixes[4], long chunk_size) {
  if (chunk_size <= 0) rb_raise(rb_eArgError, "a chunk has at least 1 byte, got %ld", chunk_size);
  return run_relay(source, target, (size_t)chunk_size, affixes, run_chunks);
}

/* ---- tee ------------------------------------------------------------------------------------- */

/* Read-ahead comes before what the pipe has, and stays where it is. */
static int64_t tee_ahead(struct relay *relay) {
  while (!ready_p(relay->out.fd, POLLOUT)) await_side(relay, &relay->out, POLLOUT);
  size_t length = fd_take_ahead(relay->in.fd, relay->bytes, min_size(relay->chunk, PIPE_BUF));
  int64_t n = result_of(write(relay->out.fd, relay->bytes, length));
  fd_put_back(relay->in.fd, relay->bytes, length);
  return n;
}

static int64_t tee_now(struct relay *relay) {
  int64_t n;

  for (;;) {
    n = result_of(tee(relay->in.fd, relay->out.fd, relay->chunk, SPLICE_F_NONBLOCK));
    if (n == -EAGAIN) await(relay, &relay->in, &relay->out);
    else if (n != -EINTR) return n;
  }
}

static VALUE run_tee(VALUE argument) {
  struct relay *relay = (struct relay *)argument;

  snooze(relay);
  bool ahead = relay->chunk > 0 && both_pipes_p(relay) && fd_has_ahead(relay->in.fd);
  int64_t n = ahead ? tee_ahead(relay) : tee_now(relay);
  if (n < 0) error_raise_errno(n, "tee");
  return LL2NUM(n);
}

VALUE io_tee(VALUE source, VALUE target, long maxlen) {
  if (maxlen < 0) rb_raise(rb_eArgError, "tee needs a length, got %ld", maxlen);
  return run_relay(source, target, (size_t)maxlen, NULL, run_tee);
}

#else

static VALUE missing(void) {
  rb_raise(rb_eNotImpError, "splice(2) and tee(2) exist on Linux only");
}

VALUE io_splice(VALUE source, VALUE target, long maxlen) {
  (void)source, (void)target, (void)maxlen;
  return missing();
}

VALUE io_tee(VALUE source, VALUE target, long maxlen) {
  (void)source, (void)target, (void)maxlen;
  return missing();
}

VALUE io_double_splice(VALUE source, VALUE target) {
  (void)source, (void)target;
  return missing();
}

VALUE io_splice_chunks(VALUE source, VALUE target, const VALUE affixes[4], long chunk_size) {
  (void)source, (void)target, (void)affixes, (void)chunk_size;
  return missing();
}

#endif
