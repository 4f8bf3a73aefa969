/* class_thread.c - what Thread gains in C: its backend and main fiber. Layer 2. */
#include "backend_base.h"
#include "clock.h"
#include "errors.h"
#include "io.h"

static struct backend_base *backend_of(VALUE thread) {
  if (thread == rb_thread_current()) return backend_base_current();
  return backend_base_of_thread(thread);
}

/* Another thread's backend is nil until it has waited once: it is opened by its own thread. */
static VALUE Thread_backend(VALUE self) {
  struct backend_base *backend = backend_of(self);

  return backend ? backend->self : Qnil;
}

static VALUE Thread_backend_p(VALUE self) {
  struct backend_base *backend = backend_base_of_thread(self);

  return backend && backend->open ? Qtrue : Qfalse;
}

static VALUE Thread_note_root(VALUE self) {
  backend_base_note_root();
  return self;
}

static VALUE Thread_s_backend(VALUE klass) {
  (void)klass;
  return backend_base_current()->self;
}

static VALUE Thread_main_fiber(VALUE self) {
  struct backend_base *backend = backend_of(self);

  if (backend && !backend->root && self == rb_thread_current()) backend_base_fiber(backend);
  return backend && backend->root ? backend->root->fiber : Qnil;
}

static VALUE Thread_switch_fiber(VALUE self) {
  (void)self;
  return backend_base_suspend(backend_base_current(), SWITCH_MAY_RETURN);
}

static VALUE Thread_set_idle_gc_period(VALUE self, VALUE seconds) {
  struct backend_base *backend = backend_of(self);

  if (!backend) rb_raise(rb_eThreadError, "the thread has no backend yet");
  backend_base_set_idle_gc(backend, io_nanoseconds(seconds));
  return seconds;
}

static VALUE Thread_on_idle(VALUE self) {
  struct backend_base *backend = backend_of(self);

  if (!backend) rb_raise(rb_eThreadError, "the thread has no backend yet");
  RB_OBJ_WRITE(backend->self, &backend->idle_proc,
               rb_block_given_p() ? rb_block_proc() : Qnil);
  return self;
}

void class_thread_init(void) {
  rb_define_method(rb_cThread, "backend", Thread_backend, 0);
  rb_define_method(rb_cThread, "__polyphony_backend?", Thread_backend_p, 0);
  rb_define_method(rb_cThread, "__polyphony_note_root", Thread_note_root, 0);
  rb_define_singleton_method(rb_cThread, "backend", Thread_s_backend, 0);
  rb_define_method(rb_cThread, "main_fiber", Thread_main_fiber, 0);
  rb_define_method(rb_cThread, "switch_fiber", Thread_switch_fiber, 0);
  rb_define_method(rb_cThread, "idle_gc_period=", Thread_set_idle_gc_period, 1);
  rb_define_method(rb_cThread, "on_idle", Thread_on_idle, 0);
}
