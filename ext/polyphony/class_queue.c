/* class_queue.c - Polyphony::Queue, capped or not, between fibers and threads. Layer 2.
 *
 * Everything happens under the GVL. An item stays in the queue until the fiber that was woken for
 * it runs, so a cancel in between loses nothing; newcomers leave such items alone, so order of
 * arrival is kept. */
#include "errors.h"
#include "io.h"
#include "queue.h"
#include "waitlist.h"

static VALUE cQueue = Qnil;
static const char *const DEFAULT_REASON = "an item in a queue";

struct queue {
  VALUE *items;                 /* ring; NULL until the first push */
  size_t head, length, capacity;
  size_t cap;                   /* 0: uncapped */
  bool closed;
  unsigned flushes;             /* counts flush_waiters, so that a shifter knows it was flushed */
  struct waitlist shifters, pushers;
  VALUE owner;                  /* the pool ... it is part of, for reports; or Qnil */
  const char *reason;           /* what shifters wait for: interned, or DEFAULT_REASON */
};

static VALUE *item_at(struct queue *queue, size_t index) {
  return &queue->items[(queue->head + index) & (queue->capacity - 1)];
}

static void queue_mark(void *pointer) {
  struct queue *queue = pointer;

  for (size_t i = 0; i < queue->length; i++) rb_gc_mark_movable(*item_at(queue, i));
  waitlist_mark(&queue->shifters);
  waitlist_mark(&queue->pushers);
  rb_gc_mark_movable(queue->owner);
}

static void queue_compact(void *pointer) {
  struct queue *queue = pointer;

  for (size_t i = 0; i < queue->length; i++) *item_at(queue, i) = rb_gc_location(*item_at(queue, i));
  queue->owner = rb_gc_location(queue->owner);
}

static void queue_free(void *pointer) {
  struct queue *queue = pointer;

  waitlist_free(&queue->shifters);
  waitlist_free(&queue->pushers);
  xfree(queue->items);
  xfree(queue);
}

static size_t queue_memsize(const void *pointer) {
  const struct queue *queue = pointer;

  return sizeof(*queue) + queue->capacity * sizeof(VALUE);
}

static const rb_data_type_t queue_type = {
  .wrap_struct_name = "Polyphony::Queue",
  .function = {
    .dmark    = queue_mark,
    .dcompact = queue_compact,
    .dsize    = queue_memsize,
    .dfree    = queue_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Queue_allocate(VALUE klass) {
  struct queue *queue;
  VALUE self = TypedData_Make_Struct(klass, struct queue, &queue_type, queue);

  waitlist_init(&queue->shifters);
  waitlist_init(&queue->pushers);
  queue->owner = Qnil;
  queue->reason = DEFAULT_REASON;
  return self;
}

static struct queue *get(VALUE self) {
  struct queue *queue;

  TypedData_Get_Struct(self, struct queue, &queue_type, queue);
  return queue;
}

/* ---- the ring ------------------------------------------------------------------------------- */

static void grow(struct queue *queue) {
  size_t capacity = queue->capacity ? queue->capacity * 2 : 8;
  VALUE *items = ALLOC_N(VALUE, capacity);

  for (size_t i = 0; i < queue->length; i++) items[i] = *item_at(queue, i);
  xfree(queue->items);
  queue->items = items;
  queue->capacity = capacity;
  queue->head = 0;
}

static void append(VALUE self, struct queue *queue, VALUE item) {
  if (queue->length == queue->capacity) grow(queue);
  RB_OBJ_WRITE(self, item_at(queue, queue->length++), item);
  waitlist_wake(&queue->shifters, Qnil);
}

static VALUE take(struct queue *queue) {
  VALUE item = *item_at(queue, 0);

  queue->head = (queue->head + 1) & (queue->capacity - 1);
  queue->length--;
  waitlist_wake(&queue->pushers, Qnil);
  return item;
}

static void remove_at(struct queue *queue, size_t index) {
  for (; index + 1 < queue->length; index++) *item_at(queue, index) = *item_at(queue, index + 1);
  queue->length--;
  waitlist_wake(&queue->pushers, Qnil);
}

/* ---- Ruby ----------------------------------------------------------------------------------- */

static size_t checked_cap(VALUE cap) {
  long number = NIL_P(cap) ? 0 : NUM2LONG(cap);

  if (number < 0) rb_raise(rb_eArgError, "a queue's capacity cannot be negative, got %ld", number);
  return (size_t)number;
}

static VALUE Queue_initialize(int argc, VALUE *argv, VALUE self) {
  VALUE cap;

  rb_scan_args(argc, argv, "01", &cap);
  get(self)->cap = checked_cap(cap);
  return self;
}

/* A pool is a queue of what it has: its waiters are then known by what they really wait for. */
static VALUE Queue_serve(VALUE self, VALUE owner, VALUE reason) {
  struct queue *queue = get(self);

  queue->reason = rb_id2name(rb_intern_str(StringValue(reason)));
  RB_OBJ_WRITE(self, &queue->owner, owner);
  return self;
}

static VALUE Queue_owner(VALUE self) { return get(self)->owner; }

static void check_open(struct queue *queue) {
  if (queue->closed) rb_raise(eClosedQueue, "queue closed");
}

/* Places that woken pushers are about to fill are taken already. */
static bool full_p(struct queue *queue) {
  return queue->length + queue->pushers.woken >= queue->cap;
}

static void wait_for_room(VALUE self, struct queue *queue) {
  backend_base_snooze(backend_base_current());
  for (bool waited = false; queue->cap && !queue->closed; waited = true) {
    if (waited ? queue->length < queue->cap : !full_p(queue)) break;
    waitlist_park(&queue->pushers, self, "room in a queue");
  }
}

static VALUE Queue_push(VALUE self, VALUE item) {
  struct queue *queue = get(self);

  check_open(queue);
  if (queue->cap) {
    wait_for_room(self, queue);
    check_open(queue);
  }
  append(self, queue, item);
  return self;
}

static VALUE Queue_unshift(VALUE self, VALUE item) {
  struct queue *queue = get(self);

  check_open(queue);
  if (queue->cap) {
    wait_for_room(self, queue);
    check_open(queue);
  }
  if (queue->length == queue->capacity) grow(queue);
  queue->head = (queue->head - 1) & (queue->capacity - 1);
  queue->length++;
  RB_OBJ_WRITE(self, item_at(queue, 0), item);
  waitlist_wake(&queue->shifters, Qnil);
  return self;
}

static VALUE shift_now(struct queue *queue) {
  if (queue->length > queue->shifters.woken) return take(queue);
  rb_raise(rb_eThreadError, "queue empty");
}

static VALUE shift_waiting(VALUE self, struct queue *queue) {
  backend_base_snooze(backend_base_current());
  if (queue->length > queue->shifters.woken) return take(queue);
  if (queue->closed && !queue->length) rb_raise(eClosedQueue, "queue closed");
  do {
    unsigned flushes = queue->flushes;
    VALUE value = waitlist_park(&queue->shifters, self, queue->reason);
    bool for_item = NIL_P(value) && queue->length;     /* woken before it could be flushed */
    if (flushes != queue->flushes && !for_item) return value;
    if (queue->length) return take(queue);
  } while (!queue->closed);
  return Qnil;
}

static VALUE Queue_shift(int argc, VALUE *argv, VALUE self) {
  VALUE nonblock;

  rb_scan_args(argc, argv, "01", &nonblock);
  return RTEST(nonblock) ? shift_now(get(self)) : shift_waiting(self, get(self));
}

static VALUE Queue_shift_all(VALUE self) {
  struct queue *queue = get(self);
  VALUE all = rb_ary_new_capa((long)queue->length);

  while (queue->length) rb_ary_push(all, take(queue));
  return all;
}

static VALUE Queue_shift_each(VALUE self) {
  RETURN_ENUMERATOR(self, 0, NULL);
  VALUE all = Queue_shift_all(self);

  for (long i = 0; i < RARRAY_LEN(all); i++) rb_yield(RARRAY_AREF(all, i));
  return self;
}

static VALUE Queue_delete(VALUE self, VALUE item) {
  struct queue *queue = get(self);

  for (size_t i = 0; i < queue->length; i++)
    if (*item_at(queue, i) == item) {
      remove_at(queue, i);
      return item;
    }
  return Qnil;
}

static VALUE Queue_clear(VALUE self) {
  struct queue *queue = get(self);

  while (queue->length) take(queue);
  return self;
}

static VALUE Queue_size(VALUE self) { return SIZET2NUM(get(self)->length); }
static VALUE Queue_empty_p(VALUE self) { return get(self)->length ? Qfalse : Qtrue; }
static VALUE Queue_closed_p(VALUE self) { return get(self)->closed ? Qtrue : Qfalse; }

static VALUE Queue_pending_p(VALUE self) {
  return waitlist_empty_p(&get(self)->shifters) ? Qfalse : Qtrue;
}

static VALUE Queue_num_waiting(VALUE self) {
  struct queue *queue = get(self);

  return UINT2NUM(queue->shifters.length + queue->pushers.length);
}

static VALUE Queue_capped_p(VALUE self) {
  struct queue *queue = get(self);

  return queue->cap ? SIZET2NUM(queue->cap) : Qnil;
}

static VALUE Queue_cap(VALUE self, VALUE cap) {
  struct queue *queue = get(self);

  queue->cap = checked_cap(cap);
  waitlist_wake_all(&queue->pushers, Qnil);  /* those without room park again */
  return self;
}

static VALUE Queue_flush_waiters(VALUE self, VALUE value) {
  struct queue *queue = get(self);

  queue->flushes++;
  waitlist_wake_all(&queue->shifters, value);
  return self;
}

static VALUE Queue_close(VALUE self) {
  struct queue *queue = get(self);

  queue->closed = true;
  waitlist_wake_all(&queue->shifters, Qnil);
  waitlist_wake_all(&queue->pushers, Qnil);
  return self;
}

VALUE queue_new(void) { return Queue_allocate(cQueue); }
VALUE queue_push(VALUE queue, VALUE item) { return Queue_push(queue, item); }
VALUE queue_shift(VALUE queue) { return shift_waiting(queue, get(queue)); }

void class_queue_init(void) {
  rb_gc_register_address(&cQueue);
  VALUE klass = cQueue = rb_define_class_under(mPolyphony, "Queue", rb_cObject);

  rb_define_alloc_func(klass, Queue_allocate);
  rb_define_method(klass, "initialize", Queue_initialize, -1);
  rb_define_method(klass, "__serve", Queue_serve, 2);
  rb_define_method(klass, "__owner", Queue_owner, 0);
  rb_define_method(klass, "push", Queue_push, 1);
  rb_define_method(klass, "<<", Queue_push, 1);
  rb_define_method(klass, "enq", Queue_push, 1);
  rb_define_method(klass, "unshift", Queue_unshift, 1);
  rb_define_method(klass, "shift", Queue_shift, -1);
  rb_define_method(klass, "pop", Queue_shift, -1);
  rb_define_method(klass, "deq", Queue_shift, -1);
  rb_define_method(klass, "shift_all", Queue_shift_all, 0);
  rb_define_method(klass, "shift_each", Queue_shift_each, 0);
  rb_define_method(klass, "delete", Queue_delete, 1);
  rb_define_method(klass, "clear", Queue_clear, 0);
  rb_define_method(klass, "size", Queue_size, 0);
  rb_define_method(klass, "length", Queue_size, 0);
  rb_define_method(klass, "empty?", Queue_empty_p, 0);
  rb_define_method(klass, "pending?", Queue_pending_p, 0);
  rb_define_method(klass, "num_waiting", Queue_num_waiting, 0);
  rb_define_method(klass, "cap", Queue_cap, 1);
  rb_define_method(klass, "capped?", Queue_capped_p, 0);
  rb_define_method(klass, "flush_waiters", Queue_flush_waiters, 1);
  rb_define_method(klass, "close", Queue_close, 0);
  rb_define_method(klass, "closed?", Queue_closed_p, 0);
}
