/* io_stream.c - reading, writing, opening, closing; see io.h */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "clock.h"
#include "io.h"

enum {
  FIRST_CHUNK = 8192,           /* of a read whose length is not known */
  LAST_CHUNK  = 1 << 20,
  LONGEST_COPY = 16384,         /* of a chunk: it costs less than what a String is asked and told */
};

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
  struct backend_base *backend;
  VALUE io;
  int fd;
  enum op_kind kind;            /* OP_READ or OP_RECV */
  struct buffer buffer;
  long start;                   /* where in the buffer this read began */
  int64_t deadline;             /* CLOCK_NEVER without one */
  bool late;                    /* it is over */
  bool at_once;                 /* what is not there yet is not waited for */
};

/* Bytes that Ruby's own buffer of the IO holds, after a gets for instance, come first. */
static size_t take_buffered(struct reader *reader, size_t length) {
  rb_io_t *file;

  if (!RB_TYPE_P(reader->io, T_FILE)) return 0;
  GetOpenFile(reader->io, file);
  if (!rb_io_read_pending(file)) return 0;
  VALUE bytes = rb_funcall(reader->io, rb_intern("read_nonblock"), 1, SIZET2NUM(length));
  char *base = buffer_lend(&reader->buffer, backend_base_fiber(reader->backend), &length);
  if ((size_t)RSTRING_LEN(bytes) < length) length = RSTRING_LEN(bytes);
  memcpy(base, RSTRING_PTR(bytes), length);
  buffer_return(backend_base_fiber(reader->backend));
  RB_GC_GUARD(bytes);
  return length;
}

/* The switch comes before the bytes are taken: an exception delivered there loses none. */
static size_t take_ahead(struct reader *reader, size_t length) {
  if (!fd_ahead_count) return 0;
  reader->fd = fd_of(reader->io, FD_READ);
  if (!fd_has_ahead(reader->fd)) return 0;
  struct fiber_state *fiber = backend_base_fiber(reader->backend);
  io_snooze(reader->backend);
  char *base = buffer_lend(&reader->buffer, fiber, &length);
  size_t taken = fd_take_ahead(reader->fd, base, length);
  buffer_return(fiber);
  return taken;
}

/* As in io_send_within, no operation and no switch. */
static int64_t recv_at_once(struct reader *reader, char *base, size_t length) {
  ssize_t count;

  do count = recv(reader->fd, base, length, MSG_DONTWAIT);
  while (count < 0 && errno == EINTR);
  int error = count < 0 ? errno : 0;
  buffer_return(backend_base_fiber(reader->backend));
  reader->late = error == EAGAIN || error == EWOULDBLOCK;
  if (error && !reader->late) error_raise_errno(-error, "recvfrom(2)");
  return error ? 0 : count;
}

/* The descriptor is asked for again: others ran since, who may have closed the io, and the number
 * may be another file's by now. Likewise below in writing. */
static int64_t read_from_kernel(struct reader *reader, size_t length) {
  struct backend_base *backend = reader->backend;
  reader->fd = fd_of(reader->io, FD_READ);
  struct fiber_state *fiber = backend_base_fiber(backend);
  char *base = buffer_lend(&reader->buffer, fiber, &length);
  if (reader->at_once) return recv_at_once(reader, base, length);
  struct op *op = io_op(backend, reader->kind, reader->fd);

  op->as.rw.base = base;
  op->as.rw.len = length;
  op->as.rw.offset = -1;
  int64_t result = io_perform_until(backend, op, reader->io, reader->deadline);
  if ((reader->late = io_late_p(backend, result, reader->deadline))) return 0;
  if (result < 0 && result != -ECANCELED)
    error_raise_errno(result, reader->kind == OP_RECV ? "recvfrom(2)" : "read");
  return result;
}

/* At least one byte unless EOF (0) or length is 0. Cancelled: somebody has given bytes back. */
static size_t read_some(struct reader *reader, size_t length) {
  int64_t count = take_buffered(reader, length);

  if (!count) do {
    count = take_ahead(reader, length);
    if (!count) count = read_from_kernel(reader, length);
  } while (count == -ECANCELED);
  buffer_advance(&reader->buffer, (size_t)count);
  return (size_t)count;
}

static void read_exactly(struct reader *reader, size_t length) {
  while (length > 0) {
    size_t count = read_some(reader, length);
    if (!count) break;
    length -= count;
  }
}

static void read_to_end(struct reader *reader) {
  size_t chunk = FIRST_CHUNK;

  while (read_some(reader, chunk) > 0)
    if (chunk < LAST_CHUNK) chunk *= 2;
}

static struct reader reader_new(VALUE io, VALUE object, long pos, bool socket) {
  struct reader reader = {
    .backend = backend_base_current(),
    .io = io,
    .fd = fd_of(io, FD_READ),
    .kind = socket ? OP_RECV : OP_READ,
    .buffer = buffer_for_filling(object, pos),
    .deadline = CLOCK_NEVER,
  };

  reader.start = reader.buffer.pos;
  return reader;
}

static size_t checked_length(VALUE length) {
  long number = NUM2LONG(length);

  if (number < 0) rb_raise(rb_eArgError, "negative length %ld given", number);
  return (size_t)number;
}

static size_t fitting(struct reader *reader, size_t length) {
  size_t room = reader->buffer.size - reader->buffer.pos;

  if (RB_TYPE_P(reader->buffer.object, T_STRING) || length <= room) return length;
  return room;
}

struct request {
  struct reader reader;
  size_t wanted;
  bool to_end;                  /* no limit */
};

static VALUE read_whole(VALUE argument) {
  struct request *request = (struct request *)argument;

  if (request->to_end) read_to_end(&request->reader);
  else read_exactly(&request->reader, request->wanted);
  return Qnil;
}

/* A read of several parts that is broken off: in a String of the caller's they are to be found, in
 * one of our own they would be lost. */
static void read_or_give_back(struct request *request, bool own) {
  struct buffer *buffer = &request->reader.buffer;
  int state;

  rb_protect(read_whole, (VALUE)request, &state);
  if (!state) return;
  if (own && buffer->pos > 0) {
    fd_put_back(request->reader.fd, RSTRING_PTR(buffer->object), buffer->pos);
    io_read_again(request->reader.backend, request->reader.fd);
  }
  rb_jump_tag(state);
}

VALUE io_read(VALUE io, VALUE object, VALUE length, bool to_eof, long pos, bool socket) {
  struct request request = { .reader = reader_new(io, object, pos, socket) };
  struct reader *reader = &request.reader;
  bool raw = !RB_TYPE_P(reader->buffer.object, T_STRING);

  request.wanted = fitting(reader, NIL_P(length) ? SIZE_MAX : checked_length(length));
  request.to_end = NIL_P(length) && !raw;
  if (to_eof || NIL_P(length)) read_or_give_back(&request, NIL_P(object));
  else if (request.wanted > 0) read_some(reader, request.wanted);
  bool eof = reader->buffer.pos == reader->start && request.wanted > 0;
  VALUE result = buffer_finish(&reader->buffer, reader->start);
  RB_GC_GUARD(io);
  return eof ? Qnil : result;
}

/* What came, nil at EOF, false if nothing came in time. */
static VALUE recv_once(struct reader *reader, VALUE length) {
  size_t wanted = fitting(reader, checked_length(length));
  size_t count = wanted > 0 ? read_some(reader, wanted) : 0;
  VALUE result = buffer_finish(&reader->buffer, reader->start);

  if (reader->late) return Qfalse;
  return count == 0 && wanted > 0 ? Qnil : result;
}

VALUE io_recv_within(VALUE io, VALUE object, VALUE length, long pos, int64_t period) {
  struct reader reader = reader_new(io, object, pos, true);

  reader.deadline = io_deadline_in(reader.backend, period);
  VALUE result = recv_once(&reader, length);
  RB_GC_GUARD(io);
  return result;
}

VALUE io_recv_at_once(VALUE io, VALUE object, VALUE length, long pos) {
  struct reader reader = reader_new(io, object, pos, true);

  reader.at_once = true;
  VALUE result = recv_once(&reader, length);
  RB_GC_GUARD(io);
  return result;
}

/* A String of its own for each chunk: the taker may keep it. A short chunk is copied out of the
 * String it was read into, which serves again: with room for maxlen in each of them, the GC would
 * be called for eighty times as often. */
static VALUE take_chunk(struct reader *reader, size_t maxlen, VALUE *scratch) {
  VALUE whole = buffer_finish(&reader->buffer, 0);

  *scratch = Qnil;
  if ((size_t)RSTRING_LEN(whole) > maxlen / 2) return whole;
  *scratch = whole;
  return rb_str_new(RSTRING_PTR(whole), RSTRING_LEN(whole));
}

/* Every chunk until EOF. */
struct chunks {
  VALUE io;
  size_t maxlen;
  bool socket;
  void (*each)(VALUE, void *);
  void *context;
  char *memory;                 /* where they are read to; NULL: to Strings */
};

static void each_long_chunk(const struct chunks *chunks) {
  VALUE scratch = Qnil;

  for (;;) {
    struct reader reader = reader_new(chunks->io, scratch, 0, chunks->socket);
    if (!read_some(&reader, chunks->maxlen)) break;
    chunks->each(take_chunk(&reader, chunks->maxlen, &scratch), chunks->context);
  }
}

/* Whoever waits does not leave before the kernel has let go of the memory. */
static VALUE each_short_chunk(VALUE argument) {
  const struct chunks *chunks = (struct chunks *)argument;
  struct reader reader = {
    .backend = backend_base_current(), .io = chunks->io, .kind = chunks->socket ? OP_RECV : OP_READ, .deadline = CLOCK_NEVER,
    .buffer = { .object = Qfalse, .base = chunks->memory, .size = chunks->maxlen },
  };

  while (read_some(&reader, chunks->maxlen)) {
    VALUE chunk = rb_str_new(chunks->memory, reader.buffer.pos);
    reader.buffer.pos = 0;
    chunks->each(chunk, chunks->context);
  }
  return Qnil;
}

static VALUE free_memory(VALUE argument) {
  xfree(((struct chunks *)argument)->memory);
  return Qnil;
}

static VALUE each_chunk(struct chunks chunks) {
  if (chunks.maxlen == 0) rb_raise(rb_eArgError, "maxlen must be positive");
  fd_of(chunks.io, FD_READ);    /* raises for what cannot be read */
  if (chunks.maxlen > LONGEST_COPY) {
    each_long_chunk(&chunks);
  } else {
    chunks.memory = xmalloc(chunks.maxlen);
    rb_ensure(each_short_chunk, (VALUE)&chunks, free_memory, (VALUE)&chunks);
  }
  return chunks.io;
}

static void yield_chunk(VALUE chunk, void *context) {
  (void)context;
  rb_yield(chunk);
}

VALUE io_read_loop(VALUE io, size_t maxlen, bool socket) {
  return each_chunk((struct chunks){ .io = io, .maxlen = maxlen, .socket = socket, .each = yield_chunk });
}

struct feed {
  VALUE receiver;
  ID method;
};

static void feed_chunk(VALUE chunk, void *context) {
  struct feed *feed = context;

  if (rb_block_given_p())
    rb_funcall_with_block(feed->receiver, feed->method, 1, &chunk, rb_block_proc());
  else
    rb_funcall(feed->receiver, feed->method, 1, chunk);
}

VALUE io_feed_loop(VALUE io, VALUE receiver, ID method, bool socket) {
  struct feed feed = { receiver, method };

  return each_chunk((struct chunks){ io, FIRST_CHUNK, socket, feed_chunk, &feed, NULL });
}

/* ---- writing -------------------------------------------------------------------------------- */

int64_t io_write_all(struct backend_base *backend, int fd, const char *base, size_t length,
                     VALUE snapshot, VALUE io) {
  size_t done = 0;

  do {
    struct op *op = io_op_writing(backend, OP_WRITE, fd, snapshot, base + done, length - done);
    int64_t result = io_perform(backend, op, io);
    if (result < 0) error_raise_errno(result, "write");
    done += (size_t)result;
    if (done < length) fd = fd_of(io, FD_WRITE);
  } while (done < length);
  RB_GC_GUARD(snapshot);
  return (int64_t)length;
}

struct gather {
  VALUE texts;                  /* Array: what is lent */
  struct iovec *iov;            /* the first that is not written yet; in `memory` of the caller */
  unsigned count;
  size_t total;
};

/* A short String has its bytes in the object, and an Array does not keep it from being moved. Such
 * memory does: what looks like an object in it is pinned. So each stands there as well. */
static struct gather gather_new(int count, const VALUE *buffers, VALUE *memory) {
  struct gather gather = { rb_ary_new_capa(count), NULL, (unsigned)count, 0 };
  size_t size = sizeof(struct iovec) + sizeof(VALUE);

  gather.iov = rb_alloc_tmp_buffer(memory, (long)(count * size));
  memset(gather.iov, 0, count * size);
  VALUE *pins = (VALUE *)(gather.iov + count);
  for (int i = 0; i < count; i++) {
    VALUE text = pins[i] = buffer_text(buffers[i]);
    rb_ary_push(gather.texts, text);
    gather.iov[i] = (struct iovec){ RSTRING_PTR(text), (size_t)RSTRING_LEN(text) };
    gather.total += (size_t)RSTRING_LEN(text);
  }
  return gather;
}

static void gather_skip(struct gather *gather, size_t count) {
  while (gather->count && count >= gather->iov->iov_len) {
    count -= gather->iov->iov_len;
    gather->iov++;
    gather->count--;
  }
  if (!gather->count) return;
  gather->iov->iov_base = (char *)gather->iov->iov_base + count;
  gather->iov->iov_len -= count;
}

static int64_t write_gathered(struct backend_base *backend, int fd, struct gather *gather, VALUE io) {
  unsigned count = gather->count < IOV_MAX ? gather->count : IOV_MAX;
  buffer_lend_snapshot(backend_base_fiber(backend), gather->texts);
  struct op *op = io_op_with_memory(backend, OP_WRITEV, fd, count * sizeof(struct iovec));

  memcpy(op->memory, gather->iov, count * sizeof(struct iovec));
  op->as.vec.iov = op->memory;
  op->as.vec.count = count;
  op->as.vec.offset = -1;
  return io_perform(backend, op, io);
}

static VALUE write_vector(VALUE io, int fd, int count, const VALUE *buffers) {
  struct backend_base *backend = backend_base_current();
  VALUE memory = Qnil;
  struct gather gather = gather_new(count, buffers, &memory);

  while (gather.count > 0) {
    int64_t result = write_gathered(backend, fd, &gather, io);
    if (result < 0) error_raise_errno(result, "write");
    gather_skip(&gather, (size_t)result);
    if (gather.count > 0) fd = fd_of(io, FD_WRITE);
  }
  rb_free_tmp_buffer(&memory);
  return SIZET2NUM(gather.total);
}

VALUE io_write(VALUE io, int count, const VALUE *buffers) {
  int fd = fd_of(io, FD_WRITE);
  const char *base;
  char small[OP_SMALL];
  size_t length;

  if (count == 0) return INT2FIX(0);
  if (count > 1) return write_vector(io, fd, count, buffers);
  VALUE snapshot = buffer_copy_small(buffers[0], small, &base, &length);
  return LL2NUM(io_write_all(backend_base_current(), fd, base, length, snapshot, io));
}

/* ---- the rest ------------------------------------------------------------------------------- */

static VALUE close_descriptor(int fd) {
  struct backend_base *backend = backend_base_current();
  int64_t result = io_perform(backend, io_op(backend, OP_CLOSE, fd), INT2NUM(fd));

  if (result < 0) error_raise_errno(result, "close");
  return Qnil;
}

/* An IO is closed by Ruby, which has more to put in order than the descriptor. */
VALUE io_close(VALUE io) {
  if (RB_INTEGER_TYPE_P(io)) {
    io_release_waiters(NUM2INT(io));
    return close_descriptor(NUM2INT(io));
  }
  if (rb_respond_to(io, id_closed_p) && RTEST(rb_funcall(io, id_closed_p, 0))) return Qnil;
  io_release_waiters(fd_of(io, FD_READ));
  rb_funcall(io, id_close, 0);
  io_snooze(backend_base_current());
  return Qnil;
}

VALUE io_fsync(VALUE io, bool datasync) {
  struct backend_base *backend = backend_base_current();
  struct op *op = io_op(backend, OP_FSYNC, fd_of(io, FD_WRITE));

  op->as.fsync.datasync = datasync;
  int64_t result = io_perform(backend, op, io);
  if (result < 0) error_raise_errno(result, datasync ? "fdatasync" : "fsync");
  return INT2FIX(0);
}

/* The path lives in op->memory: the kernel or a worker may read it after Ruby has moved on. */
static struct op *path_op(struct backend_base *backend, enum op_kind kind, VALUE path, size_t extra) {
  const char *string = StringValueCStr(path);
  size_t size = strlen(string) + 1;
  struct op *op = io_op_with_memory(backend, kind, -1, extra + size);

  memcpy((char *)op->memory + extra, string, size);
  return op;
}

VALUE io_open(VALUE path, int flags, int mode) {
  struct backend_base *backend = backend_base_current();
  VALUE name = rb_get_path(path);
  struct op *op = path_op(backend, OP_OPEN, name, 0);

  op->as.open.path = op->memory;
  op->as.open.flags = flags;
  op->as.open.mode = (mode_t)mode;
  int64_t result = io_perform(backend, op, name);
  if (result < 0) error_raise_errno(result, RSTRING_PTR(name));
  return INT2NUM((int)result);
}

#ifdef __linux__
#define STAT_MEMBER(st, name) (st)->stx_##name
#define STAT_TIME(st, name) ((struct timespec){ (st)->stx_##name##time.tv_sec, (st)->stx_##name##time.tv_nsec })
#else
#define STAT_MEMBER(st, name) (st)->st_##name
#ifdef __APPLE__
#define STAT_TIME(st, name) (st)->st_##name##timespec
#else
#define STAT_TIME(st, name) (st)->st_##name##tim
#endif
#ifndef AT_EMPTY_PATH           /* nor is anybody asked for these */
#define AT_EMPTY_PATH 0
#endif
#ifndef STATX_BASIC_STATS
#define STATX_BASIC_STATS 0
#endif
#endif

static VALUE timestamp(struct timespec time) { return rb_time_timespec_new(&time, INT_MAX); }

static void put(VALUE hash, const char *name, VALUE value) {
  rb_hash_aset(hash, ID2SYM(rb_intern(name)), value);
}

static VALUE stat_hash(const STAT_BUFFER *st) {
  VALUE hash = rb_hash_new();

  put(hash, "mode", UINT2NUM(STAT_MEMBER(st, mode)));
  put(hash, "nlink", UINT2NUM(STAT_MEMBER(st, nlink)));
  put(hash, "uid", UINT2NUM(STAT_MEMBER(st, uid)));
  put(hash, "gid", UINT2NUM(STAT_MEMBER(st, gid)));
  put(hash, "size", ULL2NUM(STAT_MEMBER(st, size)));
  put(hash, "blocks", ULL2NUM(STAT_MEMBER(st, blocks)));
  put(hash, "ino", ULL2NUM(STAT_MEMBER(st, ino)));
  put(hash, "atime", timestamp(STAT_TIME(st, a)));
  put(hash, "mtime", timestamp(STAT_TIME(st, m)));
  put(hash, "ctime", timestamp(STAT_TIME(st, c)));
  return hash;
}

VALUE io_stat(VALUE path_or_io) {
  struct backend_base *backend = backend_base_current();
  bool by_path = RB_TYPE_P(path_or_io, T_STRING) ||
    (!RB_TYPE_P(path_or_io, T_FILE) && rb_respond_to(path_or_io, rb_intern("to_path")));
  VALUE name = by_path ? rb_get_path(path_or_io) : rb_str_new(NULL, 0);
  int fd = by_path ? -1 : fd_of(path_or_io, FD_READ);
  struct op *op = path_op(backend, OP_STAT, name, sizeof(STAT_BUFFER));

  op->fd = fd;
  op->as.stat.buf = op->memory;
  op->as.stat.path = (char *)op->memory + sizeof(STAT_BUFFER);
  op->as.stat.flags = fd < 0 ? 0 : AT_EMPTY_PATH;
  op->as.stat.mask = STATX_BASIC_STATS;
  int64_t result = io_await(backend, op, path_or_io);
  STAT_BUFFER st = *op->as.stat.buf;
  loop_release_op(&backend->loop, op);
  if (result < 0) error_raise_errno(result, by_path ? RSTRING_PTR(name) : "fstat");
  return stat_hash(&st);
}
