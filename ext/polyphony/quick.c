/* quick.c - see quick.h */
#include "quick.h"

/* Others want something of the file system, also where it does not look like it: String#encode loads a
 * library, UNIXSocket#initialize closes what it could not connect. */
static bool computes_p(const char *name) {
  return strncmp(name, "Zlib", 4) == 0 || strcmp(name, "IO::Buffer") == 0;
}

/* Somebody calls the hook himself: a Proc of Ruby's own has no place. */
static bool by_hand_p(VALUE work) {
  return RTEST(rb_obj_is_proc(work)) && !NIL_P(rb_funcallv(work, id_source_location, 0, NULL));
}

bool quick_p(VALUE work) {
  VALUE frames[2], name;        /* the hook's and its caller's */
  int lines[2];

  if (by_hand_p(work)) return false;
  if (rb_profile_frames(0, 2, frames, lines) < 2) return true;
  name = rb_profile_frame_classpath(frames[1]);
  return !RB_TYPE_P(name, T_STRING) || !computes_p(StringValueCStr(name));
}

static VALUE call_it(RB_BLOCK_CALL_FUNC_ARGLIST(fiber, work)) {
  (void)fiber, (void)argc, (void)argv, (void)blockarg;
  return rb_funcallv(work, id_call, 0, NULL);
}

/* In a fiber that is not a blocking one Ruby would ask again. Ruby's own code closes a file in the middle of a
 * raise, say if connecting to it has failed, and goes on with the exception that it finds. */
void quick_call(VALUE work) {
  VALUE error = rb_errinfo();

  rb_block_call(cFiber, id_blocking, 0, NULL, call_it, work);
  if (RTEST(rb_obj_is_kind_of(error, rb_eException))) rb_set_errinfo(error);
}
