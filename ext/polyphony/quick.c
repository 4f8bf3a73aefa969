/* quick.c - see quick.h */
#include "quick.h"

/* Whose methods look at files; and those which load a library when they are first needed, as
 * String#encode and String#unicode_normalize do. */
static bool files_p(const char *name) {
  static const char *const names[] = {
    "IO", "File", "File::Stat", "FileTest", "Dir", "Kernel", "ARGF.class", "Process", "Object", "Module",
    "String", "Symbol", "Regexp", "Encoding", "Encoding::Converter",
  };

  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

/* A function in C has no path, and parts of Ruby that are written in Ruby have one that says so. */
static bool in_c_p(VALUE frame) {
  VALUE path = rb_profile_frame_path(frame);

  return NIL_P(path) || strncmp(StringValueCStr(path), "<internal:", 10) == 0;
}

bool quick_p(void) {
  enum { HOOK = 1 };
  VALUE frame, name;
  int line;

  if (rb_profile_frames(HOOK, 1, &frame, &line) < 1 || !in_c_p(frame)) return true;
  name = rb_profile_frame_classpath(frame);
  return !RB_TYPE_P(name, T_STRING) || files_p(StringValueCStr(name));
}

static VALUE call_it(RB_BLOCK_CALL_FUNC_ARGLIST(fiber, work)) {
  (void)fiber, (void)argc, (void)argv, (void)blockarg;
  return rb_funcallv(work, id_call, 0, NULL);
}

/* In a fiber that is not a blocking one Ruby would ask again. */
void quick_call(VALUE work) {
  rb_block_call(cFiber, id_blocking, 0, NULL, call_it, work);
}
