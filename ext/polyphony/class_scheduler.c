/* class_scheduler.c - Polyphony::Scheduler: the hooks that Ruby calls. Layer 2.
 *
 * Ruby asks what a scheduler responds to, so hooks that the running Ruby does not know do no harm. */
#include <errno.h>
#include <unistd.h>
#include "errors.h"
#include "io.h"
#include "io_resolve.h"
#include "quick.h"
#include "scheduler.h"

static VALUE Scheduler_block(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 1, 2);
  return scheduler_block(argv[0], argc > 1 ? argv[1] : Qnil) ? Qtrue : Qfalse;
}

static VALUE Scheduler_unblock(VALUE self, VALUE blocker, VALUE fiber) {
  (void)self;
  scheduler_unblock(blocker, fiber);
  return Qnil;
}

static VALUE Scheduler_kernel_sleep(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 0, 1);
  scheduler_sleep(argc > 0 ? argv[0] : Qnil);
  return Qtrue;
}

static VALUE Scheduler_io_wait(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 2, 3);
  return scheduler_io_wait(argv[0], NUM2INT(argv[1]), argc > 2 ? argv[2] : Qnil);
}

static VALUE Scheduler_io_select(int argc, VALUE *argv, VALUE self) {
  VALUE readables, writables, exceptables, timeout;

  (void)self;
  rb_scan_args(argc, argv, "13", &readables, &writables, &exceptables, &timeout);
  return io_select(readables, writables, exceptables, io_interval(timeout));
}

/* ---- reading and writing ---------------------------------------------------------------------- */

/* Ruby 3.1 gives a length, later ones an offset behind it, after 4.0 before it. */
static bool offset_first;

struct stretch {
  size_t length, offset;
};

static struct stretch stretch(int argc, const VALUE *argv) {
  if (argc == 1) return (struct stretch){ NUM2SIZET(argv[0]), 0 };
  if (offset_first) return (struct stretch){ NUM2SIZET(argv[1]), NUM2SIZET(argv[0]) };
  return (struct stretch){ NUM2SIZET(argv[0]), NUM2SIZET(argv[1]) };
}

/* Where the method that tells us is not there, for the scheduler is used alone: IO#read_nonblock asks for as
 * many bytes as other methods do, and must not wait. */
static bool nonblock_p(void) {
  enum { FRAMES = 5 };          /* hooks of a subclass may stand between it and ours */
  VALUE frames[FRAMES];
  int lines[FRAMES], count = scheduler_everywhere_p() ? 0 : rb_profile_frames(0, FRAMES, frames, lines);

  for (int i = 0; i < count; i++) {
    VALUE name = rb_profile_frame_method_name(frames[i]);
    if (RB_TYPE_P(name, T_STRING) && strcmp(StringValueCStr(name), "read_nonblock") == 0) return true;
  }
  return false;
}

static VALUE Scheduler_io_read(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 3, 4);
  struct stretch want = stretch(argc - 2, argv + 2);
  if (nonblock_p()) return scheduler_io_try(argv[0], argv[1], want.offset);
  return scheduler_io_read(argv[0], argv[1], want.length, want.offset, -1);
}

static VALUE Scheduler_io_write(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 3, 4);
  struct stretch want = stretch(argc - 2, argv + 2);
  return scheduler_io_write(argv[0], argv[1], want.length, want.offset, -1);
}

/* io, buffer, length, from up to 3.1; io, buffer, from, length, offset since. */
static VALUE Scheduler_io_pread(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 4, 5);
  VALUE from = argc == 4 ? argv[3] : argv[2];
  struct stretch want = argc == 4 ? stretch(1, argv + 2) : stretch(2, argv + 3);
  if (NUM2LL(from) < 0) return rb_fiber_scheduler_io_result(-1, EINVAL);  /* as pread(2); to us it means: here */
  return scheduler_io_read(argv[0], argv[1], want.length, want.offset, NUM2LL(from));
}

/* There is no io_pwrite: Ruby 3.1 gives it a wrong position (IO::Buffer#pwrite), later ones call it without their
 * lock (IO#pwrite, which is a direct path of ours), and all kinds of things break. Without it Ruby writes itself. */

/* At once, without a switch: an exception delivered there would leave the descriptor open. */
static VALUE Scheduler_io_close(VALUE self, VALUE descriptor) {
  int fd = RB_INTEGER_TYPE_P(descriptor) ? NUM2INT(descriptor) : rb_io_descriptor(descriptor);

  (void)self;
  io_release_waiters(fd);
  return close(fd) == 0 ? Qtrue : rb_fiber_scheduler_io_result(-1, errno);
}

static VALUE Scheduler_process_wait(VALUE self, VALUE pid, VALUE flags) {
  (void)self;
  return io_process_wait_hook(NUM2PIDT(pid), NUM2INT(flags));
}

static VALUE Scheduler_address_resolve(VALUE self, VALUE hostname) {
  (void)self;
  return io_address_resolve(hostname);
}

static VALUE Scheduler_blocking_operation_wait(VALUE self, VALUE work) {
  if (!quick_p(work)) return rb_funcallv(self, id_compute, 1, &work);
  quick_call(work);
  return Qnil;
}

/* ---- fibers ----------------------------------------------------------------------------------- */

static VALUE Scheduler_fiber(VALUE self) {
  (void)self;
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "no block given: what is the fiber to do?");
  return scheduler_fiber(rb_block_proc());
}

static VALUE Scheduler_fiber_interrupt(VALUE self, VALUE fiber, VALUE exception) {
  (void)self;
  backend_base_schedule(fiber_state_of(fiber), error_instantiate(exception), RESUME_RAISE);
  return Qnil;
}

static VALUE Scheduler_yield(VALUE self) {
  (void)self;
  backend_base_snooze(backend_base_current());
  return Qnil;
}

static VALUE Scheduler_run(VALUE self) {
  (void)self;
  scheduler_run();
  return Qnil;
}

static VALUE Scheduler_close(VALUE self) {
  (void)self;
  scheduler_close();
  return Qnil;
}

/* Ruby asks for that first. A subclass has its own close. */
static VALUE Scheduler_scheduler_close(VALUE self) { return rb_funcall(self, id_close, 0); }

static VALUE Scheduler_s_install(VALUE klass) {
  scheduler_install_everywhere();
  return klass;
}

static VALUE Scheduler_s_share(VALUE klass, VALUE shared) {
  scheduler_share(shared);
  return klass;
}

static VALUE Scheduler_s_foreign_p(VALUE klass) {
  (void)klass;
  return scheduler_foreign_p() ? Qtrue : Qfalse;
}

static VALUE Scheduler_s_has_p(VALUE klass, VALUE fiber) {
  (void)klass;
  return scheduler_has_p(fiber) ? Qtrue : Qfalse;
}

/* ---- probing ---------------------------------------------------------------------------------- */

static VALUE Probe_io_read(int argc, VALUE *argv, VALUE self) {
  (void)self;
  offset_first = argc == 4 && NUM2SIZET(argv[3]) == 1;
  return INT2FIX(0);
}

/* Asks the running Ruby in which order it hands them over: length 1, offset 0. Not by the function that is
 * given both, for their order may have changed there, too. */
static void probe_order(void) {
  VALUE probe = rb_obj_alloc(rb_cObject);
  char memory[2];

  rb_define_singleton_method(probe, "io_read", Probe_io_read, -1);
  rb_fiber_scheduler_io_read_memory(probe, Qnil, memory, sizeof(memory), 1);
  RB_GC_GUARD(probe);
}

void class_scheduler_init(void) {
  scheduler_init();
  cScheduler = rb_define_class_under(mPolyphony, "Scheduler", rb_cObject);
  rb_gc_register_address(&cScheduler);
  rb_define_singleton_method(cScheduler, "__install", Scheduler_s_install, 0);
  rb_define_singleton_method(cScheduler, "__share", Scheduler_s_share, 1);
  rb_define_singleton_method(cScheduler, "__foreign?", Scheduler_s_foreign_p, 0);
  rb_define_singleton_method(cScheduler, "__has?", Scheduler_s_has_p, 1);
  rb_define_method(cScheduler, "block", Scheduler_block, -1);
  rb_define_method(cScheduler, "unblock", Scheduler_unblock, 2);
  rb_define_method(cScheduler, "kernel_sleep", Scheduler_kernel_sleep, -1);
  rb_define_method(cScheduler, "io_wait", Scheduler_io_wait, -1);
  rb_define_method(cScheduler, "io_select", Scheduler_io_select, -1);
  rb_define_method(cScheduler, "io_read", Scheduler_io_read, -1);
  rb_define_method(cScheduler, "io_write", Scheduler_io_write, -1);
  rb_define_method(cScheduler, "io_pread", Scheduler_io_pread, -1);
  rb_define_method(cScheduler, "io_close", Scheduler_io_close, 1);
  rb_define_method(cScheduler, "process_wait", Scheduler_process_wait, 2);
  rb_define_method(cScheduler, "address_resolve", Scheduler_address_resolve, 1);
  rb_define_method(cScheduler, "blocking_operation_wait", Scheduler_blocking_operation_wait, 1);
  rb_define_method(cScheduler, "fiber", Scheduler_fiber, 0);
  rb_define_method(cScheduler, "fiber_interrupt", Scheduler_fiber_interrupt, 2);
  rb_define_method(cScheduler, "yield", Scheduler_yield, 0);
  rb_define_method(cScheduler, "run", Scheduler_run, 0);
  rb_define_method(cScheduler, "close", Scheduler_close, 0);
  rb_define_method(cScheduler, "scheduler_close", Scheduler_scheduler_close, 0);
  probe_order();
}
