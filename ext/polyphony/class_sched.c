/* class_sched.c - Polyphony::Sched#resched, the part of a scheduler object that is hot. The rest is in
 * lib/polyphony/core/sched.rb. Layer 2. */
#include "errors.h"
#include "turn.h"

static ID id_pause;

struct sched {
  bool running;                 /* somebody runs it: its fibers go round in the queue of their thread */
};

static const rb_data_type_t sched_type = {
  .wrap_struct_name = "Polyphony::Sched",
  .function = { .dfree = RUBY_DEFAULT_FREE },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Sched_allocate(VALUE klass) {
  struct sched *sched;

  return TypedData_Make_Struct(klass, struct sched, &sched_type, sched);
}

static struct sched *get(VALUE self) {
  return typed_data(self, &sched_type);
}

static VALUE Sched_set_running(VALUE self, VALUE running) {
  get(self)->running = RTEST(running);
  return running;
}

static VALUE Sched_running(VALUE self) { return get(self)->running ? Qtrue : Qfalse; }

/* Says that the running fiber is one of its own. Returns it. */
static VALUE Sched_enlist(VALUE self) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());

  FIBER_WRITE(fiber, sched, self);
  return fiber->fiber;
}

static bool own_p(VALUE self) { return backend_base_fiber(backend_base_current())->sched == self; }

NORETURN(static void refuse(void));

static void refuse(void) {
  rb_raise(eFiberError, "resched is for fibers pushed to this scheduler, and %"PRIsVALUE" is not one", rb_fiber_current());
}

/* The run may be over when the fiber comes back: then it waits for the next one. */
static VALUE resched_the_long_way(VALUE self, struct sched *sched) {
  if (!own_p(self)) refuse();
  if (sched->running) backend_base_snooze(backend_base_current());
  if (!sched->running) rb_funcall(self, id_pause, 0);
  return self;
}

static inline VALUE resched(VALUE self) {
  struct sched *sched = RTYPEDDATA_DATA(self);  /* it is one: it has the method */
  struct fiber_state *fiber = backend_base_known_here(__builtin_frame_address(0));

  if (RB_UNLIKELY(!fiber || fiber->sched != self || !sched->running || turn_at_once(fiber) == Qundef))
    return resched_the_long_way(self, sched);
  if (RB_UNLIKELY(!sched->running)) rb_funcall(self, id_pause, 0);
  return self;
}

static VALUE Sched_resched(VALUE self) { return resched(self); }

/* As a block it is called without a method, and without a block of Ruby's. */
static VALUE resched_block(RB_BLOCK_CALL_FUNC_ARGLIST(first, self)) {
  (void)first, (void)argc, (void)argv, (void)blockarg;
  return resched(self);
}

static VALUE Sched_to_proc(VALUE self) { return rb_proc_new(resched_block, self); }

void class_sched_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "Sched", rb_cObject);

  id_pause = rb_intern("pause");
  rb_define_alloc_func(klass, Sched_allocate);
  rb_undef_method(klass, "initialize_copy");  /* fibers cannot be copied */
  rb_define_method(klass, "resched", Sched_resched, 0);
  rb_define_method(klass, "to_proc", Sched_to_proc, 0);
  rb_define_private_method(klass, "enlist", Sched_enlist, 0);
  rb_define_private_method(klass, "running=", Sched_set_running, 1);
  rb_define_private_method(klass, "running?", Sched_running, 0);
}
