/* class_stock_queues.c - Ruby's own Queue and SizedQueue in blocking fibers. Layer 2.
 *
 * Whoever need not wait does not pay for a stand-in. */
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

static VALUE pop(VALUE stock, int argc, VALUE *argv, VALUE self) {
  bool waits = blocking_p() && ask(self, id_empty_p) && stand_in_wanted_p();

  if (!waits) return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
  return call_stock(stock, argc, argv, self);
}

static VALUE Queue_pop(int argc, VALUE *argv, VALUE self) { return pop(stock_queue, argc, argv, self); }

static VALUE SizedQueue_pop(int argc, VALUE *argv, VALUE self) {
  return pop(stock_sized_queue, argc, argv, self);
}

static bool full_p(VALUE queue) {
  return NUM2LONG(rb_funcallv(queue, id_length, 0, NULL)) >= NUM2LONG(rb_funcallv(queue, id_max, 0, NULL));
}

static VALUE SizedQueue_push(int argc, VALUE *argv, VALUE self) {
  bool waits = blocking_p() && full_p(self) && stand_in_wanted_p();

  if (!waits) return rb_call_super_kw(argc, argv, RB_PASS_CALLED_KEYWORDS);
  return call_stock(stock_sized_queue, argc, argv, self);
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
