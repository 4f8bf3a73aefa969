/* class_mutex.c - Polyphony::Mutex and Monitor, between fibers and threads. Layer 2.
 *
 * Everything happens under the GVL, and between looking at the lock and parking nothing runs that
 * could let another thread in. Whoever unlocks wakes the first in line, and the lock then is
 * neither held nor free until that one runs: newcomers see that somebody was woken and line up. If
 * an exception comes first, the list wakes the next one. */
#include "clock.h"
#include "errors.h"
#include "holding.h"
#include "io.h"
#include "mutex.h"
#include "waitlist.h"

static const char *const REASON = "a lock";

struct mutex {
  struct holding holding;
  unsigned entries;             /* how often the holder has entered; 0 when nobody has it */
  struct waitlist waiting;
};

static void mutex_mark(void *pointer) {
  struct mutex *mutex = pointer;

  holding_mark(&mutex->holding);
  waitlist_mark(&mutex->waiting);
}

static void mutex_compact(void *pointer) { holding_compact(&((struct mutex *)pointer)->holding); }

static void mutex_free(void *pointer) {
  struct mutex *mutex = pointer;

  holding_free(&mutex->holding);
  waitlist_free(&mutex->waiting);
  xfree(mutex);
}

static size_t mutex_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct mutex);
}

static const rb_data_type_t mutex_type = {
  .wrap_struct_name = "Polyphony::Mutex",
  .function = {
    .dmark    = mutex_mark,
    .dcompact = mutex_compact,
    .dsize    = mutex_memsize,
    .dfree    = mutex_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void let_go(struct mutex *mutex) {
  mutex->entries = 0;
  holding_drop(&mutex->holding);
  waitlist_wake(&mutex->waiting, Qtrue);
}

static void holder_ended(struct holding *holding) {
  let_go((struct mutex *)((char *)holding - offsetof(struct mutex, holding)));
}

static VALUE Mutex_allocate(VALUE klass) {
  struct mutex *mutex;
  VALUE self = TypedData_Make_Struct(klass, struct mutex, &mutex_type, mutex);

  holding_init(&mutex->holding, holder_ended);
  waitlist_init(&mutex->waiting);
  return self;
}

static struct mutex *get(VALUE self) {
  return typed_data(self, &mutex_type);
}

bool mutex_p(VALUE object) { return rb_typeddata_is_kind_of(object, &mutex_type); }

/* ---- taking and giving ---------------------------------------------------------------------- */

static bool mine_p(const struct mutex *mutex) {
  return mutex->holding.fiber == rb_fiber_current();
}

static bool free_p(const struct mutex *mutex) {
  return NIL_P(mutex->holding.fiber) && !mutex->waiting.woken;
}

static bool take_if_free(VALUE self, struct mutex *mutex) {
  if (!free_p(mutex)) return false;
  holding_take(&mutex->holding, self);
  mutex->entries = 1;
  if (!waitlist_empty_p(&mutex->waiting)) holding_watch(&mutex->holding);
  return true;
}

/* Whether the holder lives is asked in Ruby, which may let other threads run: what was true before
 * is looked at again. */
static void take_from_the_dead(struct mutex *mutex) {
  VALUE holder = mutex->holding.fiber;

  if (holding_over_p(&mutex->holding) && mutex->holding.fiber == holder) let_go(mutex);
}

static bool try(VALUE self, struct mutex *mutex) {
  if (take_if_free(self, mutex)) return true;
  take_from_the_dead(mutex);
  return take_if_free(self, mutex);
}

static bool take_or_line_up(VALUE self, struct mutex *mutex) {
  if (try(self, mutex)) return true;
  holding_watch(&mutex->holding);
  return false;
}

static void acquire(VALUE self, struct mutex *mutex) {
  if (take_if_free(self, mutex)) return;
  backend_base_fiber(backend_base_current());  /* opened now: other threads may run meanwhile */
  while (!take_or_line_up(self, mutex)) waitlist_park(&mutex->waiting, self, REASON);
}

static void check_mine(const struct mutex *mutex) {
  if (mine_p(mutex)) return;
  if (NIL_P(mutex->holding.fiber)) rb_raise(rb_eThreadError, "this lock is not locked");
  rb_raise(rb_eThreadError, "this lock is held by %"PRIsVALUE", not by the current fiber",
           rb_inspect(mutex->holding.fiber));
}

unsigned mutex_release(VALUE self) {
  struct mutex *mutex = get(self);
  unsigned entries = mutex->entries;

  check_mine(mutex);
  let_go(mutex);
  return entries;
}

struct reacquiring {
  VALUE self;
  unsigned entries;
};

static bool taken_again_p(VALUE argument) {
  struct reacquiring *reacquiring = (struct reacquiring *)argument;
  struct mutex *mutex = get(reacquiring->self);

  if (!take_or_line_up(reacquiring->self, mutex)) return false;
  mutex->entries = reacquiring->entries;
  return true;
}

void mutex_reacquire(VALUE self, unsigned entries) {
  struct reacquiring reacquiring = { self, entries };

  waitlist_wait_firmly(&get(self)->waiting, self, REASON, taken_again_p, (VALUE)&reacquiring);
}

/* ---- Mutex ---------------------------------------------------------------------------------- */

static void check_not_mine(const struct mutex *mutex) {
  if (mine_p(mutex)) rb_raise(rb_eThreadError, "the current fiber holds this lock already");
}

static VALUE Mutex_lock(VALUE self) {
  struct mutex *mutex = get(self);

  check_not_mine(mutex);
  acquire(self, mutex);
  return self;
}

static VALUE Mutex_unlock(VALUE self) {
  mutex_release(self);
  return self;
}

static VALUE Mutex_try_lock(VALUE self) { return try(self, get(self)) ? Qtrue : Qfalse; }

struct section {
  VALUE self;
  struct mutex *mutex;          /* of self */
  VALUE (*leave)(VALUE);
  bool done;                    /* the block came to its end */
};

static VALUE run_section(VALUE argument) {
  VALUE result = rb_yield_values(0);

  ((struct section *)argument)->done = true;
  return result;
}

/* An exception is not hidden by another one that says that the block has unlocked it already. */
static VALUE leave_section(VALUE argument) {
  struct section *section = (struct section *)argument;

  return section->done || mine_p(section->mutex) ? section->leave(section->self) : Qnil;
}

static VALUE run_inside(VALUE self, struct mutex *mutex, VALUE (*leave)(VALUE)) {
  struct section section = { self, mutex, leave, false };

  return rb_ensure(run_section, (VALUE)&section, leave_section, (VALUE)&section);
}

static void need_block(void) {
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "synchronize needs a block to run");
}

static VALUE Mutex_synchronize(VALUE self) {
  struct mutex *mutex = get(self);

  need_block();
  if (mine_p(mutex)) return rb_yield_values(0);
  acquire(self, mutex);
  return run_inside(self, mutex, Mutex_unlock);
}

static VALUE Mutex_owned_p(VALUE self) { return mine_p(get(self)) ? Qtrue : Qfalse; }

static VALUE Mutex_locked_p(VALUE self) {
  struct mutex *mutex = get(self);

  take_from_the_dead(mutex);
  return mutex->holding.fiber;
}

static VALUE Mutex_holders(VALUE self) { return holding_report(&get(self)->holding); }

static VALUE Mutex_conditional_release(VALUE self) { return UINT2NUM(mutex_release(self)); }

static VALUE Mutex_conditional_reacquire(int argc, VALUE *argv, VALUE self) {
  VALUE number;

  rb_scan_args(argc, argv, "01", &number);
  long entries = NIL_P(number) ? 1 : NUM2LONG(number);
  if (entries < 1 || entries > INT_MAX)
    rb_raise(rb_eArgError, "a lock is entered at least once, got %ld", entries);
  check_not_mine(get(self));
  mutex_reacquire(self, (unsigned)entries);
  return self;
}

struct rest {
  VALUE self;
  unsigned entries;
  int64_t duration;             /* ns; -1: until it is scheduled */
};

static VALUE rest(VALUE argument) { return io_sleep(((struct rest *)argument)->duration); }

static VALUE come_back(VALUE argument) {
  struct rest *rest = (struct rest *)argument;

  mutex_reacquire(rest->self, rest->entries);
  return Qnil;
}

static int64_t checked_duration(VALUE timeout) {
  if (NIL_P(timeout)) return -1;
  int64_t duration = io_nanoseconds(timeout);
  if (duration < 0)
    rb_raise(rb_eArgError, "a lock cannot sleep for %"PRIsVALUE" seconds", rb_inspect(timeout));
  return duration;
}

static VALUE Mutex_sleep(int argc, VALUE *argv, VALUE self) {
  VALUE timeout;

  rb_scan_args(argc, argv, "01", &timeout);
  struct rest resting = { self, 0, checked_duration(timeout) };
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  int64_t begun = clock_now();
  resting.entries = mutex_release(self);
  rb_ensure(rest, (VALUE)&resting, come_back, (VALUE)&resting);
  VALUE late = backend_base_shift_exception(fiber);
  if (late != Qundef) error_invoke(late);
  return LL2NUM((clock_now() - begun + NSEC_PER_SEC / 2) / NSEC_PER_SEC);
}

/* ---- Monitor -------------------------------------------------------------------------------- */

static VALUE Monitor_enter(VALUE self) {
  struct mutex *mutex = get(self);

  if (mine_p(mutex)) mutex->entries++;
  else acquire(self, mutex);
  return self;
}

static VALUE Monitor_exit(VALUE self) {
  struct mutex *mutex = get(self);

  check_mine(mutex);
  if (--mutex->entries == 0) let_go(mutex);
  return self;
}

static VALUE Monitor_try_enter(VALUE self) {
  struct mutex *mutex = get(self);

  if (!mine_p(mutex)) return Mutex_try_lock(self);
  mutex->entries++;
  return Qtrue;
}

static VALUE Monitor_synchronize(VALUE self) {
  need_block();
  Monitor_enter(self);
  return run_inside(self, get(self), Monitor_exit);
}

static VALUE Monitor_locked_p(VALUE self) { return NIL_P(Mutex_locked_p(self)) ? Qfalse : Qtrue; }

static VALUE Monitor_check_owner(VALUE self) {
  check_mine(get(self));
  return Qnil;
}

static void define_names(VALUE klass, const char *const *names, VALUE (*method)(VALUE)) {
  for (; *names; names++) rb_define_method(klass, *names, method, 0);
}

static void define_monitor(VALUE cMutex) {
  static const char *const enter[] = { "enter", "mon_enter", "lock", NULL };
  static const char *const leave[] = { "exit", "mon_exit", "unlock", NULL };
  static const char *const try[] = { "try_enter", "try_mon_enter", "mon_try_enter", "try_lock",
                                     NULL };
  static const char *const synchronize[] = { "synchronize", "mon_synchronize", NULL };
  VALUE klass = rb_define_class_under(mPolyphony, "Monitor", cMutex);

  define_names(klass, enter, Monitor_enter);
  define_names(klass, leave, Monitor_exit);
  define_names(klass, try, Monitor_try_enter);
  define_names(klass, synchronize, Monitor_synchronize);
  rb_define_method(klass, "mon_locked?", Monitor_locked_p, 0);
  rb_define_method(klass, "mon_owned?", Mutex_owned_p, 0);
  rb_define_method(klass, "mon_check_owner", Monitor_check_owner, 0);
}

void class_mutex_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "Mutex", rb_cObject);

  rb_define_alloc_func(klass, Mutex_allocate);
  rb_define_method(klass, "lock", Mutex_lock, 0);
  rb_define_method(klass, "unlock", Mutex_unlock, 0);
  rb_define_method(klass, "try_lock", Mutex_try_lock, 0);
  rb_define_method(klass, "synchronize", Mutex_synchronize, 0);
  rb_define_method(klass, "owned?", Mutex_owned_p, 0);
  rb_define_method(klass, "locked?", Mutex_locked_p, 0);
  rb_define_method(klass, "holders", Mutex_holders, 0);
  rb_define_method(klass, "sleep", Mutex_sleep, -1);
  rb_define_method(klass, "conditional_release", Mutex_conditional_release, 0);
  rb_define_method(klass, "conditional_reacquire", Mutex_conditional_reacquire, -1);
  define_monitor(klass);
}
