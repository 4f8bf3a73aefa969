/* class_waitlist.c - Polyphony::WaitList, the brick of which locks and pools are made. Layer 2. */
#include "clock.h"
#include "errors.h"
#include "io.h"
#include "waitlist.h"

static void list_mark(void *pointer) { waitlist_mark(pointer); }

static void list_free(void *pointer) {
  waitlist_free(pointer);
  xfree(pointer);
}

static size_t list_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct waitlist);
}

/* Nothing to compact: fibers are reached through their records, which do not move. */
static const rb_data_type_t list_type = {
  .wrap_struct_name = "Polyphony::WaitList",
  .function = { .dmark = list_mark, .dsize = list_memsize, .dfree = list_free },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE WaitList_allocate(VALUE klass) {
  struct waitlist *list;
  VALUE self = TypedData_Make_Struct(klass, struct waitlist, &list_type, list);

  waitlist_init(list);
  return self;
}

static struct waitlist *get(VALUE self) {
  struct waitlist *list;

  TypedData_Get_Struct(self, struct waitlist, &list_type, list);
  return list;
}

static VALUE WaitList_park(int argc, VALUE *argv, VALUE self) {
  VALUE timeout;
  bool expired;

  rb_scan_args(argc, argv, "01", &timeout);
  if (NIL_P(timeout)) return waitlist_park(get(self), self, "being woken");
  int64_t limit = io_nanoseconds(timeout);
  VALUE value = waitlist_park_for(get(self), self, "being woken", limit < 0 ? 0 : limit, &expired);
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
  rb_define_method(klass, "park", WaitList_park, -1);
  rb_define_method(klass, "wake", WaitList_wake, -1);
  rb_define_method(klass, "wake_all", WaitList_wake_all, -1);
  rb_define_method(klass, "length", WaitList_length, 0);
  rb_define_method(klass, "woken", WaitList_woken, 0);
  rb_define_method(klass, "empty?", WaitList_empty_p, 0);
}
