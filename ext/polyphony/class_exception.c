/* class_exception.c - Polyphony::ExceptionBacktrace, which lib/polyphony/extensions puts before
 * Exception: a backtrace goes on with where the raising fiber was spun, and its parent. Layer 2.
 *
 * Ruby asks an exception for its backtrace when it raises it, to see whether there is one already.
 * That is when we learn which fiber raises. */
#include "errors.h"
#include "fiber_state.h"
#include "ractor.h"

static void note_raiser(VALUE self) {
  if (!RB_OBJ_FROZEN(self)) fiber_state_note(self, id_raising, rb_fiber_current());
}

/* The last answer, and the backtrace of Ruby's that it was made from. */
static VALUE remembered(VALUE self, VALUE raw) {
  VALUE pair = rb_attr_get(self, id_story);

  return NIL_P(pair) || rb_ary_entry(pair, 0) != raw ? Qnil : rb_ary_entry(pair, 1);
}

static VALUE tell(VALUE self, VALUE raw) {
  VALUE story = rb_funcall(self, id_tell_story, 1, raw);

  if (!RB_OBJ_FROZEN(self)) rb_ivar_set(self, id_story, rb_ary_new_from_args(2, raw, story));
  return story;
}

static VALUE Exception_backtrace(VALUE self) {
  VALUE raw = rb_call_super(0, NULL);

  if (!ractor_main_p()) return raw;
  if (NIL_P(raw)) {
    note_raiser(self);
    return raw;
  }
  VALUE story = remembered(self, raw);
  return NIL_P(story) ? tell(self, raw) : story;
}

static VALUE Exception_raising_fiber(VALUE self) { return fiber_state_noted(self, id_raising); }

static VALUE Exception_set_raising_fiber(VALUE self, VALUE fiber) {
  fiber_state_note(self, id_raising, fiber);
  return fiber;
}

static VALUE Exception_source_fiber(VALUE self) { return fiber_state_noted(self, id_source); }

static VALUE Exception_set_source_fiber(VALUE self, VALUE fiber) {
  fiber_state_note(self, id_source, fiber);
  return fiber;
}

/* Marshal takes hidden variables along. A process that knows nothing of us must be able to load
 * them, so a record is dumped as an object of Ruby's own. */
static VALUE dump_nothing(VALUE self) {
  (void)self;
  return rb_ary_new();
}

static VALUE load_nothing(VALUE self, VALUE nothing) {
  (void)nothing;
  return self;
}

/* Ruby finds the way to dump an object by its allocator: there has to be one. */
static VALUE refuse_to_allocate(VALUE klass) {
  rb_raise(rb_eTypeError, "%"PRIsVALUE" is made by spin only", klass);
}

static VALUE Exception_s_instantiate(int argc, VALUE *argv, VALUE klass) {
  VALUE error, message;
  (void)klass;

  rb_scan_args(argc, argv, "02", &error, &message);
  if (argc < 2) return error_instantiate(error);
  return error_instantiate(rb_ary_new_from_args(2, error, message));
}

void class_exception_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "ExceptionBacktrace");

  rb_define_method(module, "backtrace", Exception_backtrace, 0);
  VALUE extensions = rb_define_module_under(mPolyphony, "ExceptionExtensions");
  rb_define_method(extensions, "raising_fiber", Exception_raising_fiber, 0);
  rb_define_method(extensions, "raising_fiber=", Exception_set_raising_fiber, 1);
  rb_define_method(extensions, "source_fiber", Exception_source_fiber, 0);
  rb_define_method(extensions, "source_fiber=", Exception_set_source_fiber, 1);
  rb_define_alloc_func(cFiberState, refuse_to_allocate);
  rb_marshal_define_compat(cFiberState, rb_cArray, dump_nothing, load_nothing);
  rb_define_singleton_method(rb_eException, "instantiate", Exception_s_instantiate, -1);
}
