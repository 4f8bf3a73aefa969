/* limit_ext.c - what is within reach of a C extension: a ring of fibers, a heap of timers and
 * rb_fiber_transfer, and nothing else. No I/O, no threads, no cancelling, no error handling, no
 * write barriers (it is marked at every GC): it cannot be used for anything but as a limit. */
#include <ruby.h>
#include <time.h>

static struct { VALUE *items; size_t head, length, size; } ring;
static struct { int64_t *deadlines; size_t length, size; } heap;
static VALUE main_fiber = Qnil;

static void ring_grow(void) {
  size_t size = ring.size ? ring.size * 2 : 64;
  VALUE *items = ALLOC_N(VALUE, size);

  for (size_t i = 0; i < ring.length; i++)
    items[i] = ring.items[(ring.head + i) & (ring.size - 1)];
  xfree(ring.items);
  ring.items = items;
  ring.size = size;
  ring.head = 0;
}

static void ring_push(VALUE fiber) {
  if (ring.length == ring.size) ring_grow();
  ring.items[(ring.head + ring.length++) & (ring.size - 1)] = fiber;
}

static VALUE ring_shift(void) {
  VALUE fiber = ring.items[ring.head];

  ring.head = (ring.head + 1) & (ring.size - 1);
  ring.length--;
  return fiber;
}

static void ring_mark(void *pointer) {
  (void)pointer;
  for (size_t i = 0; i < ring.length; i++) rb_gc_mark(ring.items[(ring.head + i) & (ring.size - 1)]);
}

static const rb_data_type_t ring_type = { .wrap_struct_name = "Limit", .function = { .dmark = ring_mark } };

static VALUE fiber_body(RB_BLOCK_CALL_FUNC_ARGLIST(value, block)) { return rb_proc_call(block, rb_ary_new()); }

static VALUE Limit_spin(VALUE self) {
  VALUE fiber = rb_fiber_new(fiber_body, rb_block_proc());

  ring_push(fiber);
  return fiber;
}

static VALUE Limit_snooze(VALUE self) {
  VALUE current = rb_fiber_current();

  ring_push(current);
  VALUE next = ring_shift();
  if (next != current) rb_fiber_transfer(next, 0, NULL);
  return Qnil;
}

/* A fiber that ends comes back to the main fiber, which is here. */
static VALUE Limit_run(VALUE self) {
  while (ring.length) {
    VALUE next = ring_shift();
    if (next != main_fiber) rb_fiber_transfer(next, 0, NULL);
  }
  return Qnil;
}

static int64_t now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Binary; the place of the newest is returned. */
static size_t heap_push(int64_t deadline) {
  if (heap.length == heap.size) {
    heap.size = heap.size ? heap.size * 2 : 64;
    REALLOC_N(heap.deadlines, int64_t, heap.size);
  }
  size_t i = heap.length++;
  for (; i > 0 && heap.deadlines[(i - 1) / 2] > deadline; i = (i - 1) / 2)
    heap.deadlines[i] = heap.deadlines[(i - 1) / 2];
  heap.deadlines[i] = deadline;
  return i;
}

static void heap_remove(size_t i) {
  int64_t last = heap.deadlines[--heap.length];

  if (i == heap.length) return;
  for (size_t child; (child = 2 * i + 1) < heap.length; i = child) {
    if (child + 1 < heap.length && heap.deadlines[child + 1] < heap.deadlines[child]) child++;
    if (heap.deadlines[child] >= last) break;
    heap.deadlines[i] = heap.deadlines[child];
  }
  heap.deadlines[i] = last;
}

static VALUE disarm(VALUE place) {
  heap_remove((size_t)place);
  return Qnil;
}

static VALUE yield_nothing(VALUE nothing) { return rb_yield_values(0); }

static VALUE Limit_timeout(VALUE self, VALUE seconds) {
  size_t place = heap_push(now() + (int64_t)(NUM2DBL(seconds) * 1e9));

  return rb_ensure(yield_nothing, Qnil, disarm, (VALUE)place);
}

static VALUE Limit_arm(VALUE self, VALUE seconds) {
  heap_push(now() + (int64_t)(NUM2DBL(seconds) * 1e9));
  return Qnil;
}

void Init_limit_ext(void) {
  VALUE mLimit = rb_define_module("Limit");

  rb_gc_register_address(&main_fiber);
  main_fiber = rb_fiber_current();
  rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &ring_type, &ring));
  rb_define_singleton_method(mLimit, "spin", Limit_spin, 0);
  rb_define_singleton_method(mLimit, "snooze", Limit_snooze, 0);
  rb_define_singleton_method(mLimit, "run", Limit_run, 0);
  rb_define_singleton_method(mLimit, "timeout", Limit_timeout, 1);
  rb_define_singleton_method(mLimit, "arm", Limit_arm, 1);
}
