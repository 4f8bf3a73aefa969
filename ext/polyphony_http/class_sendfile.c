/* class_sendfile.c - Polyphony::HTTP.__sendfile: a part of a file to a socket, without passing through Ruby. */
#include "polyphony_http.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#ifdef __linux__
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_NOWAIT               /* musl has it, and a function for it, since 1.2.5 */
#define RWF_NOWAIT 8
#endif
#endif

static VALUE sym_wait_writable, sym_cold;

#ifdef __linux__

static int fd_of(VALUE io) { return NUM2INT(rb_funcall(io, rb_intern("fileno"), 0)); }

/* sendfile(2) reads from the disk where it must, and everybody would wait for that. */
static bool cached_p(int fd, off_t offset) {
  char byte;
  struct iovec one = {.iov_base = &byte, .iov_len = 1};

  return syscall(SYS_preadv2, fd, &one, 1L, (long)offset, (long)((int64_t)offset >> 32), RWF_NOWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

/* call-seq: __sendfile(socket, file, offset, length) -> Integer, :wait_writable or :cold
 * How many bytes the kernel has taken: 0 at the end of the file. :cold: the file has to be read from the disk first. nil: not
 * with this file, or this socket; reading will tell. Never waits; the socket has to be non-blocking. */
static VALUE HTTP_s_sendfile(VALUE self, VALUE socket, VALUE file, VALUE offset, VALUE length) {
  int out = fd_of(socket), in = fd_of(file);
  off_t from = NUM2OFFT(offset);
  size_t size = NUM2SIZET(length);

  if (size && !(cached_p(in, from) && cached_p(in, from + (off_t)size - 1))) return sym_cold;
  ssize_t sent = sendfile(out, in, &from, size);
  if (sent >= 0) return SSIZET2NUM(sent);
  if (errno == EAGAIN || errno == EINTR) return sym_wait_writable;
  if (errno == EINVAL || errno == ENOSYS || errno == ESPIPE || errno == EIO || errno == EOPNOTSUPP) return Qnil;
  rb_sys_fail("sendfile");
}

#else

static VALUE HTTP_s_sendfile(VALUE self, VALUE socket, VALUE file, VALUE offset, VALUE length) { return Qnil; }

#endif

void Init_sendfile(void) {
  sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
  sym_cold = ID2SYM(rb_intern("cold"));
  rb_define_singleton_method(mHTTP, "__sendfile", HTTP_s_sendfile, 4);
}
