/* class_stand_in.c - Polyphony::StandIn.for puts a trampoline before stock methods. Layer 2.
 *
 * In C, because a method written in Ruby would have its own $_ and its own lines in backtraces. A C
 * function does not learn which module it was called through, so there is one for each. */
#include "io.h"
#include "stand_in.h"

enum { OWNERS_MAX = 64 };

struct owner {
  VALUE stock;                  /* Hash: name => UnboundMethod */
  bool last_line;               /* they set $_ */
  bool turns;                   /* they do not switch unless they have to wait */
  bool waits;
};

static struct owner owners[OWNERS_MAX];
static int owner_count;

static void set_last_line(int argc, const VALUE *argv) {
  if (argc > 0) rb_lastline_set(argv[0]);
}

static VALUE trampoline(struct owner *owner, int argc, VALUE *argv, VALUE self) {
  int keywords = rb_keyword_given_p();

  if (owner->turns) io_give_way();
  if (!owner->waits || !stand_in_wanted_p()) return rb_call_super_kw(argc, argv, keywords);

  VALUE name = ID2SYM(rb_frame_this_func());
  struct stand_in_call call = {
    .method = rb_hash_aref(owner->stock, name),
    .receiver = self,
    .argc = argc,
    .argv = argv,
    .keywords = keywords,
    .before_block = owner->last_line ? set_last_line : NULL,
  };
  VALUE result = stand_in_call(&call);
  if (owner->last_line) rb_lastline_set(rb_block_given_p() ? Qnil : result);
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

/* Names that this Ruby does not have are left out. */
static VALUE StandIn_for(int argc, VALUE *argv, VALUE self) {
  VALUE module, names, options, given[] = { Qfalse, Qfalse, Qtrue };
  ID keywords[] = { rb_intern("last_line"), rb_intern("turns"), rb_intern("waits") };

  rb_scan_args(argc, argv, "1*:", &module, &names, &options);
  if (!NIL_P(options)) rb_get_kwargs(options, keywords, 0, 3, given);
  struct owner *owner = owner_new();
  owner->last_line = given[0] == Qtrue;
  owner->turns = given[1] == Qtrue;
  owner->waits = given[2] != Qfalse;    /* Qundef: not given */
  VALUE before = rb_module_new();
  for (long i = 0; i < RARRAY_LEN(names); i++) {
    VALUE name = RARRAY_AREF(names, i);
    if (defined_p(module, name)) define(before, module, owner, name);
  }
  rb_prepend_module(module, before);
  (void)self;
  return before;
}

static VALUE StandIn_wanted_p(VALUE self) {
  (void)self;
  return stand_in_wanted_p() ? Qtrue : Qfalse;
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
  rb_define_singleton_method(module, "call", StandIn_call, -1);
  rb_define_singleton_method(module, "run", StandIn_run, 0);
}
