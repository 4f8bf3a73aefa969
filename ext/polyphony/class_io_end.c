/* class_io_end.c - flushing and closing: stock, except that whoever waits on the IO is woken, and that
 * only the fiber waits. Layer 2. */
#include "io.h"
#include "stand_in.h"

static VALUE stock_close;       /* UnboundMethod */

static void release(VALUE io) {
  int fd = compat_descriptor(io);

  if (fd >= 0) io_release_waiters(fd);
}

/* False if there was nothing to do: nobody else has run. */
static bool drain(VALUE io) {
  bool unwritten = compat_descriptor(io) >= 0 && compat_unwritten_p(io);

  if (unwritten) fd_drain(io);
  return unwritten;
}

static VALUE IO_flush(VALUE self) {
  drain(rb_io_get_write_io(self));
  return rb_call_super(0, NULL);
}

/* The disk takes its time. A failure is Ruby's to meet and to report. */
static VALUE sync_to_disk(VALUE self, bool datasync) {
  VALUE out = rb_io_get_write_io(self);

  drain(out);
  if (compat_descriptor(out) < 0 || !stand_in_possible_p()) return rb_call_super(0, NULL);
  rb_io_flush(out);
  struct backend_base *backend = backend_base_current();
  struct op *op = io_op(backend, OP_FSYNC, compat_descriptor(out));
  op->as.fsync.datasync = datasync;
  return io_perform(backend, op, out) < 0 ? rb_call_super(0, NULL) : INT2FIX(0);
}

static VALUE IO_fsync(VALUE self) { return sync_to_disk(self, false); }

static VALUE IO_fdatasync(VALUE self) { return sync_to_disk(self, true); }

static void release_both(VALUE io, VALUE out) {
  release(io);
  if (out != io) release(out);
}

/* Whoever waits is told first: it may be why there is something to flush. That may take time, so
 * there may be others by then. If a thread is in the middle of a system call, Ruby waits for it to leave,
 * and since 3.3 it is the scheduler that has to end this wait, also for a fiber that would not ask it. */
static VALUE IO_close(VALUE self) {
  VALUE out = OBJ_FROZEN(self) ? self : rb_io_get_write_io(self);  /* a frozen IO may be closed, too */

  release_both(self, out);
  if (drain(out)) release_both(self, out);
  if (stand_in_wanted_p() && !compat_process_p(self) && rb_thread_alone())  /* nothing left to wait for */
    return rb_funcall(stock_close, rb_intern("bind_call"), 1, self);
  return rb_call_super(0, NULL);
}

/* A socket is shut down, of which the kernel tells those who wait. */
static VALUE IO_close_write(VALUE self) {
  VALUE out = rb_io_get_write_io(self);

  drain(out);
  if (out != self) release(out);
  return rb_call_super(0, NULL);
}

static VALUE IO_close_read(VALUE self) {
  if (rb_io_get_write_io(self) != self) release(self);
  return rb_call_super(0, NULL);
}

/* The number stands for another file then: what is on its way to the kernel must not meet that. */
static VALUE IO_reopen(int argc, VALUE *argv, VALUE self) {
  release(self);
  VALUE result = rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
  release(self);
  return result;
}

void class_io_end_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "IOEnd");

  rb_gc_register_address(&stock_close);
  stock_close = rb_funcall(rb_cIO, rb_intern("instance_method"), 1, ID2SYM(rb_intern("close")));
  rb_define_method(module, "flush", IO_flush, 0);
  rb_define_method(module, "fsync", IO_fsync, 0);
  rb_define_method(module, "fdatasync", IO_fdatasync, 0);
  rb_define_method(module, "close", IO_close, 0);
  rb_define_method(module, "close_write", IO_close_write, 0);
  rb_define_method(module, "close_read", IO_close_read, 0);
  rb_define_method(module, "reopen", IO_reopen, -1);
}
