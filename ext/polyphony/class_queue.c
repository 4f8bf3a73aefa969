/* class_queue.c - Polyphony::Queue, capped or not, between fibers and threads. Layer 2.
 *
 * Everything happens under the GVL. An item stays in the queue until the fiber that was woken for
 * it runs, so a cancel in between loses nothing; newcomers leave such items alone, and line up behind
 * that fiber if there are more, so order of arrival is kept. */
#include "clock.h"
#include "errors.h"
#include "io.h"
#include "queue.h"
#include "reason.h"
#include "telemetry.h"
#include "waitlist.h"

static VALUE cQueue = Qnil, cRequest = Qnil, eFull = Qnil;

/* What a push to a full queue does. */
enum policy { POLICY_WAIT, POLICY_DROP_OLDEST, POLICY_DROP_NEWEST, POLICY_ERROR, POLICY_COUNT };

static const char *const policy_names[] = { "wait", "drop_oldest", "drop_newest", "error" };

static const char *const DEFAULT_REASON = "an item in a queue";

struct queue {
  VALUE *items;                 /* ring; NULL until the first push */
  VALUE *contexts;              /* the same for each item, see telemetry.h; NULL until one has any */
  size_t head, length, capacity;
  size_t cap;                   /* 0: uncapped */
  enum policy policy;
  size_t dropped;               /* items that were pushed and that nobody will ever take */
  VALUE owner;                  /* the record of the fiber whose mailbox it is; or Qnil */
  bool private;                 /* our own: what is in it is no message */
  bool closed;
  bool retired;                 /* its owner has ended, or is about to with its thread */
  VALUE ending;                 /* what those get who wait for an item when it is closed */
  bool sparing;                 /* wakes one shifter at a time, see wake_shifter */
  bool slow;                    /* it is, and items wait while who has taken one does */
  VALUE pusher;                 /* the backend of who pushed last, if it is sparing; or Qnil */
  unsigned flushes;             /* counts flush_waiters, so that a shifter knows it was flushed */
  struct waitlist shifters, pushers;
  VALUE part_of;                /* the pool ... it is part of, for reports; or Qnil */
  VALUE courier;                /* is told of what becomes of its items, see asked(); or Qnil */
  const char *reason;           /* what shifters wait for: own_reason, or a literal */
  const char *own_reason;       /* acquired; or NULL */
};

static size_t place_of(struct queue *queue, size_t index) { return (queue->head + index) & (queue->capacity - 1); }
static VALUE *item_at(struct queue *queue, size_t index) { return &queue->items[place_of(queue, index)]; }
static VALUE *context_at(struct queue *queue, size_t index) { return &queue->contexts[place_of(queue, index)]; }

static void queue_mark(void *pointer) {
  struct queue *queue = pointer;

  for (size_t i = 0; i < queue->length; i++) rb_gc_mark_movable(*item_at(queue, i));
  for (size_t i = 0; queue->contexts && i < queue->length; i++) rb_gc_mark_movable(*context_at(queue, i));
  rb_gc_mark_movable(queue->owner);
  rb_gc_mark_movable(queue->ending);
  waitlist_mark(&queue->shifters);
  waitlist_mark(&queue->pushers);
  rb_gc_mark_movable(queue->part_of);
  rb_gc_mark_movable(queue->courier);
  rb_gc_mark_movable(queue->pusher);
}

static void queue_compact(void *pointer) {
  struct queue *queue = pointer;

  for (size_t i = 0; i < queue->length; i++) *item_at(queue, i) = rb_gc_location(*item_at(queue, i));
  for (size_t i = 0; queue->contexts && i < queue->length; i++)
    *context_at(queue, i) = rb_gc_location(*context_at(queue, i));
  queue->owner = rb_gc_location(queue->owner);
  queue->ending = rb_gc_location(queue->ending);
  queue->part_of = rb_gc_location(queue->part_of);
  queue->courier = rb_gc_location(queue->courier);
  queue->pusher = rb_gc_location(queue->pusher);
}

static void queue_free(void *pointer) {
  struct queue *queue = pointer;

  waitlist_free(&queue->shifters);
  waitlist_free(&queue->pushers);
  xfree(queue->contexts);
  xfree(queue->items);
  reason_release(queue->own_reason);
  xfree(queue);
}

static size_t queue_memsize(const void *pointer) {
  const struct queue *queue = pointer;

  return sizeof(*queue) + queue->capacity * sizeof(VALUE) * (queue->contexts ? 2 : 1);
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

  queue->owner = Qnil;
  queue->ending = Qnil;
  waitlist_init(&queue->shifters);
  waitlist_init(&queue->pushers);
  queue->part_of = Qnil;
  queue->courier = Qnil;
  queue->pusher = Qnil;
  queue->reason = DEFAULT_REASON;
  return self;
}

static struct queue *get(VALUE self) {
  return typed_data(self, &queue_type);
}

/* ---- the ring ------------------------------------------------------------------------------- */

/* Allocates first: a GC that runs then sees the ring as it was. */
static void grow(struct queue *queue) {
  size_t capacity = queue->capacity ? queue->capacity * 2 : 8;
  VALUE *items = ALLOC_N(VALUE, capacity);
  VALUE *contexts = queue->contexts ? ALLOC_N(VALUE, capacity) : NULL;

  for (size_t i = 0; i < queue->length; i++) items[i] = *item_at(queue, i);
  for (size_t i = 0; contexts && i < queue->length; i++) contexts[i] = *context_at(queue, i);
  xfree(queue->contexts);
  xfree(queue->items);
  queue->contexts = contexts;
  queue->items = items;
  queue->capacity = capacity;
  queue->head = 0;
}

/* Not when as many have been woken as there are items: it would find nothing, and lose its place.
 *
 * To wake another thread costs system calls, and it needs the GVL, which one that is at work has. Of threads that serve
 * a sparing queue one is woken; when it takes an item and leaves others, somebody has to come who wakes the next one, should it wait.
 * If the items are soon done, who is at work takes them, and the others are not woken; where it waits, the next one comes. */
static void wake_shifter(struct queue *queue) {
  unsigned woken = queue->shifters.woken;

  if (queue->length > woken && !(queue->sparing && woken)) waitlist_wake(&queue->shifters, Qnil);
}

/* In the thread that has pushed, which has the GVL: who took an item waits, or something else has made it give up the GVL. */
static void look_after(VALUE self) {
  struct queue *queue = get(self);

  queue->slow = queue->length > 0;
  wake_shifter(queue);
}

/* Who has pushed, and polls, waits in most cases for what becomes of it: it will be woken in any case, and the GVL is its next. A shifter that
 * was woken, too, would come before it, and find nothing where all is done. But as soon as items are not, shifters call each other. */
static void call_next(VALUE self, struct queue *queue) {
  if (!queue->length) queue->slow = false;
  if (!queue->length || queue->shifters.woken || waitlist_empty_p(&queue->shifters)) return;
  bool sent = !queue->slow && !NIL_P(queue->pusher) && backend_base_send(backend_base_of(queue->pusher), look_after, self);
  if (!sent) wake_shifter(queue);
}

static void note_pusher(VALUE self, struct queue *queue) {
  struct backend_base *backend = backend_base_open_here();

  RB_OBJ_WRITE(self, &queue->pusher, backend ? backend->self : Qnil);
}

static void make_contexts(struct queue *queue) {
  VALUE *contexts = ALLOC_N(VALUE, queue->capacity);

  for (size_t i = 0; i < queue->capacity; i++) contexts[i] = Qnil;
  queue->contexts = contexts;
}

static void prepare(struct queue *queue, VALUE context) {
  if (queue->length == queue->capacity) grow(queue);
  if (RB_UNLIKELY(!NIL_P(context)) && !queue->contexts) make_contexts(queue);
}

static void put(VALUE self, struct queue *queue, size_t index, VALUE item, VALUE context) {
  if (RB_UNLIKELY(queue->contexts != NULL)) RB_OBJ_WRITE(self, context_at(queue, index), context);
  RB_OBJ_WRITE(self, item_at(queue, index), item);
}

static void append(VALUE self, struct queue *queue, VALUE item, VALUE context) {
  prepare(queue, context);
  put(self, queue, queue->length++, item, context);
  wake_shifter(queue);
}

static void prepend(VALUE self, struct queue *queue, VALUE item, VALUE context) {
  prepare(queue, context);
  queue->head = (queue->head - 1) & (queue->capacity - 1);
  queue->length++;
  put(self, queue, 0, item, context);
  wake_shifter(queue);
}

/* Of who pushes. Before anything else is looked at: it runs Ruby code. */
static VALUE context_for(struct queue *queue) {
  return RB_LIKELY(NIL_P(telemetry_hooks)) || queue->private ? Qnil : telemetry_capture();
}

/* Who takes the first item may go on with its context: Polyphony::Telemetry.continue. */
static void note_context(struct queue *queue) {
  struct fiber_state *fiber = fiber_state_of(rb_fiber_current());

  FIBER_WRITE(fiber, received, queue->contexts ? *context_at(queue, 0) : Qnil);
}

static VALUE remove_first(struct queue *queue) {
  VALUE item = *item_at(queue, 0);

  queue->head = (queue->head + 1) & (queue->capacity - 1);
  queue->length--;
  return item;
}

/* The mailbox of a fiber that has ended takes nothing more. In a forked child, fibers have ended
 * without a word. */
static bool retired_p(struct queue *queue) {
  return queue->retired || (!NIL_P(queue->owner) && fiber_state_unwrap(queue->owner)->ended);
}

static bool closed_p(struct queue *queue) { return queue->closed || retired_p(queue); }

/* Whoever lined up behind the last item of a closed queue has nothing to wait for any more. */
static void note_removal(struct queue *queue) {
  waitlist_wake(&queue->pushers, Qnil);
  if (!queue->length && closed_p(queue)) waitlist_wake_all(&queue->shifters, Qnil);
}

/* What comes from elsewhere may have to be acknowledged there. So a courier hears of it when somebody
 * comes for an item, which is done with those taken before; when an item is taken, which it may
 * unwrap; and when one is dropped. It is Ruby code, and must not switch. */
static void asked(struct queue *queue) {
  if (!NIL_P(queue->courier)) rb_funcall(queue->courier, id_asked, 0);
}

static VALUE unwrapped(struct queue *queue, VALUE item) {
  return NIL_P(queue->courier) ? item : rb_funcall(queue->courier, id_taken, 1, item);
}

static VALUE take_wrapped(VALUE self, struct queue *queue) {
  VALUE item = remove_first(queue);

  note_removal(queue);
  if (queue->sparing) call_next(self, queue);
  return item;
}

static VALUE take(VALUE self, struct queue *queue) {
  if (RB_UNLIKELY(!NIL_P(telemetry_hooks)) && !queue->private) note_context(queue);
  return unwrapped(queue, take_wrapped(self, queue));
}

static void remove_at(struct queue *queue, size_t index) {
  for (; index + 1 < queue->length; index++) {
    *item_at(queue, index) = *item_at(queue, index + 1);
    if (queue->contexts) *context_at(queue, index) = *context_at(queue, index + 1);
  }
  queue->length--;
  note_removal(queue);
}

/* ---- room ----------------------------------------------------------------------------------- */

static void check_open(struct queue *queue) {
  if (queue->closed) rb_raise(eClosedQueue, "queue closed");
}

static bool full_p(struct queue *queue) { return queue->cap && queue->length >= queue->cap; }

/* Places that woken pushers are about to fill are taken already. */
static bool room_p(struct queue *queue, bool waited) {
  return queue->length + (waited ? 0 : queue->pushers.woken) < queue->cap;
}

static bool may_wait_p(struct queue *queue) {
  return queue->cap && queue->policy == POLICY_WAIT && !closed_p(queue);
}

/* There is room for all, but others were there before. */
static bool pushes_later_p(struct queue *queue) {
  return queue->pushers.woken && may_wait_p(queue) && room_p(queue, false);
}

/* Capacity and policy may change meanwhile. */
static void wait_for_room(VALUE self, struct queue *queue) {
  const char *reason = NIL_P(queue->owner) ? "room in a queue" : "room in a mailbox";

  backend_base_snooze(backend_base_current());
  bool waited = pushes_later_p(queue);
  if (waited) waitlist_line_up(&queue->pushers, self, reason);
  for (; may_wait_p(queue) && !room_p(queue, waited); waited = true)
    waitlist_park(&queue->pushers, self, reason);
}

/* Who waits for the answer to a question is told that there will be none. Runs Ruby code. */
static void tell_asker(struct queue *queue, VALUE item) {
  if (!NIL_P(queue->courier)) rb_funcall(queue->courier, id_dropped, 1, item);
  if (RTEST(rb_obj_is_kind_of(item, cRequest))) rb_funcall(item, id_dropped, 0);
}

static void drop(struct queue *queue, VALUE item) {
  queue->dropped++;
  tell_asker(queue, item);
}

/* False if the new item is to be dropped. Whatever runs Ruby code is followed by another look: the
 * caller inserts at once, and other threads may have pushed. */
static bool make_room(VALUE self, struct queue *queue) {
  if (may_wait_p(queue)) wait_for_room(self, queue);
  check_open(queue);
  if (retired_p(queue)) return false;
  while (full_p(queue)) {
    if (queue->policy == POLICY_DROP_NEWEST) return false;
    if (queue->policy == POLICY_ERROR) rb_exc_raise(rb_class_new_instance(1, &self, eFull));
    drop(queue, remove_first(queue));
  }
  return true;
}

/* ---- Ruby ----------------------------------------------------------------------------------- */

static size_t checked_cap(VALUE cap) {
  long number = NIL_P(cap) ? 0 : NUM2LONG(cap);

  if (number < 0) rb_raise(rb_eArgError, "a queue's capacity cannot be negative, got %ld", number);
  return (size_t)number;
}

static enum policy checked_policy(VALUE name) {
  for (int i = 0; i < POLICY_COUNT; i++)
    if (name == ID2SYM(rb_intern(policy_names[i]))) return i;
  rb_raise(rb_eArgError, "a queue's policy is :wait, :drop_oldest, :drop_newest or :error, "
           "got %"PRIsVALUE, rb_inspect(name));
}

/* (capacity, policy:). Without a policy the present one stays. Nothing is set if one is wrong. */
static void set_limit(struct queue *queue, VALUE cap, VALUE options) {
  VALUE policy = Qundef;

  if (!NIL_P(options)) rb_get_kwargs(options, &id_policy, 0, 1, &policy);
  enum policy checked = policy == Qundef ? queue->policy : checked_policy(policy);
  queue->cap = checked_cap(cap);
  queue->policy = checked;
}

static VALUE Queue_initialize(int argc, VALUE *argv, VALUE self) {
  VALUE cap, options;

  rb_scan_args(argc, argv, "01:", &cap, &options);
  set_limit(get(self), cap, options);
  return self;
}

/* A pool is a queue of what it has: its waiters are then known by what they really wait for. */
static VALUE Queue_serve(VALUE self, VALUE owner, VALUE reason) {
  struct queue *queue = get(self);
  const char *before = queue->own_reason;

  queue->reason = queue->own_reason = reason_acquire(reason);
  reason_release(before);
  RB_OBJ_WRITE(self, &queue->part_of, owner);
  queue->private = true;
  return self;
}

static VALUE Queue_private_p(VALUE self) { return get(self)->private ? Qtrue : Qfalse; }

/* What is put into it is no message to a user's code. */
static VALUE Queue_for_ourselves(VALUE self) {
  get(self)->private = true;
  return self;
}

static VALUE Queue_be_sparing(VALUE self) {
  get(self)->sparing = true;
  return self;
}

static VALUE Queue_part_of(VALUE self) { return get(self)->part_of; }

/* One for all queues of a kind: it does not hear which one it is. */
static VALUE Queue_set_courier(VALUE self, VALUE courier) {
  RB_OBJ_WRITE(self, &get(self)->courier, courier);
  return courier;
}

/* Past its capacity. False if there will be nobody to take it. */
static VALUE Queue_add(VALUE self, VALUE item) {
  VALUE context = context_for(get(self));

  if (closed_p(get(self))) return Qfalse;
  append(self, get(self), item, context);
  return Qtrue;
}

static VALUE Queue_push(VALUE self, VALUE item) {
  struct queue *queue = get(self);
  VALUE context = context_for(queue);

  if (RB_UNLIKELY(queue->sparing)) note_pusher(self, queue);
  if (make_room(self, queue)) append(self, queue, item, context);
  else drop(queue, item);
  return self;
}

static VALUE Queue_unshift(VALUE self, VALUE item) {
  struct queue *queue = get(self);
  VALUE context = context_for(queue);

  if (make_room(self, queue)) prepend(self, queue, item, context);
  else drop(queue, item);
  return self;
}

/* One that nobody was woken for. */
static bool item_free_p(struct queue *queue) { return queue->length > queue->shifters.woken; }

static VALUE shift_now(VALUE self, struct queue *queue) {
  asked(queue);
  if (item_free_p(queue)) return take(self, queue);
  rb_raise(rb_eThreadError, "queue empty");
}

/* There are items for all, but others were there before, and would run after it: what a poll has found may pass those that wait for their
 * turn, and give back at once what they shall have and more. Threads that serve a sparing queue need no order. */
static bool takes_later_p(struct queue *queue) { return queue->shifters.woken && !queue->sparing; }

/* At most until then; CLOCK_NEVER: as long as it takes. */
static VALUE park_shifter(VALUE self, struct queue *queue, int64_t until, bool *expired) {
  if (item_free_p(queue)) return waitlist_line_up(&queue->shifters, self, queue->reason);
  if (until == CLOCK_NEVER) return waitlist_park(&queue->shifters, self, queue->reason);
  int64_t left = until - backend_base_now(backend_base_current());
  return waitlist_park_for(&queue->shifters, self, queue->reason, left < 0 ? 0 : left, expired);
}

enum outcome { GOT_IT, TOO_LATE, WAS_CLOSED, CLOSED_MEANWHILE };

static VALUE shift_until(VALUE self, struct queue *queue, int64_t until, enum outcome *outcome) {
  bool expired = false;

  *outcome = GOT_IT;
  asked(queue);
  backend_base_snooze(backend_base_current());
  if (item_free_p(queue) && !takes_later_p(queue)) return take(self, queue);
  *outcome = WAS_CLOSED;
  if (closed_p(queue) && !queue->length) return Qnil;
  do {
    unsigned flushes = queue->flushes;
    VALUE value = park_shifter(self, queue, until, &expired);
    *outcome = expired ? TOO_LATE : GOT_IT;
    if (expired) return Qnil;
    bool for_item = NIL_P(value) && queue->length;     /* woken before it could be flushed */
    if (flushes != queue->flushes && !for_item) {
      wake_shifter(queue);      /* who came meanwhile took its item for ours */
      return value;
    }
    if (queue->length) return take(self, queue);
  } while (!closed_p(queue));
  *outcome = CLOSED_MEANWHILE;
  return queue->ending;
}

static VALUE shift_or_raise(VALUE self, int64_t until) {
  enum outcome outcome;
  VALUE item = shift_until(self, get(self), until, &outcome);

  if (outcome == WAS_CLOSED) rb_raise(eClosedQueue, "queue closed");
  return item;
}

static VALUE shift_waiting(VALUE self) { return shift_or_raise(self, CLOCK_NEVER); }

/* As of Thread::Queue since Ruby 3.2. */
static VALUE shift_within(VALUE self, VALUE seconds) {
  return shift_or_raise(self, backend_base_now(backend_base_current()) + io_period(seconds));
}

static VALUE timeout_option(VALUE options) {
  VALUE timeout = Qundef;

  if (!NIL_P(options)) rb_get_kwargs(options, &id_timeout, 0, 1, &timeout);
  return timeout == Qundef ? Qnil : timeout;
}

/* There are no keywords. Without a look at them, timeout: 1 would pass for a true nonblock. */
static VALUE Queue_shift(int argc, VALUE *argv, VALUE self) {
  VALUE nonblock, options;

  if (!argc) return shift_waiting(self);
  rb_scan_args(argc, argv, "01:", &nonblock, &options);
  VALUE timeout = timeout_option(options);
  if (NIL_P(timeout)) return RTEST(nonblock) ? shift_now(self, get(self)) : shift_waiting(self);
  if (RTEST(nonblock)) rb_raise(rb_eArgError, "can't set a timeout if non_block is enabled");
  return shift_within(self, timeout);
}

/* In the context of who has sent it. */
static VALUE yield_item(struct queue *queue, VALUE item) {
  if (NIL_P(telemetry_hooks) || queue->private) return rb_yield(item);
  return telemetry_run(fiber_state_of(rb_fiber_current())->received, Qnil, rb_yield, item);
}

/* Until it is closed and empty. */
static VALUE Queue_each(VALUE self) {
  enum outcome outcome;
  RETURN_ENUMERATOR(self, 0, NULL);

  for (;;) {
    VALUE item = shift_until(self, get(self), CLOCK_NEVER, &outcome);
    if (outcome != GOT_IT) return self;
    yield_item(get(self), item);
  }
}

static VALUE Queue_shift_all(VALUE self) {
  struct queue *queue = get(self);
  VALUE all = rb_ary_new_capa((long)queue->length);

  asked(queue);
  while (queue->length) rb_ary_push(all, take(self, queue));
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

  while (queue->length) tell_asker(queue, take_wrapped(self, queue));
  return self;
}

static VALUE Queue_size(VALUE self) { return SIZET2NUM(get(self)->length); }
static VALUE Queue_empty_p(VALUE self) { return get(self)->length ? Qfalse : Qtrue; }
static VALUE Queue_closed_p(VALUE self) { return closed_p(get(self)) ? Qtrue : Qfalse; }
static VALUE Queue_dropped(VALUE self) { return SIZET2NUM(get(self)->dropped); }

static VALUE Queue_policy(VALUE self) { return ID2SYM(rb_intern(policy_names[get(self)->policy])); }

static VALUE Queue_owner(VALUE self) {
  VALUE owner = get(self)->owner;

  return NIL_P(owner) ? Qnil : fiber_state_unwrap(owner)->fiber;
}

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

static VALUE Queue_cap(int argc, VALUE *argv, VALUE self) {
  struct queue *queue = get(self);
  VALUE cap, options;

  rb_scan_args(argc, argv, "1:", &cap, &options);
  set_limit(queue, cap, options);
  waitlist_wake_all(&queue->pushers, Qnil);  /* those without room park again */
  return self;
}

static VALUE Queue_flush_waiters(VALUE self, VALUE value) {
  struct queue *queue = get(self);

  queue->flushes++;
  waitlist_wake_all(&queue->shifters, value);
  return self;
}

static void let_all_go(struct queue *queue) {
  waitlist_wake_all(&queue->shifters, Qnil);
  waitlist_wake_all(&queue->pushers, Qnil);
}

/* ending: what those get who wait for an item. */
static VALUE Queue_close_with(VALUE self, VALUE ending) {
  struct queue *queue = get(self);

  queue->closed = true;
  RB_OBJ_WRITE(self, &queue->ending, ending);
  let_all_go(queue);
  return self;
}

static VALUE Queue_close(VALUE self) { return Queue_close_with(self, Qnil); }

static VALUE Queue_retire(VALUE self) {
  get(self)->retired = true;
  let_all_go(get(self));
  return self;
}

VALUE queue_new(void) { return Queue_allocate(cQueue); }
VALUE queue_push(VALUE queue, VALUE item) { return Queue_push(queue, item); }

void queue_add(VALUE self, VALUE item) {
  if (!closed_p(get(self))) append(self, get(self), item, Qnil);
}

VALUE queue_shift(VALUE queue) { return shift_waiting(queue); }

VALUE queue_new_mailbox(VALUE owner) {
  VALUE self = queue_new();

  RB_OBJ_WRITE(self, &get(self)->owner, owner);
  get(self)->reason = "a message in a mailbox";
  return self;
}

void class_queue_init(void) {
  rb_gc_register_address(&cQueue);
  rb_gc_register_address(&cRequest);
  rb_gc_register_address(&eFull);
  VALUE klass = cQueue = rb_define_class_under(mPolyphony, "Queue", rb_cObject);
  cRequest = rb_define_class_under(mPolyphony, "Request", rb_cObject);
  eFull = rb_define_class_under(klass, "Full", rb_eThreadError);

  rb_define_alloc_func(klass, Queue_allocate);
  rb_undef_method(klass, "initialize_copy");  /* as of Thread::Queue: what would the copy hold? */
  rb_define_method(klass, "initialize", Queue_initialize, -1);
  rb_define_method(klass, "__serve", Queue_serve, 2);
  rb_define_method(klass, "__be_sparing", Queue_be_sparing, 0);
  rb_define_method(klass, "__owner", Queue_part_of, 0);
  rb_define_method(klass, "__private?", Queue_private_p, 0);
  rb_define_method(klass, "__for_ourselves", Queue_for_ourselves, 0);
  rb_define_method(klass, "__courier=", Queue_set_courier, 1);
  rb_define_method(klass, "__add", Queue_add, 1);
  rb_define_method(klass, "push", Queue_push, 1);
  rb_define_method(klass, "<<", Queue_push, 1);
  rb_define_method(klass, "enq", Queue_push, 1);
  rb_define_method(klass, "unshift", Queue_unshift, 1);
  rb_define_method(klass, "shift", Queue_shift, -1);
  rb_define_method(klass, "pop", Queue_shift, -1);
  rb_define_method(klass, "deq", Queue_shift, -1);
  rb_define_method(klass, "shift_all", Queue_shift_all, 0);
  rb_define_method(klass, "each", Queue_each, 0);
  rb_define_method(klass, "shift_each", Queue_shift_each, 0);
  rb_define_method(klass, "delete", Queue_delete, 1);
  rb_define_method(klass, "clear", Queue_clear, 0);
  rb_define_method(klass, "size", Queue_size, 0);
  rb_define_method(klass, "length", Queue_size, 0);
  rb_define_method(klass, "empty?", Queue_empty_p, 0);
  rb_define_method(klass, "pending?", Queue_pending_p, 0);
  rb_define_method(klass, "num_waiting", Queue_num_waiting, 0);
  rb_define_method(klass, "cap", Queue_cap, -1);
  rb_define_method(klass, "capped?", Queue_capped_p, 0);
  rb_define_method(klass, "policy", Queue_policy, 0);
  rb_define_method(klass, "dropped", Queue_dropped, 0);
  rb_define_method(klass, "owner", Queue_owner, 0);
  rb_define_method(klass, "__retire", Queue_retire, 0);
  rb_define_method(klass, "flush_waiters", Queue_flush_waiters, 1);
  rb_define_method(klass, "close", Queue_close, 0);
  rb_define_method(klass, "__close", Queue_close_with, 1);
  rb_define_method(klass, "closed?", Queue_closed_p, 0);
}
