/* class_stock_locks.c - Ruby's own Mutex, ConditionVariable and Monitor in fibers. Layer 2.
 *
 * In a non-blocking fiber Ruby's own code asks the scheduler. A lock belongs to the fiber that took it,
 * so in a blocking fiber it cannot be taken by a stand-in: that one waits in Ruby's list for its turn,
 * gives the lock up again and asks its caller to take it before anybody else runs. */
#include <time.h>
#include "errors.h"
#include "scheduler.h"
#include "stand_in.h"

static ID id_owned_p, id_sleep, id_signal, id_bind_call, id_try_enter, id_enter, id_exit;

/* Whether a wait in the running fiber is ours to do. */
static bool ours_p(void) {
  return NIL_P(rb_fiber_scheduler_current()) ? stand_in_wanted_p() : scheduler_ours_p();
}

/* ---- Mutex ------------------------------------------------------------------------------------ */

static bool direct;             /* Mutex#lock is Ruby's: nobody has put a method of theirs before it */
static VALUE probe;             /* a Mutex that is locked for no longer than a moment */

static VALUE lock_in_turn(VALUE mutex) {
  do {
    rb_mutex_lock(mutex);
    rb_mutex_unlock(mutex);
  } while (!RTEST(stand_in_ask(rb_mutex_trylock, mutex)));
  return mutex;
}

static VALUE lock_in_turn_firmly(VALUE mutex) {
  scheduler_lock_firmly(mutex, lock_in_turn);
  return mutex;
}

static bool waits_by_stand_in_p(VALUE mutex) {
  if (!RTEST(rb_mutex_locked_p(mutex)) || !stand_in_wanted_p()) return false;
  return !RTEST(rb_funcallv(mutex, id_owned_p, 0, NULL));
}

/* A stand-in is in no signal handler, where Ruby refuses to lock. */
static void refuse_in_handler(void) {
  rb_mutex_lock(probe);
  rb_mutex_unlock(probe);
}

static VALUE Mutex_lock(VALUE self) {
  if (!waits_by_stand_in_p(self)) return direct ? rb_mutex_lock(self) : rb_call_super(0, NULL);
  refuse_in_handler();
  return stand_in_run(lock_in_turn, self);
}

static VALUE Mutex_synchronize(VALUE self) {
  if (!rb_block_given_p() || !waits_by_stand_in_p(self)) {
    if (!direct || !rb_block_given_p()) return rb_call_super(0, NULL);
    return rb_mutex_synchronize(self, rb_yield, Qundef);
  }
  Mutex_lock(self);
  return rb_ensure(rb_yield, Qundef, rb_mutex_unlock, self);
}

static void lock_again(VALUE mutex) {
  if (!NIL_P(rb_fiber_scheduler_current())) scheduler_lock_firmly(mutex, rb_mutex_lock);
  else if (!RTEST(rb_mutex_trylock(mutex))) stand_in_run(lock_in_turn_firmly, mutex);
}

struct nap {
  VALUE mutex, timeout;
  bool woken;
};

static VALUE nap(VALUE argument) {
  struct nap *nap = (struct nap *)argument;

  nap->woken = scheduler_sleep(nap->timeout);
  return Qnil;
}

static VALUE get_up(VALUE argument) {
  lock_again(((struct nap *)argument)->mutex);
  return Qnil;
}

/* What came while it locked again. */
static void raise_late_exception(void) {
  VALUE late = backend_base_shift_exception(backend_base_fiber(backend_base_current()));

  if (late != Qundef) error_invoke(late);
}

/* Ruby's own, in a non-blocking fiber, leaves the mutex unlocked when the sleep is broken off, or when the
 * locking is: and whoever gave it away unlocks it once more. */
static VALUE Mutex_sleep(int argc, VALUE *argv, VALUE self) {
  rb_check_arity(argc, 0, 1);
  if (!ours_p()) return rb_call_super(argc, argv);
  struct nap resting = { self, argc ? argv[0] : Qnil, false };
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  time_t begun = time(NULL);

  if (!NIL_P(resting.timeout)) rb_time_interval(resting.timeout);  /* refused before it is given away */
  rb_mutex_unlock(self);
  rb_ensure(nap, (VALUE)&resting, get_up, (VALUE)&resting);
  raise_late_exception();
  return resting.woken || fiber->signalled ? LL2NUM((long long)(time(NULL) - begun)) : Qnil;
}

/* ---- ConditionVariable ------------------------------------------------------------------------- */

static VALUE cRelay;            /* Polyphony::StockLocks::Relay, never shown */
static VALUE stock_wait;        /* UnboundMethod */

struct wait {
  VALUE condition, mutex, timeout;
};

static const rb_data_type_t relay_type = {
  .wrap_struct_name = "Polyphony::StockLocks::Relay",
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE sleep_without_lock(VALUE argument) {
  struct wait *wait = (struct wait *)argument;

  return rb_funcallv(wait->mutex, id_sleep, 1, &wait->timeout);
}

/* Ruby has put the running fiber into the list of the condition variable. If that is a stand-in, the lock
 * is the caller's to give away. One for which no stand-in could be had is woken as a thread. */
static VALUE Relay_sleep(VALUE self, VALUE timeout) {
  struct wait *wait;

  TypedData_Get_Struct(self, struct wait, &relay_type, wait);
  wait->timeout = timeout;
  if (NIL_P(rb_fiber_scheduler_current()) && !stand_in_p() && RB_TYPE_P(wait->mutex, T_DATA))
    return rb_mutex_sleep(wait->mutex, timeout);
  return stand_in_ask(sleep_without_lock, (VALUE)wait);
}

static VALUE wait_as_stock(VALUE argument) {
  struct wait *wait = (struct wait *)argument;
  VALUE relay = TypedData_Wrap_Struct(cRelay, &relay_type, wait);
  VALUE argv[] = { wait->condition, relay, wait->timeout };

  return rb_funcallv(stock_wait, id_bind_call, 3, argv);
}

static VALUE wait_in_turn(VALUE argument) {
  if (!NIL_P(rb_fiber_scheduler_current())) return wait_as_stock(argument);
  return stand_in_run(wait_as_stock, argument);
}

/* A signal that comes when the wait has been broken off already is the next one's. */
static VALUE Condition_wait(int argc, VALUE *argv, VALUE self) {
  rb_check_arity(argc, 1, 2);
  if (!ours_p()) return rb_call_super(argc, argv);
  struct wait wait = { self, argv[0], argc > 1 ? argv[1] : Qnil };
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  VALUE outer = fiber->condition;
  int state;

  FIBER_WRITE(fiber, condition, self);
  fiber->signalled = fiber->unblocked = false;
  VALUE result = rb_protect(wait_in_turn, (VALUE)&wait, &state);
  bool signalled = fiber->signalled;
  fiber->signalled = false;
  FIBER_WRITE(fiber, condition, outer);
  if (state && signalled) rb_funcallv(self, id_signal, 0, NULL);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- Monitor ------------------------------------------------------------------------------------ */

static bool try_enter(VALUE monitor) { return RTEST(rb_funcallv(monitor, id_try_enter, 0, NULL)); }

static VALUE try_enter_value(VALUE monitor) { return rb_funcallv(monitor, id_try_enter, 0, NULL); }

static VALUE enter_in_turn(VALUE monitor) {
  do {
    rb_funcallv(monitor, id_enter, 0, NULL);
    rb_funcallv(monitor, id_exit, 0, NULL);
  } while (!RTEST(stand_in_ask(try_enter_value, monitor)));
  return Qnil;
}

/* False: it is to be done as stock. */
static bool entered_p(VALUE monitor) {
  if (!NIL_P(rb_fiber_scheduler_current())) return false;
  if (try_enter(monitor)) return true;
  if (!stand_in_wanted_p()) return false;
  refuse_in_handler();
  stand_in_run(enter_in_turn, monitor);
  return true;
}

static VALUE Monitor_enter(VALUE self) { return entered_p(self) ? Qnil : rb_call_super(0, NULL); }

static VALUE leave_monitor(VALUE monitor) { return rb_funcallv(monitor, id_exit, 0, NULL); }

static VALUE Monitor_synchronize(VALUE self) {
  if (!rb_block_given_p() || !entered_p(self)) return rb_call_super(0, NULL);
  return rb_ensure(rb_yield, Qundef, leave_monitor, self);
}

/* ---- loading ------------------------------------------------------------------------------------ */

static void find_names(void) {
  id_owned_p = rb_intern("owned?");
  id_sleep = rb_intern("sleep");
  id_signal = rb_intern("signal");
  id_bind_call = rb_intern("bind_call");
  id_try_enter = rb_intern("try_enter");
  id_enter = rb_intern("__polyphony_enter");
  id_exit = rb_intern("exit");
}

static VALUE instance_method(const char *path, const char *name) {
  return rb_funcall(rb_path2class(path), rb_intern("instance_method"), 1, ID2SYM(rb_intern(name)));
}

static void define_mutex(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "Mutex");

  rb_define_method(module, "lock", Mutex_lock, 0);
  rb_define_method(module, "synchronize", Mutex_synchronize, 0);
  rb_define_method(module, "sleep", Mutex_sleep, -1);
  rb_gc_register_address(&probe);
  probe = rb_mutex_new();
  VALUE owner = rb_funcall(instance_method("Thread::Mutex", "lock"), rb_intern("owner"), 0);
  direct = owner == rb_path2class("Thread::Mutex");
}

static void define_condition(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "ConditionVariable");

  rb_define_method(module, "wait", Condition_wait, -1);
  rb_gc_register_address(&stock_wait);
  stock_wait = instance_method("Thread::ConditionVariable", "wait");
  rb_gc_register_address(&cRelay);
  cRelay = rb_define_class_under(locks, "Relay", rb_cObject);
  rb_undef_alloc_func(cRelay);
  rb_define_method(cRelay, "sleep", Relay_sleep, 1);
}

/* Prepended, and told of Ruby's own methods, by lib/polyphony/extensions/locks.rb. */
static void define_monitor(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "Monitor");

  rb_define_method(module, "enter", Monitor_enter, 0);
  rb_define_method(module, "mon_enter", Monitor_enter, 0);
  rb_define_method(module, "synchronize", Monitor_synchronize, 0);
  rb_define_method(module, "mon_synchronize", Monitor_synchronize, 0);
}

void class_stock_locks_init(void) {
  VALUE locks = rb_define_module_under(mPolyphony, "StockLocks");

  find_names();
  define_mutex(locks);
  define_condition(locks);
  define_monitor(locks);
}
