/* ractor.c - see ractor.h */
#include "ractor.h"
#include <ruby/ractor.h>

static rb_ractor_local_key_t key;       /* Qtrue in the main one, nil elsewhere */

bool ractor_main_p(void) { return RTEST(rb_ractor_local_storage_value(key)); }

void ractor_check(void) {
  if (ractor_main_p()) return;
  rb_raise(rb_path2class("Ractor::UnsafeError"), "fibers of Polyphony live in the main ractor only");
}

void ractor_init(void) {
  key = rb_ractor_local_storage_value_newkey();
  rb_ractor_local_storage_value_set(key, Qtrue);
}
