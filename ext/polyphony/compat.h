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

/* As TypedData_Get_Struct, without a call where the object is what it should be, which is nearly always. */
static inline void *typed_data(VALUE object, const rb_data_type_t *type) {
  if (RB_TYPE_P(object, T_DATA) && RTYPEDDATA_P(object) && RTYPEDDATA_TYPE(object) == type)
    return RTYPEDDATA_DATA(object);
  return rb_check_typeddata(object, type);
}

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

static inline VALUE compat_path(VALUE io) {
#ifdef HAVE_RB_IO_PATH
  return rb_io_path(io);
#else
  return RFILE(io)->fptr->pathv;
#endif
}

static inline bool compat_tty_p(VALUE io) {  /* io may also be what has an IO: a Tempfile */
  if (!RB_TYPE_P(io, T_FILE)) return false;
#ifdef HAVE_RB_IO_MODE
  return rb_io_mode(io) & FMODE_TTY;
#else
  return RFILE(io)->fptr->mode & FMODE_TTY;
#endif
}

static inline VALUE compat_timeout(VALUE io) {  /* since 3.2; Qnil: none */
#ifdef HAVE_RB_IO_TIMEOUT
  return rb_io_timeout(io);
#else
  return (void)io, Qnil;
#endif
}

/* What writing to an IO comes to. */
enum write_way {
  WRITE_APPENDS,                /* the bytes go to Ruby's buffer, and nothing waits */
  WRITE_AS_IT_IS,               /* they go to the kernel, at once and without conversion */
  WRITE_OTHERWISE,
};

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

/* Whether the bytes in the buffer are characters as they are. */
static inline bool compat_plain_p(VALUE io) {
  rb_io_t *file = compat_file(io);
  rb_encoding *encoding = file->encs.enc ? file->encs.enc : rb_default_external_encoding();

  return !file->encs.enc2 && !file->readconv && !file->cbuf.len && !(file->mode & FMODE_TEXTMODE) &&
         rb_enc_asciicompat(encoding);
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

/* Whether flushing would do anything: write those bytes, or give back what was read ahead of a file. */
static inline bool compat_buffered_p(VALUE io) {
  size_t length;

  return compat_unwritten_p(io) || compat_read_buffer(io, &length);
}

/* Conversion makes no more than four bytes of one, and a mark at the beginning. */
static inline enum write_way compat_write_way(VALUE io, size_t length) {
  enum { CAPACITY = 8192, MARK = 8 };
  rb_io_t *file = compat_file(io);
  bool converts = (file->encs.enc && file->encs.enc != rb_ascii8bit_encoding()) ||
                  file->mode & FMODE_TEXTMODE ||
                  file->encs.ecflags & (ECONV_DECORATOR_MASK | ECONV_STATEFUL_DECORATOR_MASK);
  size_t capacity = file->wbuf.ptr ? (size_t)file->wbuf.capa : CAPACITY;

  if (!(file->mode & (FMODE_SYNC | FMODE_TTY)))
    return (size_t)file->wbuf.len + length * 4 + MARK < capacity ? WRITE_APPENDS : WRITE_OTHERWISE;
  return converts || file->wbuf.len || !(file->mode & FMODE_SYNC) ? WRITE_OTHERWISE : WRITE_AS_IT_IS;
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

static inline bool compat_plain_p(VALUE io) { return (void)io, false; }

static inline void compat_take_written(VALUE io, size_t length) { (void)io, (void)length; }
static inline bool compat_unwritten_p(VALUE io) { return (void)io, false; }
static inline bool compat_buffered_p(VALUE io) { return (void)io, true; }
static inline bool compat_process_p(VALUE io) { return (void)io, true; }
static inline enum write_way compat_write_way(VALUE io, size_t length) {
  return (void)io, (void)length, WRITE_OTHERWISE;
}
static inline VALUE compat_write_lock(VALUE io) { return (void)io, Qfalse; }
#endif

#endif
