/* ids.c - see ids.def */
#include "polyphony.h"

#define ID_ENTRY(name, string) ID id_##name;
#include "ids.def"
#undef ID_ENTRY

VALUE mPolyphony = Qnil;
VALUE cFiber = Qnil;

void ids_init(void) {
#define ID_ENTRY(name, string) id_##name = rb_intern(string);
#include "ids.def"
#undef ID_ENTRY
  rb_gc_register_address(&mPolyphony);
  rb_gc_register_address(&cFiber);
  mPolyphony = rb_define_module("Polyphony");
  cFiber = rb_path2class("Fiber");
}
