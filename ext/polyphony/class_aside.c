/* class_aside.c - system calls for Polyphony::Aside, which Thread#wakeup breaks off: then they raise EINTR,
 * and nothing else is raised, so that whoever made the call knows whether it was done. Layer 2. */
#include <errno.h>
#include <sys/file.h>
#include "polyphony.h"

struct call {
  int fd, operation;
  int error;
};

static void *lock(void *argument) {
  struct call *call = argument;

  call->error = flock(call->fd, call->operation) < 0 ? errno : 0;
  return call;
}

static VALUE Aside_s_flock(VALUE self, VALUE descriptor, VALUE operation) {
  struct call call = { NUM2INT(descriptor), NUM2INT(operation), EINTR };

  (void)self;
  rb_thread_call_without_gvl2(lock, &call, RUBY_UBF_IO, NULL);
  if (call.error) rb_syserr_fail(call.error, NULL);
  return INT2FIX(0);
}

void class_aside_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "Aside");

  rb_define_singleton_method(module, "flock", Aside_s_flock, 2);
}
