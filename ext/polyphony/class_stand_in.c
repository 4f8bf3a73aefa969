/* class_stand_in.c - Polyphony::StandIn.for puts a trampoline before stock methods. Layer 2.
 *
 * In C, because a method written in Ruby would have its own $_ and its own lines in backtraces. A C
 * function does not learn which module it was called through, so there is one for each. */
#include <string.h>
#include "fifo.h"
#include "io.h"
#include "loading.h"
#include "stand_in.h"

enum { OWNERS_MAX = 64 };

enum last_line { KEEPS, SETS, SETS_IN_BLOCK };

/* What must be in Ruby's buffer of the IO for a method not to wait. */
enum need { UNKNOWN, BYTE, CHARACTER, LINE, LENGTH };

enum { LONGEST_CHARACTER = 8 };

struct owner {
  VALUE stock;                  /* Hash: name => UnboundMethod */
  enum last_line last_line;     /* what the methods do to $_ */
  enum need need;
  bool takes;                   /* they gather what they read */
  int text, path;               /* which argument is written with to_s, and which names a file; or -1 */
  bool turns;                   /* they do not switch unless they have to wait */
  bool waits;
};

static struct owner owners[OWNERS_MAX];
static int owner_count;

static void set_last_line(int argc, const VALUE *argv) {
  if (argc > 0) rb_lastline_set(argv[0]);
}

/* Objects are asked for what they are in the fiber of the caller, as they would be without us. */
static void convert(const struct owner *owner, int argc, const VALUE *from, VALUE *to) {
  MEMCPY(to, from, VALUE, argc);
  if (owner->path < argc) to[owner->path] = rb_get_path(from[owner->path]);
  if (owner->text >= 0 && owner->text < argc) to[owner->text] = rb_obj_as_string(from[owner->text]);
}

static VALUE call_stock(VALUE call) { return stand_in_call((struct stand_in_call *)call); }

static VALUE raise_at_end(VALUE nothing, VALUE error) {
  rb_lastline_set(nothing);
  rb_exc_raise(error);
}

static VALUE call_in_stand_in(const struct owner *owner, struct stand_in_call *call) {
  bool in_block = owner->last_line == SETS_IN_BLOCK && rb_block_given_p();

  if (in_block) call->before_block = set_last_line;
  if (owner->last_line != SETS) {
    VALUE result = stand_in_call(call);
    if (in_block) rb_lastline_set(Qnil);
    return result;
  }
  VALUE line = rb_rescue2(call_stock, (VALUE)call, raise_at_end, Qnil, rb_eEOFError, (VALUE)0);
  rb_lastline_set(line);
  return line;
}

/* With the usual end of a line, and at most keywords. */
static bool plain_line_p(int argc) {
  return rb_rs == rb_default_rs && (argc == 0 || (argc == 1 && rb_keyword_given_p()));
}

static bool at_hand_p(enum need need, int argc, const VALUE *argv, VALUE io) {
  size_t length;
  const char *bytes = need == UNKNOWN ? NULL : compat_read_buffer(io, &length);

  if (!bytes) return false;
  switch (need) {
    case BYTE: return true;
    case CHARACTER: return length >= LONGEST_CHARACTER && compat_plain_p(io);
    case LINE: return plain_line_p(argc) && memchr(bytes, '\n', length) && compat_plain_p(io);
    case LENGTH: return argc > 0 && FIXNUM_P(argv[0]) && FIX2LONG(argv[0]) <= (long)length;
    default: return false;
  }
}

/* Kernel's words and ARGF read from there unless there are files. */
static VALUE read_from(VALUE self) { return RB_TYPE_P(self, T_FILE) ? self : rb_stdin; }

struct arguments {
  int argc;
  VALUE *argv;
  int keywords;
};

static VALUE call_super(VALUE argument) {
  struct arguments *arguments = (struct arguments *)argument;

  return rb_call_super_kw(arguments->argc, arguments->argv, arguments->keywords);
}

/* Ruby asks the scheduler, so it is called right here. */
static VALUE call_here(const struct owner *owner, int argc, VALUE *argv, VALUE self, bool scheduled) {
  struct arguments arguments = { argc, argv, rb_keyword_given_p() };
  struct intake intake;

  if (!owner->takes || !scheduled || at_hand_p(owner->need, argc, argv, self)) return call_super((VALUE)&arguments);
  intake_begin(&intake, read_from(self));
  return intake_during(&intake, call_super, (VALUE)&arguments);
}

static VALUE call_there(const struct owner *owner, int argc, VALUE *argv, VALUE self) {
  struct intake intake;
  struct stand_in_call call = {
    .method = rb_hash_aref(owner->stock, ID2SYM(rb_frame_this_func())),
    .receiver = self,
    .argc = argc,
    .argv = argv,
    .keywords = rb_keyword_given_p(),
    .intake = owner->takes ? &intake : NULL,
  };

  if (owner->takes) intake_begin(&intake, read_from(self));
  return call_in_stand_in(owner, &call);
}

/* A file may be a FIFO in any fiber. */
static VALUE call_with_path(const struct owner *owner, int argc, VALUE *argv, VALUE self, bool wanted) {
  if (owner->path < argc && fifo_p(argv[owner->path])) return fifo_call(rb_frame_this_func(), argc, argv);
  return wanted ? call_there(owner, argc, argv, self) : call_here(owner, argc, argv, self, true);
}

static VALUE trampoline(struct owner *owner, int argc, VALUE *argv, VALUE self) {
  if (owner->turns) io_give_way();
  bool wanted = owner->waits && stand_in_wanted_p() && !at_hand_p(owner->need, argc, argv, self) &&
                !(RB_TYPE_P(self, T_FILE) && loading_p(self));
  bool scheduled = !wanted && stand_in_scheduled_p();

  if (owner->path < 0 || !(wanted || scheduled))
    return wanted ? call_there(owner, argc, argv, self) : call_here(owner, argc, argv, self, scheduled);
  VALUE memory, *converted = ALLOCV_N(VALUE, memory, argc);
  convert(owner, argc, argv, converted);
  VALUE result = call_with_path(owner, argc, converted, self, wanted);
  ALLOCV_END(memory);
  return result;
}

#define EACH_OWNER(DO) \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) \
  DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) \
  DO(28) DO(29) DO(30) DO(31) DO(32) DO(33) DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) \
  DO(41) DO(42) DO(43) DO(44) DO(45) DO(46) DO(47) DO(48) DO(49) DO(50) DO(51) DO(52) DO(53) \
  DO(54) DO(55) DO(56) DO(57) DO(58) DO(59) DO(60) DO(61) DO(62) DO(63)

#define TRAMPOLINE(n) \
  static VALUE trampoline_##n(int argc, VALUE *argv, VALUE self) { \
    return trampoline(&owners[n], argc, argv, self); \
  }
EACH_OWNER(TRAMPOLINE)

#define ENTRY(n) trampoline_##n,
static VALUE (*const trampolines[])(int, VALUE *, VALUE) = { EACH_OWNER(ENTRY) };

static struct owner *owner_new(void) {
  if (owner_count == OWNERS_MAX)
    rb_raise(rb_eRuntimeError, "stand-ins for more than %d modules: raise OWNERS_MAX", OWNERS_MAX);
  struct owner *owner = &owners[owner_count++];
  owner->stock = rb_hash_new();
  rb_gc_register_address(&owner->stock);
  return owner;
}

static void define(VALUE before, VALUE module, struct owner *owner, VALUE name) {
  ID id = rb_sym2id(name);
  bool private = RTEST(rb_funcall(module, rb_intern("private_method_defined?"), 1, name));

  rb_hash_aset(owner->stock, name, rb_funcall(module, rb_intern("instance_method"), 1, name));
  if (private) rb_define_private_method(before, rb_id2name(id), trampolines[owner - owners], -1);
  else rb_define_method(before, rb_id2name(id), trampolines[owner - owners], -1);
}

static bool defined_p(VALUE module, VALUE name) {
  return RTEST(rb_funcall(module, rb_intern("method_defined?"), 1, name)) ||
         RTEST(rb_funcall(module, rb_intern("private_method_defined?"), 1, name));
}

static enum last_line last_line_option(VALUE value) {
  if (value == Qundef || !RTEST(value)) return KEEPS;
  return value == Qtrue ? SETS : SETS_IN_BLOCK;
}

static enum need need_option(VALUE value) {
  static const char *const names[] = { "byte", "character", "line", "length" };

  if (value == Qundef) return UNKNOWN;
  for (int i = 0; i < 4; i++) if (rb_sym2id(value) == rb_intern(names[i])) return BYTE + i;
  rb_raise(rb_eArgError, "needs: must be :byte, :character, :line or :length, got %"PRIsVALUE, value);
}

static int index_option(VALUE value) { return value == Qundef ? -1 : NUM2INT(value); }

static void take_options(struct owner *owner, VALUE options) {
  ID keywords[] = { rb_intern("last_line"), rb_intern("needs"), rb_intern("text"), rb_intern("path"),
                    rb_intern("takes"), rb_intern("turns"), rb_intern("waits") };
  VALUE values[] = { Qundef, Qundef, Qundef, Qundef, Qundef, Qundef, Qundef };

  if (!NIL_P(options)) rb_get_kwargs(options, keywords, 0, 7, values);
  owner->last_line = last_line_option(values[0]);
  owner->need = need_option(values[1]);
  owner->text = index_option(values[2]);
  owner->path = index_option(values[3]);
  owner->takes = values[4] == Qtrue;
  owner->turns = values[5] == Qtrue;
  owner->waits = values[6] != Qfalse;   /* Qundef: not given */
}

/* Names that this Ruby does not have are left out. */
static VALUE StandIn_for(int argc, VALUE *argv, VALUE self) {
  VALUE module, names, options;

  rb_scan_args(argc, argv, "1*:", &module, &names, &options);
  struct owner *owner = owner_new();
  take_options(owner, options);
  VALUE before = rb_module_new();
  rb_ext_ractor_safe(true);     /* see polyphony_ext.c */
  for (long i = 0; i < RARRAY_LEN(names); i++) {
    VALUE name = RARRAY_AREF(names, i);
    if (defined_p(module, name)) define(before, module, owner, name);
  }
  rb_ext_ractor_safe(false);
  rb_prepend_module(module, before);
  (void)self;
  return before;
}

static VALUE StandIn_wanted_p(VALUE self) {
  (void)self;
  return stand_in_wanted_p() ? Qtrue : Qfalse;
}

static VALUE StandIn_possible_p(VALUE self) {
  (void)self;
  return stand_in_possible_p() ? Qtrue : Qfalse;
}

static VALUE StandIn_call(int argc, VALUE *argv, VALUE self) {
  (void)self;
  rb_check_arity(argc, 2, UNLIMITED_ARGUMENTS);
  struct stand_in_call call = {
    .method = argv[0],
    .receiver = argv[1],
    .argc = argc - 2,
    .argv = argv + 2,
    .keywords = rb_keyword_given_p(),
  };
  return stand_in_call(&call);
}

static VALUE yield_nothing(VALUE block) { return rb_proc_call_with_block(block, 0, NULL, Qnil); }

static VALUE StandIn_run(VALUE self) {
  (void)self;
  return stand_in_run(yield_nothing, rb_block_proc());
}

void class_stand_in_init(void) {
  stand_in_init();
  VALUE module = rb_const_get(mPolyphony, rb_intern("StandIn"));
  rb_define_singleton_method(module, "for", StandIn_for, -1);
  rb_define_singleton_method(module, "wanted?", StandIn_wanted_p, 0);
  rb_define_singleton_method(module, "possible?", StandIn_possible_p, 0);
  rb_define_singleton_method(module, "call", StandIn_call, -1);
  rb_define_singleton_method(module, "run", StandIn_run, 0);
}
