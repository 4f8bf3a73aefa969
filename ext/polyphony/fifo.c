/* fifo.c - see fifo.h */
#include <string.h>
#include <sys/stat.h>
#include "fifo.h"

bool fifo_p(VALUE path) {
  struct stat st;

  if (!RB_TYPE_P(path, T_STRING)) return false;
  if (memchr(RSTRING_PTR(path), 0, RSTRING_LEN(path))) return false;
  return stat(StringValueCStr(path), &st) == 0 && S_ISFIFO(st.st_mode);
}

VALUE fifo_call(ID name, int argc, const VALUE *argv) {
  VALUE helper = rb_const_get(mPolyphony, rb_intern("Fifo"));
  VALUE block = rb_block_given_p() ? rb_block_proc() : Qnil;

  return rb_funcall_with_block_kw(helper, name, argc, argv, block, rb_keyword_given_p());
}
