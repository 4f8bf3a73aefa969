/* class_scope.c - Polyphony::CancelScope, the face of a cancel scope; and the timeouts. Layer 2.
 * The face may be kept after its scope has ended; it then does nothing. */
#include "cancel_scope.h"
#include "errors.h"
#include "io.h"

static VALUE cCancelScope = Qnil;

struct face {
  struct cancel_scope *scope;   /* NULL when it has ended */
  bool expired;                 /* of an ended one: it did not end by itself */
  VALUE fiber;                  /* the record that owns the scope: they are swept together */
};

static void face_mark(void *pointer) {
  rb_gc_mark_movable(((struct face *)pointer)->fiber);
}

static void face_compact(void *pointer) {
  struct face *face = pointer;

  face->fiber = rb_gc_location(face->fiber);
}

static size_t face_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct face);
}

static const rb_data_type_t face_type = {
  .wrap_struct_name = "Polyphony::CancelScope",
  .function = {
    .dmark    = face_mark,
    .dcompact = face_compact,
    .dsize    = face_memsize,
    .dfree    = RUBY_TYPED_DEFAULT_FREE,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct face *get(VALUE self) {
  return typed_data(self, &face_type);
}

static VALUE face_of(struct cancel_scope *scope) {
  struct face *face;
  VALUE self = TypedData_Make_Struct(cCancelScope, struct face, &face_type, face);

  face->scope = scope;
  RB_OBJ_WRITE(self, &face->fiber, scope->fiber->self);
  RB_OBJ_WRITE(scope->fiber->self, &scope->face, self);
  return self;
}

static void ended(VALUE self) {
  struct face *face = get(self);

  face->expired = face->scope->exception != Qundef;
  face->scope = NULL;
}

static VALUE CancelScope_reset(VALUE self) {
  struct face *face = get(self);

  if (face->scope) cancel_scope_reset(face->scope);
  return self;
}

static VALUE CancelScope_cancel(VALUE self) {
  struct face *face = get(self);

  if (face->scope) cancel_scope_cancel(face->scope);
  return self;
}

static VALUE CancelScope_active_p(VALUE self) {
  struct cancel_scope *scope = get(self)->scope;

  return scope && scope->exception == Qundef ? Qtrue : Qfalse;
}

static VALUE CancelScope_expired_p(VALUE self) {
  struct face *face = get(self);

  return (face->scope ? face->scope->exception != Qundef : face->expired) ? Qtrue : Qfalse;
}

/* For Timeout: a mask around it holds for it. */
static VALUE CancelScope_obey_masks(VALUE self) {
  struct cancel_scope *scope = get(self)->scope;

  if (scope) scope->maskable = true;
  return self;
}

/* Whether it has expired, and a mask or shield holds that back. */
static VALUE CancelScope_held_back_p(VALUE self) {
  struct cancel_scope *scope = get(self)->scope;

  if (!scope || scope->exception == Qundef) return Qfalse;
  return cancel_scope_held_p(scope->fiber, scope->exception) ? Qtrue : Qfalse;
}

static VALUE yield_face(VALUE argument, struct cancel_scope *scope) {
  (void)argument;
  return rb_yield(face_of(scope));
}

static VALUE run(VALUE seconds, VALUE spec, VALUE move_on_value) {
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "a timeout needs a block to run");
  int64_t period = io_period(seconds);
  bool plain = rb_proc_arity(rb_block_proc()) == 0;

  return cancel_scope_run(period, spec, move_on_value, plain ? cancel_scope_yield : yield_face,
                          Qnil);
}

static VALUE CancelScope_s_cancel_after(VALUE klass, VALUE seconds, VALUE spec) {
  (void)klass;
  error_check(spec);
  return run(seconds, spec, Qnil);
}

static VALUE CancelScope_s_move_on_after(VALUE klass, VALUE seconds, VALUE value) {
  (void)klass;
  return run(seconds, Qundef, value);
}

static VALUE CancelScope_s_shield(VALUE klass) {
  (void)klass;
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "shield needs a block to run");
  return cancel_scope_shield(cancel_scope_yield, Qnil);
}

void class_scope_init(void) {
  rb_gc_register_address(&cCancelScope);
  cCancelScope = rb_define_class_under(mPolyphony, "CancelScope", rb_cObject);
  rb_undef_alloc_func(cCancelScope);
  cancel_scope_ended = ended;
  rb_define_method(cCancelScope, "reset", CancelScope_reset, 0);
  rb_define_method(cCancelScope, "__obey_masks", CancelScope_obey_masks, 0);
  rb_define_method(cCancelScope, "__held_back?", CancelScope_held_back_p, 0);
  rb_define_method(cCancelScope, "cancel", CancelScope_cancel, 0);
  rb_define_method(cCancelScope, "active?", CancelScope_active_p, 0);
  rb_define_method(cCancelScope, "expired?", CancelScope_expired_p, 0);
  rb_define_singleton_method(cCancelScope, "shield", CancelScope_s_shield, 0);
  rb_define_singleton_method(cCancelScope, "cancel_after", CancelScope_s_cancel_after, 2);
  rb_define_singleton_method(cCancelScope, "move_on_after", CancelScope_s_move_on_after, 2);
}
