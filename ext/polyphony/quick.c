/* quick.c - see quick.h */
#include "quick.h"

/* Others want something of the file system, also where it does not look like it: String#encode loads a
 * library, UNIXSocket#initialize closes what it could not connect. */
static bool computes_p(const char *name) {
  return strncmp(name, "Zlib", 4) == 0 || strcmp(name, "IO::Buffer") == 0;
}

/* Somebody calls the hook himself. A function in C has no path, and what is Ruby's own says so in it. */
static bool by_hand_p(VALUE frame) {
  VALUE path = rb_profile_frame_path(frame);

  return !NIL_P(path) && strncmp(StringValueCStr(path), "<internal:", 10) != 0;
}

bool quick_p(void) {
  VALUE frames[2], name;        /* the hook's and its caller's */
  int lines[2];

  if (rb_profile_frames(0, 2, frames, lines) < 2) return true;
  if (by_hand_p(frames[1])) return false;
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
