/* class_event.c - Polyphony::Event: one fiber waits, anyone signals. Layer 2.
 * The signal stays until the waiter takes it, so a cancel or a late waiter does not lose it. */
#include "errors.h"
#include "reason.h"
#include "waitlist.h"

static const char *const DEFAULT_REASON = "an event";

struct event {
  VALUE value;                  /* of the signal, Qnil when there is none */
  bool signalled;
  struct waitlist waiter;       /* one at most */
  VALUE owner;                  /* what it is part of, for reports; or Qnil */
  const char *own_reason;       /* acquired; or NULL */
};

static void event_mark(void *pointer) {
  struct event *event = pointer;

  rb_gc_mark_movable(event->value);
  rb_gc_mark_movable(event->owner);
  waitlist_mark(&event->waiter);
}

static void event_compact(void *pointer) {
  struct event *event = pointer;

  event->value = rb_gc_location(event->value);
  event->owner = rb_gc_location(event->owner);
}

static void event_free(void *pointer) {
  struct event *event = pointer;

  waitlist_free(&event->waiter);
  reason_release(event->own_reason);
  xfree(event);
}

static size_t event_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct event);
}

static const rb_data_type_t event_type = {
  .wrap_struct_name = "Polyphony::Event",
  .function = {
    .dmark    = event_mark,
    .dcompact = event_compact,
    .dsize    = event_memsize,
    .dfree    = event_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Event_allocate(VALUE klass) {
  struct event *event;
  VALUE self = TypedData_Make_Struct(klass, struct event, &event_type, event);

  event->value = event->owner = Qnil;
  waitlist_init(&event->waiter);
  return self;
}

static struct event *get(VALUE self) {
  return typed_data(self, &event_type);
}

static VALUE Event_signal(int argc, VALUE *argv, VALUE self) {
  struct event *event = get(self);
  VALUE value;

  rb_scan_args(argc, argv, "01", &value);
  RB_OBJ_WRITE(self, &event->value, value);
  event->signalled = true;
  waitlist_wake(&event->waiter, Qnil);
  return self;
}

static VALUE Event_await(VALUE self) {
  struct event *event = get(self);

  if (!waitlist_empty_p(&event->waiter))
    rb_raise(rb_eRuntimeError, "another fiber waits for this event already");
  while (!event->signalled) waitlist_park(&event->waiter, self, event->own_reason ? event->own_reason : DEFAULT_REASON);
  VALUE value = event->value;
  event->signalled = false;
  event->value = Qnil;
  return value;
}

/* Our own: who waits is then known by what for. Once. */
static VALUE Event_serve(VALUE self, VALUE owner, VALUE reason) {
  struct event *event = get(self);

  RB_OBJ_WRITE(self, &event->owner, owner);
  if (!event->own_reason) event->own_reason = reason_acquire(reason);
  return self;
}

static VALUE Event_owner(VALUE self) { return get(self)->owner; }

void class_event_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "Event", rb_cObject);

  rb_define_alloc_func(klass, Event_allocate);
  rb_define_method(klass, "signal", Event_signal, -1);
  rb_define_method(klass, "await", Event_await, 0);
  rb_define_method(klass, "__serve", Event_serve, 2);
  rb_define_method(klass, "__owner", Event_owner, 0);
}
