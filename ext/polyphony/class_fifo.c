/* class_fifo.c - stock methods that open a file, before which we look whether it is a FIFO. Layer 2.
 * Those that do more than open are in class_stand_in.c. */
#include "fifo.h"
#include "stand_in.h"

/* The path if it names a FIFO and others could run while it is opened; else Qnil. */
static VALUE waiting_path(int argc, const VALUE *argv) {
  if (argc == 0 || !stand_in_possible_p()) return Qnil;
  VALUE path = argv[0];
  if (!RB_TYPE_P(path, T_STRING)) {
    if (RB_INTEGER_TYPE_P(path) || !rb_respond_to(path, rb_intern("to_path"))) return Qnil;
    path = rb_get_path(path);
  }
  return fifo_p(path) ? path : Qnil;
}

static VALUE open_elsewhere(ID name, VALUE receiver, VALUE path, int argc, const VALUE *argv) {
  VALUE memory, *arguments = ALLOCV_N(VALUE, memory, argc + 1);

  arguments[0] = receiver;
  arguments[1] = path;
  MEMCPY(arguments + 2, argv + 1, VALUE, argc - 1);
  VALUE result = fifo_call(name, argc + 1, arguments);
  ALLOCV_END(memory);
  return result;
}

#define OPENING(function, name) \
  static VALUE function(int argc, VALUE *argv, VALUE self) { \
    VALUE path = waiting_path(argc, argv); \
    if (NIL_P(path)) return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS); \
    return open_elsewhere(rb_intern(name), self, path, argc, argv); \
  }
OPENING(open_file, "initialize_file")
OPENING(open_by_word, "open")
OPENING(open_descriptor, "sysopen")

static VALUE Fifo_s_prepend(VALUE self) {
  VALUE file = rb_module_new(), word = rb_module_new(), descriptor = rb_module_new();

  rb_ext_ractor_safe(true);     /* see polyphony_ext.c */
  rb_define_private_method(file, "initialize", open_file, -1);
  rb_prepend_module(rb_cFile, file);
  rb_define_private_method(word, "open", open_by_word, -1);
  rb_prepend_module(rb_mKernel, word);
  rb_define_method(descriptor, "sysopen", open_descriptor, -1);
  rb_prepend_module(rb_singleton_class(rb_cIO), descriptor);
  VALUE function = rb_module_new();
  rb_define_method(function, "open", open_by_word, -1);
  rb_prepend_module(rb_singleton_class(rb_mKernel), function);
  rb_ext_ractor_safe(false);
  return self;
}

void class_fifo_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "Fifo");

  rb_define_singleton_method(module, "prepend_everywhere", Fifo_s_prepend, 0);
}
