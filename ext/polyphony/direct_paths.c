/* direct_paths.c - stock methods for which the way through the scheduler is wrong or too long. Layer 2. */
#include "backend_base.h"
#include "fd.h"
#include "io.h"
#include "stand_in.h"

/* ---- not blocking ----------------------------------------------------------------------------- */

/* Bytes that a cancelled read had taken come before those that the kernel has. */
static VALUE take_ahead(int argc, const VALUE *argv, VALUE io) {
  size_t length = NUM2SIZET(argv[0]);
  VALUE text = argc > 1 && RB_TYPE_P(argv[1], T_STRING) ? argv[1] : rb_str_new(NULL, 0);

  rb_str_modify_expand(text, (long)length - (RSTRING_LEN(text) < (long)length ? RSTRING_LEN(text) : (long)length));
  rb_str_set_len(text, (long)fd_take_ahead(rb_io_descriptor(io), RSTRING_PTR(text), length));
  return text;
}

static bool buffered_p(VALUE io) {
  rb_io_t *file;

  GetOpenFile(io, file);
  return rb_io_read_pending(file);
}

static bool ahead_p(int argc, const VALUE *argv, VALUE io) {
  return fd_ahead_count && argc > 0 && RB_INTEGER_TYPE_P(argv[0]) && NUM2LONG(argv[0]) > 0 &&
         fd_has_ahead(rb_io_descriptor(io)) && !buffered_p(io);
}

struct attempt {
  struct backend_base *backend;
  int argc;
  VALUE *argv;
  int keywords;
};

static VALUE call_stock(VALUE argument) {
  struct attempt *attempt = (struct attempt *)argument;

  return rb_call_super_kw(attempt->argc, attempt->argv, attempt->keywords);
}

static VALUE end_attempt(VALUE argument) {
  ((struct backend_base *)argument)->try_only = false;
  return Qnil;
}

/* Ruby asks the scheduler's io_read here as well, and does not tell that it must not wait. */
static VALUE read_nonblock(int argc, VALUE *argv, VALUE self) {
  int keywords = rb_keyword_given_p();

  io_give_way();
  if (ahead_p(argc, argv, self)) return take_ahead(argc, argv, self);
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  if (!backend || !backend->open || NIL_P(rb_fiber_scheduler_current()))
    return rb_call_super_kw(argc, argv, keywords);
  struct attempt attempt = { backend, argc, argv, keywords };
  backend->try_only = true;
  return rb_ensure(call_stock, (VALUE)&attempt, end_attempt, (VALUE)backend);
}

static VALUE write_nonblock(int argc, VALUE *argv, VALUE self) {
  (void)self;
  int keywords = rb_keyword_given_p();

  io_give_way();
  return rb_call_super_kw(argc, argv, keywords);
}

/* ---- writing several strings -------------------------------------------------------------------- */

static VALUE stock_write;       /* UnboundMethod */

/* Ruby gives the scheduler one at a time, so that a line and its end, as puts writes them, could come
 * apart when fibers take turns. Strings that do not go together are written as they are. */
static VALUE joined(int argc, const VALUE *argv) {
  VALUE text = rb_str_dup(rb_obj_as_string(argv[0]));

  for (int i = 1; i < argc; i++) {
    VALUE next = rb_obj_as_string(argv[i]);
    if (!rb_enc_compatible(text, next)) return Qnil;
    rb_str_append(text, next);
  }
  return text;
}

static VALUE write_all(int argc, VALUE *argv, VALUE self) {
  bool asked = !NIL_P(rb_fiber_scheduler_current());

  if (!asked && !stand_in_wanted_p()) return rb_call_super(argc, argv);
  VALUE text = argc > 1 ? joined(argc, argv) : Qnil;
  struct stand_in_call call = { .method = stock_write, .receiver = self, .argc = NIL_P(text) ? argc : 1,
                                .argv = NIL_P(text) ? argv : &text };
  VALUE count = asked ? rb_call_super(call.argc, call.argv) : stand_in_call(&call);
  RB_GC_GUARD(text);
  return count;
}

void direct_paths_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "DirectPaths");

  rb_define_method(module, "read_nonblock", read_nonblock, -1);
  rb_define_method(module, "write_nonblock", write_nonblock, -1);
  rb_gc_register_address(&stock_write);
  stock_write = rb_funcall(rb_cIO, rb_intern("instance_method"), 1, ID2SYM(rb_intern("write")));
  rb_define_method(module, "write", write_all, -1);
}
