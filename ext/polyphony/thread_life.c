/* thread_life.c - see thread_life.h */
#include "scheduler.h"
#include "thread_life.h"
#include "errors.h"
#include "fiber_life.h"
#include "interrupt_mask.h"
#include "io.h"
#include "telemetry.h"

static VALUE cThreadLife = Qnil;

static void life_mark(void *pointer) {
  struct thread_life *life = pointer;

  rb_gc_mark_movable(life->block);
  rb_gc_mark_movable(life->masks);
  rb_gc_mark_movable(life->context);
  waitlist_mark(&life->joiners);
}

static void life_compact(void *pointer) {
  struct thread_life *life = pointer;

  life->block = rb_gc_location(life->block);
  life->masks = rb_gc_location(life->masks);
  life->context = rb_gc_location(life->context);
}

static void life_free(void *pointer) {
  waitlist_free(&((struct thread_life *)pointer)->joiners);
  xfree(pointer);
}

static size_t life_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct thread_life);
}

static const rb_data_type_t life_type = {
  .wrap_struct_name = "Polyphony::ThreadLife",
  .function = {
    .dmark    = life_mark,
    .dcompact = life_compact,
    .dsize    = life_memsize,
    .dfree    = life_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct thread_life *get(VALUE self) {
  return typed_data(self, &life_type);
}

VALUE thread_life_new(VALUE block, VALUE masks) {
  struct thread_life *life;
  VALUE context = telemetry_context();
  VALUE self = TypedData_Make_Struct(cThreadLife, struct thread_life, &life_type, life);

  waitlist_init(&life->joiners);
  RB_OBJ_WRITE(self, &life->block, block);
  RB_OBJ_WRITE(self, &life->masks, masks);
  RB_OBJ_WRITE(self, &life->context, context);
  return self;
}

void thread_life_attach(VALUE thread, VALUE life) {
  rb_ivar_set(thread, id_life, life);
  rb_ivar_set(life, id_thread, thread);  /* for reports: whoever joins waits for the life */
}

struct thread_life *thread_life_of(VALUE thread) {
  VALUE self = rb_ivar_get(thread, id_life);

  return NIL_P(self) ? NULL : get(self);
}

/* ---- running --------------------------------------------------------------------------------- */

struct run {
  VALUE self;
  struct thread_life *life;
  int argc;
  const VALUE *argv;
  int keywords;
  VALUE value;
};

/* Fibers of Fiber.schedule are waited for, as in stock Ruby. */
static VALUE call_block(VALUE argument) {
  struct run *run = (struct run *)argument;

  if (run->life->told_to_end) return Qnil;
  VALUE value = rb_proc_call_kw(run->life->block, rb_ary_new_from_values(run->argc, run->argv),
                                run->keywords);
  scheduler_run();              /* as Ruby itself would a little later, when we have closed the backend */
  return value;
}

static VALUE take_value(VALUE nothing, VALUE error) {
  (void)nothing;
  return rb_funcall(error, id_value, 0);
}

static VALUE call_block_in_context(VALUE argument) {
  struct thread_life *life = ((struct run *)argument)->life;

  if (NIL_P(life->context)) return call_block(argument);
  return telemetry_run(life->context, Qnil, call_block, argument);
}

static VALUE run_block(VALUE argument) {
  return rb_rescue2(call_block_in_context, argument, take_value, Qnil, eMoveOn, eTerminate, (VALUE)0);
}

static VALUE end_children(VALUE argument) {
  struct backend_base *backend = (struct backend_base *)argument;

  return fiber_life_end_children(backend->root, NIL_P(rb_errinfo()));
}

/* A kill that comes while it waits for children leaves none of them behind: Ruby kills once. */
static VALUE wind_up(VALUE nothing) {
  int killed = 0, state;
  VALUE error;

  scheduler_close_others();
  struct backend_base *backend = backend_base_open_here();
  if (!backend || !backend->root) return Qnil;
  while (error = rb_protect(end_children, (VALUE)backend, &state), state) killed = state;
  if (killed) rb_jump_tag(killed);
  if (!NIL_P(error)) rb_exc_raise(error);
  return nothing;
}

/* From here on it tells its end: a kill may come in the first of these calls. */
static VALUE run_and_wind_up(VALUE argument) {
  struct run *run = (struct run *)argument;

  run->life->begun = true;
  thread_life_attach(rb_thread_current(), run->self);
  backend_base_note_root();
  scheduler_install_here();
  if (!NIL_P(run->life->masks)) interrupt_mask_inherit(run->life->masks);
  return run->value = rb_ensure(run_block, argument, wind_up, Qnil);
}

/* Nothing here looks at interrupts before the joiners are told, so that a kill cannot keep it from
 * them. They then wait in Ruby's own join for the little that is left. */
static VALUE finish(VALUE argument) {
  struct run *run = (struct run *)argument;
  struct backend_base *backend = backend_base_open_here();
  VALUE error = rb_errinfo();
  bool failed = RTEST(rb_obj_is_kind_of(error, rb_eException));

  run->life->over = true;
  waitlist_wake_all(&run->life->joiners, Qtrue);
  if (!backend) return Qnil;
  backend_base_finalize(backend);
  if (backend->root) fiber_life_conclude(backend->root, failed ? error : run->value, failed);
  return Qnil;
}

/* The block of every thread of ours. Not a Ruby one: it would add its own lines to backtraces. */
static VALUE thread_main(RB_BLOCK_CALL_FUNC_ARGLIST(first, self)) {
  struct thread_life *life = get(self);
  struct run run = { self, life, argc, argv, rb_keyword_given_p(), Qnil };
  (void)first, (void)blockarg;

  VALUE value = rb_ensure(run_and_wind_up, (VALUE)&run, finish, (VALUE)&run);
  RB_GC_GUARD(self);
  return value;
}

VALUE thread_life_proc(VALUE life) { return rb_proc_new(thread_main, life); }

/* ---- waiting for it --------------------------------------------------------------------------- */

VALUE thread_life_await(VALUE thread, VALUE seconds) {
  VALUE self = rb_ivar_get(thread, id_life);
  struct thread_life *life = get(self);
  bool expired = false;

  if (life->over) return Qtrue;
  if (NIL_P(seconds)) waitlist_park(&life->joiners, self, "a thread to end");
  else waitlist_park_for(&life->joiners, self, "a thread to end", io_period(seconds), &expired);
  RB_GC_GUARD(self);
  return expired ? Qfalse : Qtrue;
}

void thread_life_init(void) {
  rb_gc_register_address(&cThreadLife);
  cThreadLife = rb_define_class_under(mPolyphony, "ThreadLife", rb_cObject);
  rb_undef_alloc_func(cThreadLife);
  rb_funcall(mPolyphony, rb_intern("private_constant"), 1, ID2SYM(rb_intern("ThreadLife")));
}
