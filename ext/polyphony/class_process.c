/* class_process.c - waiting for children by Ruby's own words. Layer 2. The modules defined here are
 * prepended by lib/polyphony/extensions/process.rb.
 *
 * The waiting is ours, on every fiber; reaping, errors and what concerns arguments are stock. */
#include <errno.h>
#include <sys/wait.h>
#include "cancel_scope.h"
#include "io.h"

static VALUE eNoChild;          /* Errno::ECHILD */

struct call {
  int pid, flags;
};

/* As stock takes them; false if it is to refuse them. */
static bool parse(int argc, const VALUE *argv, struct call *call) {
  *call = (struct call){ -1, 0 };
  if (argc > 2) return false;
  if (argc > 0) call->pid = NUM2PIDT(argv[0]);
  if (argc > 1 && !NIL_P(argv[1])) call->flags = (int)NUM2UINT(argv[1]);
  return true;
}

/* A thread that has no backend has no fibers to be served: stock waits for one child as well. A wait
 * for any child needs ours everywhere, so as not to take what somebody waits for. */
static bool ours_p(const struct call *call) {
  struct backend_base *backend = backend_base_open_here();

  if (call->flags & WNOHANG) return true;
  return backend ? backend_base_may_wait_p(backend) : call->pid <= 0;
}

static VALUE call_super(VALUE argument) {
  struct call *call = (struct call *)argument;
  VALUE arguments[] = { INT2NUM(call->pid), INT2NUM(call->flags) };

  return rb_call_super(2, arguments);
}

static VALUE no_child(VALUE argument, VALUE error) {
  (void)argument;
  return error;
}

static VALUE call_super_rescued(VALUE argument) {
  return rb_rescue2(call_super, argument, no_child, Qnil, eNoChild, (VALUE)0);
}

static VALUE end_claim(VALUE pid) {
  io_process_claim((int)pid, -1);
  return Qnil;
}

/* Blocks the thread. Qundef if another one reaped the child for us: its status is kept. */
static VALUE stock(struct call *call) {
  io_process_claim(call->pid, 1);
  VALUE result = rb_ensure(call_super_rescued, (VALUE)call, end_claim, (VALUE)call->pid);
  if (!RTEST(rb_obj_is_kind_of(result, eNoChild))) return result;
  call->flags |= WNOHANG;
  return Qundef;
}

static bool found_p(VALUE status) { return !NIL_P(status) && io_process_pid(status) > 0; }

/* A Process::Status of a child, or in *result what stock has to say. */
static VALUE wait_for(struct call *call, VALUE *result) {
  VALUE status;

  backend_base_keeps_statuses = true;
  if (!ours_p(call) && (*result = stock(call)) != Qundef) return Qnil;
  bool waits = !(call->flags & WNOHANG);
  do {
    if (found_p(status = io_process_wait(call->pid, call->flags))) return status;
    /* Stock would look again, and take a child that has ended since and may be another's. */
    if (NIL_P(*result = status) && backend_base_open_here()) return Qnil;
    *result = call_super((VALUE)&(struct call){ call->pid, call->flags | WNOHANG });
  } while (waits && NIL_P(*result));    /* there is one by now */
  return Qnil;
}

static VALUE without_status(VALUE result) {
  struct backend_base *backend = NIL_P(result) ? backend_base_open_here() : NULL;

  if (backend) backend_base_show_status(backend, Qnil);
  return result;
}

static void set_last_status(VALUE status) {
  rb_last_status_set(NUM2INT(rb_funcall(status, id_to_i, 0)), io_process_pid(status));
}

static VALUE pid_of(VALUE status) {
  return INT2NUM(io_process_pid(status));
}

static VALUE pid_and_status(VALUE status) {
  return rb_assoc_new(pid_of(status), rb_last_status_get());
}

/* Waits as the arguments say. What is made of the status is returned. */
static VALUE wait_as_told(int argc, VALUE *argv, VALUE (*answer)(VALUE status)) {
  struct call call;
  VALUE result;

  if (!parse(argc, argv, &call)) return rb_call_super(argc, argv);
  VALUE status = wait_for(&call, &result);
  if (NIL_P(status)) return without_status(result);
  set_last_status(status);
  return answer(status);
}

static VALUE Process_wait(int argc, VALUE *argv, VALUE self) {
  (void)self;
  return wait_as_told(argc, argv, pid_of);
}

static VALUE Process_wait2(int argc, VALUE *argv, VALUE self) {
  (void)self;
  return wait_as_told(argc, argv, pid_and_status);
}

/* Stock does not raise: a status whose pid is -1 says that there is no such child. */
static VALUE Status_wait(int argc, VALUE *argv, VALUE self) {
  struct call call;
  VALUE result;

  (void)self;
  if (!parse(argc, argv, &call)) return rb_call_super(argc, argv);
  VALUE status = wait_for(&call, &result);
  return NIL_P(status) ? result : status;
}

static VALUE reap_all(VALUE statuses) {
  VALUE status;

  while (found_p(status = io_process_wait(-1, 0))) {
    set_last_status(status);
    rb_ary_push(statuses, rb_assoc_new(INT2NUM(io_process_pid(status)), rb_last_status_get()));
  }
  return Qnil;
}

static void keep_all(VALUE pairs) {
  for (long i = 0; i < RARRAY_LEN(pairs); i++)
    io_process_keep(RARRAY_AREF(RARRAY_AREF(pairs, i), 1));
}

/* Who is cancelled in the middle of it leaves what it had to those who wait next. */
static VALUE Process_waitall(VALUE self) {
  VALUE pairs = rb_ary_new();
  int state;

  (void)self;
  if (!ours_p(&(struct call){ -1, 0 })) return rb_call_super(0, NULL);
  rb_protect(reap_all, pairs, &state);
  if (state) {
    keep_all(pairs);
    rb_jump_tag(state);
  }
  return RARRAY_LEN(pairs) > 0 ? pairs : rb_call_super(0, NULL);
}

/* ---- $? -------------------------------------------------------------------------------------- */

static VALUE last_status(void) {
  struct backend_base *backend = backend_base_open_here();

  return backend ? backend_base_last_status(backend) : rb_last_status_get();
}

static VALUE read_last_status(ID name, VALUE *data) {
  (void)name, (void)data;
  return last_status();
}

static VALUE Process_last_status(VALUE self) {
  (void)self;
  return last_status();
}

/* Made by setting the thread's, which is not the fiber's. */
static VALUE Status_from_status_array(VALUE self, VALUE pair) {
  struct backend_base *backend = backend_base_current();
  VALUE array = rb_check_array_type(pair), before = backend_base_last_status(backend);

  (void)self;
  if (NIL_P(array) || RARRAY_LEN(array) != 2)
    rb_raise(rb_eArgError, "expected [pid, raw status], got %"PRIsVALUE, rb_inspect(pair));
  rb_last_status_set(NUM2INT(rb_ary_entry(array, 1)), NUM2PIDT(rb_ary_entry(array, 0)));
  VALUE status = rb_last_status_get();
  backend_base_show_status(backend, before);
  return status;
}

static VALUE Polyphony_process_claim(VALUE self, VALUE pid, VALUE by) {
  (void)self;
  io_process_claim(NUM2INT(pid), NUM2INT(by));
  return Qnil;
}

static VALUE Polyphony_clear_last_status(VALUE self) {
  backend_base_show_status(backend_base_current(), Qnil);
  return self;
}

static VALUE Polyphony_take_over_last_status(VALUE self) {
  rb_define_virtual_variable("$?", read_last_status, 0);
  return self;
}

/* ---- for the files in Ruby ------------------------------------------------------------------- */

static VALUE Polyphony_process_wait(VALUE self, VALUE pid, VALUE flags) {
  (void)self;
  return io_process_wait(NUM2INT(pid), NUM2INT(flags));
}

static VALUE Polyphony_process_await(VALUE self, VALUE pid) {
  (void)self;
  io_process_await(NUM2INT(pid));
  return Qnil;
}

static VALUE Polyphony_drop_limits(VALUE self) {
  cancel_scope_drop_limits(backend_base_fiber(backend_base_current()));
  return self;
}

void class_process_init(void) {
  VALUE process = rb_define_module_under(mPolyphony, "ProcessExtensions");
  VALUE status = rb_define_module_under(process, "Status");

  rb_gc_register_address(&eNoChild);
  eNoChild = rb_path2class("Errno::ECHILD");
  io_process_init();
  rb_define_method(process, "wait", Process_wait, -1);
  rb_define_method(process, "waitpid", Process_wait, -1);
  rb_define_method(process, "wait2", Process_wait2, -1);
  rb_define_method(process, "waitpid2", Process_wait2, -1);
  rb_define_method(process, "waitall", Process_waitall, 0);
  rb_define_method(process, "last_status", Process_last_status, 0);
  rb_define_method(status, "wait", Status_wait, -1);
  rb_define_method(status, "from_status_array", Status_from_status_array, 1);
  rb_define_module_function(mPolyphony, "__process_wait__", Polyphony_process_wait, 2);
  rb_define_module_function(mPolyphony, "__take_over_last_status__",
                            Polyphony_take_over_last_status, 0);
  rb_define_module_function(mPolyphony, "__clear_last_status__", Polyphony_clear_last_status, 0);
  rb_define_module_function(mPolyphony, "__process_claim__", Polyphony_process_claim, 2);
  rb_define_module_function(mPolyphony, "__drop_limits__", Polyphony_drop_limits, 0);
  rb_define_module_function(mPolyphony, "__process_await__", Polyphony_process_await, 1);
}
