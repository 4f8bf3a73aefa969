/* class_condition.c - Polyphony::ConditionVariable. Layer 2.
 *
 * Whoever waits gives up its lock first. A signal that comes between that and parking is seen by
 * its number, so it is not lost; with a lock of our own nothing comes between. A signal whose fiber
 * is cancelled before it could act on it goes to the next one. */
#include "errors.h"
#include "io.h"
#include "mutex.h"
#include "waitlist.h"

struct condition {
  struct waitlist waiting;
  unsigned signals;             /* how many there were so far */
};

static void condition_mark(void *pointer) {
  waitlist_mark(&((struct condition *)pointer)->waiting);
}

/* Fibers are reached through their records, which do not move. */
static void condition_compact(void *pointer) { (void)pointer; }

static void condition_free(void *pointer) {
  waitlist_free(&((struct condition *)pointer)->waiting);
  xfree(pointer);
}

static size_t condition_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct condition);
}

static const rb_data_type_t condition_type = {
  .wrap_struct_name = "Polyphony::ConditionVariable",
  .function = {
    .dmark    = condition_mark,
    .dcompact = condition_compact,
    .dsize    = condition_memsize,
    .dfree    = condition_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE ConditionVariable_allocate(VALUE klass) {
  struct condition *condition;
  VALUE self = TypedData_Make_Struct(klass, struct condition, &condition_type, condition);

  waitlist_init(&condition->waiting);
  return self;
}

static struct condition *get(VALUE self) {
  return typed_data(self, &condition_type);
}

/* ---- locks, ours and others ----------------------------------------------------------------- */

struct lock {
  VALUE object;
  ID release, reacquire;        /* 0 for one of ours */
  unsigned entries;             /* of ours, while it is released */
};

static bool answers_p(VALUE object, const char *first, const char *second) {
  return rb_respond_to(object, rb_intern(first)) && rb_respond_to(object, rb_intern(second));
}

static struct lock lock_of(VALUE object) {
  if (mutex_p(object)) return (struct lock){ object, 0, 0, 0 };
  if (answers_p(object, "conditional_release", "conditional_reacquire"))
    return (struct lock){ object, rb_intern("conditional_release"),
                          rb_intern("conditional_reacquire"), 0 };
  if (answers_p(object, "unlock", "lock"))
    return (struct lock){ object, rb_intern("unlock"), rb_intern("lock"), 0 };
  rb_raise(rb_eTypeError, "expected a lock to wait without, got %"PRIsVALUE, rb_inspect(object));
}

static void release(struct lock *lock) {
  if (lock->release) rb_funcall(lock->object, lock->release, 0);
  else lock->entries = mutex_release(lock->object);
}

static void reacquire(struct lock *lock) {
  if (lock->reacquire) rb_funcall(lock->object, lock->reacquire, 0);
  else mutex_reacquire(lock->object, lock->entries);
}

/* ---- Ruby ----------------------------------------------------------------------------------- */

struct wait {
  VALUE self;
  struct lock lock;
  int64_t timeout;              /* ns; -1: none */
  unsigned signals;             /* when it released the lock */
};

static VALUE park(VALUE argument) {
  static const char *const REASON = "a condition";
  struct wait *wait = (struct wait *)argument;
  struct condition *condition = get(wait->self);
  bool expired = false;

  if (condition->signals != wait->signals) return Qtrue;
  if (wait->timeout < 0) waitlist_park(&condition->waiting, wait->self, REASON);
  else waitlist_park_for(&condition->waiting, wait->self, REASON, wait->timeout, &expired);
  return expired ? Qfalse : Qtrue;
}

static VALUE come_back(VALUE argument) {
  reacquire(&((struct wait *)argument)->lock);
  return Qnil;
}

/* What came while it waited for the lock. */
static void raise_late(VALUE self, struct fiber_state *fiber, VALUE signalled) {
  VALUE exception = backend_base_shift_exception(fiber);

  if (exception == Qundef) return;
  if (RTEST(signalled)) waitlist_wake(&get(self)->waiting, Qtrue);
  error_invoke(exception);
}

static VALUE ConditionVariable_wait(int argc, VALUE *argv, VALUE self) {
  VALUE lock, timeout;

  rb_scan_args(argc, argv, "11", &lock, &timeout);
  struct wait wait = { self, lock_of(lock), io_period(timeout), 0 };
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  wait.signals = get(self)->signals;
  release(&wait.lock);
  VALUE signalled = rb_ensure(park, (VALUE)&wait, come_back, (VALUE)&wait);
  raise_late(self, fiber, signalled);
  return signalled;
}

static VALUE ConditionVariable_signal(VALUE self) {
  struct condition *condition = get(self);

  condition->signals++;
  waitlist_wake(&condition->waiting, Qtrue);
  return self;
}

static VALUE ConditionVariable_broadcast(VALUE self) {
  struct condition *condition = get(self);

  condition->signals++;
  waitlist_wake_all(&condition->waiting, Qtrue);
  return self;
}

void class_condition_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "ConditionVariable", rb_cObject);

  rb_define_alloc_func(klass, ConditionVariable_allocate);
  rb_define_method(klass, "wait", ConditionVariable_wait, -1);
  rb_define_method(klass, "signal", ConditionVariable_signal, 0);
  rb_define_method(klass, "broadcast", ConditionVariable_broadcast, 0);
}
