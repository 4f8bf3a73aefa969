/* class_stock_queues.c - Ruby's own Queue and SizedQueue in blocking fibers. Layer 2.
 *
 * Whoever need not wait does not pay for a stand-in. */
#include <string.h>
#include "stand_in.h"

static ID id_empty_p, id_length, id_max;
static VALUE stock_queue, stock_sized_queue;   /* Hash: name => UnboundMethod */

static VALUE call_stock(VALUE stock, int argc, VALUE *argv, VALUE self) {
  struct stand_in_call call = {
    .method = rb_hash_aref(stock, ID2SYM(rb_frame_this_func())),
    .receiver = self,
    .argc = argc,
    .argv = argv,
    .keywords = rb_keyword_given_p(),
  };

  return stand_in_call(&call);
}

static bool ask(VALUE queue, ID id) { return RTEST(rb_funcallv(queue, id, 0, NULL)); }

/* May be asked first, for it costs less than to find out whether there is a need for a stand-in. */
static bool blocking_p(void) { return NIL_P(rb_fiber_scheduler_current()); }

/* ---- without waiting ---------------------------------------------------------------------------- */

/* What a queue was asked may be wrong by the time of the answer: at the end of every call other threads may
 * run, and take the item, or the room. Ruby's method would then wait, and with it all fibers of the thread. So it
 * is told not to. */
struct attempt {
  VALUE argv[2];
  int argc;
  const char *refusal;          /* what Ruby says when it would have to wait */
};

static VALUE call_at_once(VALUE argument) {
  struct attempt *attempt = (struct attempt *)argument;

  return rb_call_super(attempt->argc, attempt->argv);
}

/* Somebody may have raised another one here. */
static VALUE refused(VALUE argument, VALUE error) {
  VALUE message = rb_obj_as_string(error);

  if (strcmp(StringValueCStr(message), ((struct attempt *)argument)->refusal) != 0) rb_exc_raise(error);
  return Qundef;
}

static VALUE try_at_once(struct attempt *attempt) {
  return rb_rescue2(call_at_once, (VALUE)attempt, refused, (VALUE)attempt, rb_eThreadError, (VALUE)0);
}

static VALUE call_super(int argc, VALUE *argv) { return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS); }

static VALUE wait_stock(VALUE stock, int argc, VALUE *argv, VALUE self) {
  return stand_in_wanted_p() ? call_stock(stock, argc, argv, self) : call_super(argc, argv);
}

/* Who says `true` behind so many arguments does not wait; other wrong ones are Ruby's to refuse. */
static bool waits_p(int argc, const VALUE *argv, int before) {
  return blocking_p() && (argc <= before || rb_keyword_given_p() || !RTEST(argv[before]));
}

/* ---- the methods -------------------------------------------------------------------------------- */

static VALUE pop(VALUE stock, int argc, VALUE *argv, VALUE self) {
  struct attempt attempt = { { Qtrue }, 1, "queue empty" };
  VALUE item = Qundef;

  if (!waits_p(argc, argv, 0)) return call_super(argc, argv);
  if (argc == 0 && !ask(self, id_empty_p)) item = try_at_once(&attempt);
  return item == Qundef ? wait_stock(stock, argc, argv, self) : item;
}

static VALUE Queue_pop(int argc, VALUE *argv, VALUE self) { return pop(stock_queue, argc, argv, self); }

static VALUE SizedQueue_pop(int argc, VALUE *argv, VALUE self) {
  return pop(stock_sized_queue, argc, argv, self);
}

static bool full_p(VALUE queue) {
  return NUM2LONG(rb_funcallv(queue, id_length, 0, NULL)) >= NUM2LONG(rb_funcallv(queue, id_max, 0, NULL));
}

static VALUE SizedQueue_push(int argc, VALUE *argv, VALUE self) {
  struct attempt attempt = { { argc ? argv[0] : Qnil, Qtrue }, 2, "queue full" };
  VALUE done = Qundef;

  if (!waits_p(argc, argv, 1)) return call_super(argc, argv);
  if (argc == 1 && !rb_keyword_given_p() && !full_p(self)) done = try_at_once(&attempt);
  return done == Qundef ? wait_stock(stock_sized_queue, argc, argv, self) : done;
}

static void define(VALUE module, VALUE stock, const char *path, const char *const *names,
                   VALUE (*method)(int, VALUE *, VALUE)) {
  VALUE klass = rb_path2class(path);

  for (; *names; names++) {
    VALUE name = ID2SYM(rb_intern(*names));
    rb_hash_aset(stock, name, rb_funcall(klass, rb_intern("instance_method"), 1, name));
    rb_define_method(module, *names, method, -1);
  }
}

void class_stock_queues_init(void) {
  static const char *const pops[] = { "pop", "shift", "deq", NULL };
  static const char *const pushes[] = { "push", "<<", "enq", NULL };
  VALUE locks = rb_define_module_under(mPolyphony, "StockLocks");
  VALUE queue = rb_define_module_under(locks, "Queue");
  VALUE sized_queue = rb_define_module_under(locks, "SizedQueue");

  id_empty_p = rb_intern("empty?");
  id_length = rb_intern("length");
  id_max = rb_intern("max");
  rb_gc_register_address(&stock_queue);
  rb_gc_register_address(&stock_sized_queue);
  stock_queue = rb_hash_new();
  stock_sized_queue = rb_hash_new();
  define(queue, stock_queue, "Thread::Queue", pops, Queue_pop);
  define(sized_queue, stock_sized_queue, "Thread::SizedQueue", pops, SizedQueue_pop);
  define(sized_queue, stock_sized_queue, "Thread::SizedQueue", pushes, SizedQueue_push);
}
