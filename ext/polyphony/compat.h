/* compat.h - the differences between Ruby 3.1 and 4.0, all in one place.
 * have_func in extconf.rb decides; nothing here looks at a version number. */
#ifndef POLYPHONY_COMPAT_H
#define POLYPHONY_COMPAT_H

#pragma GCC diagnostic push             /* Ruby's own headers are not written for -Wextra */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <stdbool.h>
#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/encoding.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/io.h>
#include <ruby/io/buffer.h>
#include <ruby/thread.h>
#pragma GCC diagnostic pop

/* The thread stays on its native thread: an io_uring with SINGLE_ISSUER insists (3.4 and later,
 * where threads may move; before, they do not). */
static inline void compat_lock_native_thread(void) {
#ifdef HAVE_RB_THREAD_LOCK_NATIVE_THREAD
  rb_thread_lock_native_thread();
#endif
}

/* -1 if it is closed. */
static inline int compat_descriptor(VALUE io) {
#ifdef HAVE_RB_IO_CLOSED_P
  return RTEST(rb_io_closed_p(io)) ? -1 : rb_io_descriptor(io);
#else
  return RFILE(io)->fptr ? RFILE(io)->fptr->fd : -1;
#endif
}

/* Ruby's own buffers of an IO: whether base is (in) one, and what is in the one for reading. Where the
 * public header does not show them, whatever is not longer than they are may be one. */
#ifdef HAVE_RB_IO_T_RBUF
#pragma GCC diagnostic push             /* shown, but not to be used, since 3.3 */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline rb_io_t *compat_file(VALUE io) { return RB_TYPE_P(io, T_FILE) ? RFILE(io)->fptr : NULL; }

static inline bool compat_read_buffer_p(VALUE io, const char *base, size_t length) {
  rb_io_t *file = compat_file(io);

  (void)length;
  return file && file->rbuf.ptr && file->rbuf.ptr == base;
}

static inline bool compat_write_buffer_p(VALUE io, const char *base, size_t length) {
  rb_io_t *file = compat_file(io);

  (void)length;
  return file && file->wbuf.ptr && base >= file->wbuf.ptr && base < file->wbuf.ptr + file->wbuf.capa;
}

static inline const char *compat_read_buffer(VALUE io, size_t *length) {
  rb_io_t *file = compat_file(io);

  *length = file && file->rbuf.len > 0 ? (size_t)file->rbuf.len : 0;
  return *length ? file->rbuf.ptr + file->rbuf.off : NULL;
}

/* How much waits to be written, and where; taken when written. */
static inline const char *compat_write_buffer(VALUE io, size_t *length) {
  rb_io_t *file = compat_file(io);

  *length = file && file->wbuf.len > 0 ? (size_t)file->wbuf.len : 0;
  return *length ? file->wbuf.ptr + file->wbuf.off : NULL;
}

static inline void compat_take_written(VALUE io, size_t length) {
  rb_io_t *file = compat_file(io);

  file->wbuf.off += (int)length;
  file->wbuf.len -= (int)length;
  if (file->wbuf.len == 0) file->wbuf.off = 0;
}

static inline bool compat_unwritten_p(VALUE io) {  /* whether flushing may have to wait */
  size_t length;

  return compat_write_buffer(io, &length) != NULL;
}

static inline bool compat_process_p(VALUE io) {  /* whether closing it waits for a process */
  rb_io_t *file = compat_file(io);

  return file && file->pid;
}

/* What whoever writes from that buffer has to hold; Qfalse if there is none. */
static inline VALUE compat_write_lock(VALUE io) {
  rb_io_t *file = compat_file(io);

  return file ? file->write_lock : Qfalse;
}
#pragma GCC diagnostic pop
#else
enum { COMPAT_BUFFER_SIZE = 8192 };

static inline bool compat_read_buffer_p(VALUE io, const char *base, size_t length) {
  return (void)io, (void)base, length <= COMPAT_BUFFER_SIZE;
}

static inline bool compat_write_buffer_p(VALUE io, const char *base, size_t length) {
  return (void)io, (void)base, length <= COMPAT_BUFFER_SIZE;
}

static inline const char *compat_read_buffer(VALUE io, size_t *length) {
  return (void)io, *length = 0, NULL;
}

static inline const char *compat_write_buffer(VALUE io, size_t *length) {
  return (void)io, *length = 0, NULL;
}

static inline void compat_take_written(VALUE io, size_t length) { (void)io, (void)length; }
static inline bool compat_unwritten_p(VALUE io) { return (void)io, false; }
static inline bool compat_process_p(VALUE io) { return (void)io, true; }
static inline VALUE compat_write_lock(VALUE io) { return (void)io, Qfalse; }
#endif

#endif
