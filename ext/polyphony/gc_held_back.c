/* gc_held_back.c - see gc_held_back.h */
#include "gc_held_back.h"

static VALUE go_on(VALUE before) { return RTEST(before) ? Qnil : rb_gc_enable(); }

VALUE gc_held_back(VALUE (*function)(VALUE), VALUE argument) {
  VALUE before = rb_gc_disable();       /* finishes what has been begun; whether it was disabled before */

  return rb_ensure(function, argument, go_on, before);
}
