/* errors.c - see errors.h */
#include <errno.h>
#include <string.h>
#include "errors.h"

VALUE eBaseException, eMoveOn, eCancel, eTerminate, eRestart, eInterjection, eTimeout, eDeadlock;
VALUE eDeadlineExceeded;
VALUE eFiberError, eClosedQueue;

static VALUE define(VALUE *address, const char *name, VALUE super) {
  rb_gc_register_address(address);
  return *address = rb_define_class_under(mPolyphony, name, super);
}

void errors_init(void) {
  define(&eBaseException, "BaseException", rb_eException);
  define(&eMoveOn, "MoveOn", eBaseException);
  define(&eCancel, "Cancel", eBaseException);
  define(&eDeadlineExceeded, "DeadlineExceeded", eCancel);
  define(&eTerminate, "Terminate", eBaseException);
  define(&eRestart, "Restart", eBaseException);
  define(&eInterjection, "Interjection", eBaseException);
  define(&eTimeout, "TimeoutException", rb_eException);
  define(&eDeadlock, "Deadlock", rb_eException);
  rb_gc_register_address(&eFiberError);
  rb_gc_register_address(&eClosedQueue);
  eFiberError = rb_path2class("FiberError");
  eClosedQueue = rb_path2class("ClosedQueueError");
}

static const char *way_out(int number) {
  switch (number) {
    case EMFILE: return "raise the limit on open files: ulimit -n, or LimitNOFILE= in systemd";
    case ENFILE: return "raise the system's limit on open files: sysctl fs.file-max";
    case ENOMEM: return "memory or locked memory is short: ulimit -l, sysctl vm.max_map_count";
    default:     return NULL;
  }
}

VALUE error_new_errno(int64_t negative_errno, const char *doing) {
  int number = (int)-negative_errno;
  const char *hint = way_out(number);
  char message[256];

  snprintf(message, sizeof(message), "%s%s%s", doing, hint ? "; " : "", hint ? hint : "");
  return rb_syserr_new(number, message);
}

void error_raise_errno(int64_t negative_errno, const char *doing) {
  rb_exc_raise(error_new_errno(negative_errno, doing));
}

static VALUE instantiate_class(VALUE klass, int argc, const VALUE *argv) {
  return rb_funcallv(klass, id_exception, argc, argv);
}

static bool exception_class_p(VALUE object) {
  return RB_TYPE_P(object, T_CLASS) && RTEST(rb_class_inherited_p(object, rb_eException));
}

void error_check(VALUE spec) {
  if (NIL_P(spec) || RB_TYPE_P(spec, T_STRING) || exception_class_p(spec)) return;
  if (RTEST(rb_obj_is_kind_of(spec, rb_eException))) return;
  if (RB_TYPE_P(spec, T_ARRAY) && exception_class_p(rb_ary_entry(spec, 0))) return;
  rb_raise(rb_eTypeError, "expected an exception, an exception class, [class, message] or a "
           "message, got %"PRIsVALUE, rb_inspect(spec));
}

VALUE error_instantiate(VALUE spec) {
  error_check(spec);
  if (NIL_P(spec)) return rb_exc_new_cstr(rb_eRuntimeError, "unhandled exception");
  if (RTEST(rb_obj_is_kind_of(spec, rb_eException))) return spec;
  if (RB_TYPE_P(spec, T_STRING)) return rb_exc_new_str(rb_eRuntimeError, spec);
  if (RB_TYPE_P(spec, T_CLASS)) return instantiate_class(spec, 0, NULL);
  VALUE message = rb_ary_entry(spec, 1);
  return instantiate_class(rb_ary_entry(spec, 0), RARRAY_LEN(spec) > 1, &message);
}

bool error_ends_program_p(VALUE exception) {
  return RTEST(rb_obj_is_kind_of(exception, rb_eSystemExit)) ||
         RTEST(rb_obj_is_kind_of(exception, rb_eSignal));
}

VALUE error_invoke(VALUE exception) {
  rb_funcall(exception, id_invoke, 0);
  return Qnil;
}
