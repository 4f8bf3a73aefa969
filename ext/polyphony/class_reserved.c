/* class_reserved.c - descriptors that nobody may take for an IO of theirs. Layer 2.
 *
 * Daemons close all descriptors there may be, by IO.for_fd(number).close. Ruby refuses to give out its own; without
 * ours no fiber would ever go on. */
#include "backend_base.h"
#include "ractor.h"

static bool found;

static void look(struct backend_base *backend, int fd) { found = found || loop_owns_p(&backend->loop, fd); }

static void check(int argc, const VALUE *argv) {
  if (argc == 0 || !FIXNUM_P(argv[0]) || !ractor_main_p()) return;
  found = false;
  backend_base_each(look, NULL, FIX2INT(argv[0]));
  if (!found) return;
  rb_raise(rb_eArgError, "The given fd (%d) is not accessible: leave it open, fibers wait with it, so Polyphony reserves it",
           FIX2INT(argv[0]));
}

static VALUE IO_s_for_fd(int argc, VALUE *argv, VALUE klass) {
  (void)klass;
  check(argc, argv);
  return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE IO_initialize(int argc, VALUE *argv, VALUE self) {
  (void)self;
  check(argc, argv);
  return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
}

void class_reserved_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "ReservedDescriptors");

  rb_define_private_method(module, "initialize", IO_initialize, -1);
  rb_define_method(rb_define_module_under(module, "ForIO"), "for_fd", IO_s_for_fd, -1);
}
