/* class_waitlist.c - Polyphony::WaitList, the brick of which locks and pools are made. Layer 2. */
#include "clock.h"
#include "errors.h"
#include "io.h"
#include "reason.h"
#include "waitlist.h"

static const char *const DEFAULT_REASON = "being woken";

struct face {
  struct waitlist list;
  VALUE owner;                  /* the lock, pool ... it is part of, for reports; or Qnil */
  const char *reason;           /* own_reason, or DEFAULT_REASON */
  const char *own_reason;       /* acquired; or NULL */
};

static void face_mark(void *pointer) {
  struct face *face = pointer;

  waitlist_mark(&face->list);
  rb_gc_mark_movable(face->owner);
}

/* Fibers are reached through their records, which do not move. */
static void face_compact(void *pointer) {
  struct face *face = pointer;

  face->owner = rb_gc_location(face->owner);
}

static void face_free(void *pointer) {
  struct face *face = pointer;

  waitlist_free(&face->list);
  reason_release(face->own_reason);
  xfree(face);
}

static size_t face_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct face);
}

static const rb_data_type_t face_type = {
  .wrap_struct_name = "Polyphony::WaitList",
  .function = {
    .dmark    = face_mark,
    .dcompact = face_compact,
    .dsize    = face_memsize,
    .dfree    = face_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE WaitList_allocate(VALUE klass) {
  struct face *face;
  VALUE self = TypedData_Make_Struct(klass, struct face, &face_type, face);

  waitlist_init(&face->list);
  face->owner = Qnil;
  face->reason = DEFAULT_REASON;
  return self;
}

static struct face *face_of(VALUE self) {
  return typed_data(self, &face_type);
}

static struct waitlist *get(VALUE self) { return &face_of(self)->list; }

static VALUE WaitList_initialize(int argc, VALUE *argv, VALUE self) {
  struct face *face = face_of(self);
  VALUE owner, reason;

  rb_scan_args(argc, argv, "02", &owner, &reason);
  RB_OBJ_WRITE(self, &face->owner, owner);
  if (NIL_P(reason)) return self;
  const char *before = face->own_reason;
  face->reason = face->own_reason = reason_acquire(reason);
  reason_release(before);
  return self;
}

static VALUE WaitList_owner(VALUE self) { return face_of(self)->owner; }

static VALUE WaitList_park(int argc, VALUE *argv, VALUE self) {
  struct face *face = face_of(self);
  VALUE timeout;
  bool expired;

  rb_scan_args(argc, argv, "01", &timeout);
  if (NIL_P(timeout)) return waitlist_park(&face->list, self, face->reason);
  int64_t limit = io_nanoseconds(timeout);
  VALUE value = waitlist_park_for(&face->list, self, face->reason, limit < 0 ? 0 : limit, &expired);
  return expired ? Qfalse : value;
}

static VALUE WaitList_wake(int argc, VALUE *argv, VALUE self) {
  VALUE value;

  rb_scan_args(argc, argv, "01", &value);
  return waitlist_wake(get(self), argc ? value : Qtrue) ? Qtrue : Qfalse;
}

static VALUE WaitList_wake_all(int argc, VALUE *argv, VALUE self) {
  VALUE value;
  unsigned count = get(self)->length;

  rb_scan_args(argc, argv, "01", &value);
  waitlist_wake_all(get(self), argc ? value : Qtrue);
  return UINT2NUM(count);
}

static VALUE WaitList_length(VALUE self) { return UINT2NUM(get(self)->length); }
static VALUE WaitList_woken(VALUE self) { return UINT2NUM(get(self)->woken); }
static VALUE WaitList_empty_p(VALUE self) { return get(self)->length ? Qfalse : Qtrue; }

void class_waitlist_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "WaitList", rb_cObject);

  rb_define_alloc_func(klass, WaitList_allocate);
  rb_define_method(klass, "initialize", WaitList_initialize, -1);
  rb_define_method(klass, "owner", WaitList_owner, 0);
  rb_define_method(klass, "park", WaitList_park, -1);
  rb_define_method(klass, "wake", WaitList_wake, -1);
  rb_define_method(klass, "wake_all", WaitList_wake_all, -1);
  rb_define_method(klass, "length", WaitList_length, 0);
  rb_define_method(klass, "woken", WaitList_woken, 0);
  rb_define_method(klass, "empty?", WaitList_empty_p, 0);
}
