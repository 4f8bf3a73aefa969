/* direct_paths.c - stock methods for which the way through the scheduler is wrong or too long. Layer 2. */
#include <errno.h>
#include "backend_base.h"
#include "fd.h"
#include "io.h"
#include "stand_in.h"

/* As Ruby does it: with the path, if there is one, and the function that failed. */
NORETURN(static void fail(VALUE io, int64_t error, const char *function));

static void fail(VALUE io, int64_t error, const char *function) {
  VALUE path = compat_path(io);

  if (NIL_P(path)) rb_syserr_fail((int)-error, NULL);
  rb_exc_raise(rb_funcall(rb_eSystemCallError, rb_intern("new"), 3, path, INT2NUM((int)-error), rb_str_new_cstr(function)));
}

/* ---- not blocking ----------------------------------------------------------------------------- */

/* Bytes that a cancelled read had taken come before those that the kernel has. */
static VALUE take_ahead(int argc, const VALUE *argv, VALUE io) {
  size_t length = NUM2SIZET(argv[0]);
  VALUE text = argc > 1 && RB_TYPE_P(argv[1], T_STRING) ? argv[1] : rb_str_new(NULL, 0);

  rb_str_modify_expand(text, (long)length - (RSTRING_LEN(text) < (long)length ? RSTRING_LEN(text) : (long)length));
  rb_str_set_len(text, (long)fd_take_ahead(rb_io_descriptor(io), RSTRING_PTR(text), length));
  return text;
}

static bool buffered_p(VALUE io) {
  rb_io_t *file;

  GetOpenFile(io, file);
  return rb_io_read_pending(file);
}

static bool ahead_p(int argc, const VALUE *argv, VALUE io) {
  return fd_ahead_count && argc > 0 && RB_INTEGER_TYPE_P(argv[0]) && NUM2LONG(argv[0]) > 0 &&
         fd_has_ahead(rb_io_descriptor(io)) && !buffered_p(io);
}

struct attempt {
  struct backend_base *backend;
  int argc;
  VALUE *argv;
  int keywords;
};

static VALUE call_stock(VALUE argument) {
  struct attempt *attempt = (struct attempt *)argument;

  return rb_call_super_kw(attempt->argc, attempt->argv, attempt->keywords);
}

static VALUE end_attempt(VALUE argument) {
  ((struct backend_base *)argument)->try_only = false;
  return Qnil;
}

/* Ruby asks the scheduler's io_read here as well, and does not tell that it must not wait. */
static VALUE read_nonblock(int argc, VALUE *argv, VALUE self) {
  int keywords = rb_keyword_given_p();

  io_give_way();
  if (ahead_p(argc, argv, self)) return take_ahead(argc, argv, self);
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  if (!backend || !backend->open || NIL_P(rb_fiber_scheduler_current()))
    return rb_call_super_kw(argc, argv, keywords);
  struct attempt attempt = { backend, argc, argv, keywords };
  backend->try_only = true;
  return rb_ensure(call_stock, (VALUE)&attempt, end_attempt, (VALUE)backend);
}

static VALUE write_nonblock(int argc, VALUE *argv, VALUE self) {
  (void)self;
  int keywords = rb_keyword_given_p();

  io_give_way();
  return rb_call_super_kw(argc, argv, keywords);
}

/* ---- reading what is there -------------------------------------------------------------------- */

struct reading {
  VALUE io, text;
  size_t length;
  int64_t position;             /* -1: the file's own */
  int64_t result;
};

static VALUE read_locked(VALUE argument) {
  struct reading *reading = (struct reading *)argument;

  reading->result = io_read_memory(reading->io, RSTRING_PTR(reading->text), reading->length,
                                   reading->position);
  return Qnil;
}

/* What is odd is Ruby's to complain of. */
static bool usual_p(int argc, const VALUE *argv, int most) {
  if (argc < 1 || argc > most || !FIXNUM_P(argv[0]) || FIX2LONG(argv[0]) <= 0) return false;
  VALUE buffer = argc == most ? argv[most - 1] : Qnil;
  return NIL_P(buffer) || (RB_TYPE_P(buffer, T_STRING) && !RB_OBJ_FROZEN(buffer));
}

static VALUE room_for(VALUE buffer, size_t length) {
  if (NIL_P(buffer)) return rb_str_new(NULL, (long)length);
  if ((size_t)RSTRING_LEN(buffer) >= length) rb_str_modify(buffer);
  else rb_str_modify_expand(buffer, (long)length - RSTRING_LEN(buffer));
  return buffer;
}

static VALUE cut(VALUE text, size_t length, bool own) {
  rb_str_set_len(text, (long)length);
  if (own) rb_str_resize(text, (long)length);   /* gives back what is not used */
  return text;
}

/* The String, which is empty at the end of the file. */
static VALUE read_some(VALUE io, VALUE length, VALUE buffer, int64_t position, const char *function) {
  struct reading reading = { .io = io, .length = (size_t)FIX2LONG(length), .position = position };

  reading.text = room_for(buffer, reading.length);
  reading.result = io_read_at_once(io, RSTRING_PTR(reading.text), reading.length, position);
  if (reading.result == -EAGAIN) {
    rb_str_locktmp(reading.text);
    rb_ensure(read_locked, (VALUE)&reading, rb_str_unlocktmp, reading.text);
  }
  if (reading.result < 0) fail(io, reading.result, function);
  return cut(reading.text, (size_t)reading.result, NIL_P(buffer));
}

static VALUE unless_at_end(VALUE text) {
  if (RSTRING_LEN(text) == 0) rb_eof_error();
  return text;
}

/* Whether nothing comes before what the kernel has. Raises unless it can be read by bytes. */
static bool unbuffered_p(VALUE io) {
  rb_io_t *file;

  GetOpenFile(io, file);
  rb_io_check_byte_readable(file);
  return !rb_io_read_pending(file);
}

/* Our own forms: into the buffer at a position. */
static VALUE read_at(VALUE self, const VALUE *argv, bool to_eof) {
  rb_io_t *file;

  GetOpenFile(self, file);
  rb_io_check_byte_readable(file);
  return io_read(self, argv[1], argv[0], to_eof, NUM2LONG(argv[2]), false);
}

static VALUE IO_read(int argc, VALUE *argv, VALUE self) {
  if (argc != 3 || rb_keyword_given_p()) return rb_call_super(argc, argv);
  VALUE text = read_at(self, argv, true);
  if (!NIL_P(text) || !NIL_P(argv[0])) return text;
  return NIL_P(argv[1]) ? rb_str_new(NULL, 0) : argv[1];
}

static VALUE readpartial_at(int argc, VALUE *argv, VALUE self) {
  VALUE text = read_at(self, argv, false);

  if (NIL_P(text) && (argc == 3 || RTEST(argv[3]))) rb_eof_error();
  return text;
}

static VALUE IO_readpartial(int argc, VALUE *argv, VALUE self) {
  if ((argc == 3 || argc == 4) && !rb_keyword_given_p()) return readpartial_at(argc, argv, self);
  if (!stand_in_possible_p() || !usual_p(argc, argv, 2) || !unbuffered_p(self)) return rb_call_super(argc, argv);
  return unless_at_end(read_some(self, argv[0], argc > 1 ? argv[1] : Qnil, -1, "io_getpartial"));
}

static VALUE IO_sysread(int argc, VALUE *argv, VALUE self) {
  if (!stand_in_possible_p() || !usual_p(argc, argv, 2) || !unbuffered_p(self)) return rb_call_super(argc, argv);
  return unless_at_end(read_some(self, argv[0], argc > 1 ? argv[1] : Qnil, -1, "rb_io_sysread"));
}

static VALUE IO_pread(int argc, VALUE *argv, VALUE self) {
  bool usual = usual_p(argc, argv, 3) && argc > 1 && FIXNUM_P(argv[1]) && FIX2LONG(argv[1]) >= 0;
  rb_io_t *file;

  if (!stand_in_possible_p() || !usual) return rb_call_super(argc, argv);
  GetOpenFile(self, file);
  rb_io_check_byte_readable(file);
  return unless_at_end(read_some(self, argv[0], argc > 2 ? argv[2] : Qnil, FIX2LONG(argv[1]), "rb_io_pread"));
}

/* ---- writing ---------------------------------------------------------------------------------- */

static VALUE stock_write;       /* UnboundMethod */

struct writing {
  VALUE io, text;
  size_t done;
  int64_t position, result;
};

static const char *rest(const struct writing *writing, size_t *length) {
  *length = (size_t)RSTRING_LEN(writing->text) - writing->done;
  return RSTRING_PTR(writing->text) + writing->done;
}

/* At least some of it. Others may change the String while we wait, so then it is one with the same bytes.
 * Not before: a String that shares its bytes gets new ones when it is read into the next time. */
static void write_some(struct writing *writing) {
  size_t length;
  const char *base = rest(writing, &length);

  writing->result = writing->position < 0 ? io_write_at_once(writing->io, base, length) : -EAGAIN;
  if (writing->result == -EAGAIN) {
    writing->text = rb_str_new_frozen(writing->text);
    base = rest(writing, &length);
    writing->result = io_write_waiting(writing->io, base, length, writing->position);
  }
  if (writing->result > 0) writing->done += (size_t)writing->result;
}

static VALUE writable(VALUE io) {
  VALUE out = rb_io_get_write_io(io);
  rb_io_t *file;

  GetOpenFile(out, file);
  rb_io_check_writable(file);
  return out;
}

static VALUE write_directly(VALUE io, VALUE text, const char *function) {
  struct writing writing = { .io = io, .text = text, .position = -1 };

  while (writing.done < (size_t)RSTRING_LEN(writing.text)) {
    write_some(&writing);
    if (writing.result < 0) fail(io, writing.result, function);
  }
  RB_GC_GUARD(writing.text);
  return SIZET2NUM(writing.done);
}

static VALUE write_once(VALUE io, VALUE text, int64_t position, const char *function) {
  struct writing writing = { .io = io, .text = text, .position = position };

  write_some(&writing);
  if (writing.result < 0) fail(io, writing.result, function);
  RB_GC_GUARD(writing.text);
  return LL2NUM(writing.result);
}

/* Ruby gives the scheduler one at a time, so that a line and its end, as puts writes them, could come
 * apart when fibers take turns. Strings that do not go together are written as they are. */
static VALUE joined(int argc, const VALUE *argv) {
  VALUE text = rb_obj_as_string(argv[0]);

  if (argc == 1) return text;
  text = rb_str_dup(text);
  for (int i = 1; i < argc; i++) {
    VALUE next = rb_obj_as_string(argv[i]);
    if (!rb_enc_compatible(text, next)) return Qnil;
    rb_str_append(text, next);
  }
  return text;
}

static VALUE write_text(VALUE self, VALUE text, bool several) {
  VALUE out = writable(self);

  switch (compat_write_way(out, (size_t)RSTRING_LEN(text))) {
    case WRITE_APPENDS: return rb_call_super(1, &text);
    case WRITE_AS_IT_IS: return write_directly(out, text, several ? "io_writev" : "io_write");
    case WRITE_OTHERWISE: break;
  }
  if (stand_in_scheduled_p()) return rb_call_super(1, &text);
  struct stand_in_call call = { .method = stock_write, .receiver = self, .argc = 1, .argv = &text };
  return stand_in_call(&call);
}

static VALUE IO_write(int argc, VALUE *argv, VALUE self) {
  if (argc == 0 || !stand_in_possible_p()) return rb_call_super(argc, argv);
  VALUE text = joined(argc, argv);
  if (!NIL_P(text)) return RSTRING_LEN(text) ? write_text(self, text, argc > 1) : rb_call_super(1, &text);
  if (stand_in_scheduled_p()) return rb_call_super(argc, argv);
  struct stand_in_call call = { .method = stock_write, .receiver = self, .argc = argc, .argv = argv };
  return stand_in_call(&call);
}

static VALUE IO_syswrite(VALUE self, VALUE object) {
  VALUE text = rb_obj_as_string(object);

  if (!stand_in_possible_p() || compat_unwritten_p(rb_io_get_write_io(self))) return rb_call_super(1, &text);
  return write_once(writable(self), text, -1, "rb_io_syswrite");
}

static VALUE IO_pwrite(VALUE self, VALUE object, VALUE position) {
  VALUE text = rb_obj_as_string(object), argv[] = { text, position };

  if (!stand_in_possible_p() || !FIXNUM_P(position) || FIX2LONG(position) < 0) return rb_call_super(2, argv);
  return write_once(writable(self), text, FIX2LONG(position), "rb_io_pwrite");
}

void direct_paths_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "DirectPaths");

  rb_define_method(module, "write_nonblock", write_nonblock, -1);
  rb_gc_register_address(&stock_write);
  stock_write = rb_funcall(rb_cIO, rb_intern("instance_method"), 1, ID2SYM(rb_intern("write")));
  rb_define_method(module, "read_nonblock", read_nonblock, -1);
  rb_define_method(module, "read", IO_read, -1);
  rb_define_method(module, "readpartial", IO_readpartial, -1);
  rb_define_method(module, "sysread", IO_sysread, -1);
  rb_define_method(module, "pread", IO_pread, -1);
  rb_define_method(module, "write", IO_write, -1);
  rb_define_method(module, "syswrite", IO_syswrite, 1);
  rb_define_method(module, "pwrite", IO_pwrite, 2);
}
