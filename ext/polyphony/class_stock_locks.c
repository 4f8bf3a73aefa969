/* class_stock_locks.c - Ruby's own Mutex, ConditionVariable and Monitor in fibers. Layer 2.
 *
 * In threads that have no backend, and under somebody else's scheduler, they are as Ruby made them. */
#include <time.h>
#include "errors.h"
#include "ractor.h"
#include "scheduler.h"
#include "stand_in.h"
#include "stock_lock.h"

static ID id_owned_p, id_sleep, id_wait, id_signal, id_bind_call;
static ID id_try_enter, id_enter, id_exit, id_mon_owned_p;

/* Whether a wait in the running fiber is ours to do. */
static bool ours_p(void) {
  return NIL_P(rb_fiber_scheduler_current()) ? stand_in_wanted_p() : scheduler_ours_p();
}

static VALUE probe;             /* a Mutex that is locked for no longer than a moment */

/* Ruby refuses to lock in a signal handler. */
static void refuse_in_handler(void) {
  rb_mutex_lock(probe);
  rb_mutex_unlock(probe);
}

static bool promised_p(VALUE lock) { return stock_lock_waited && stock_lock_promised_p(lock); }

/* ---- Mutex ------------------------------------------------------------------------------------ */

static VALUE cMutex;            /* Thread::Mutex */
static bool direct;             /* its methods are Ruby's: nobody has put theirs before them */

/* Who has it already gets Ruby's own error. */
static bool has_to_wait_p(VALUE mutex) {
  bool locked = RTEST(rb_mutex_locked_p(mutex));

  if (!locked && !promised_p(mutex)) return false;
  return ours_p() && !(locked && RTEST(rb_funcallv(mutex, id_owned_p, 0, NULL)));
}

static void wait_for_mutex(VALUE mutex) {
  struct stock_lock lock = { mutex, rb_mutex_trylock, mutex };

  refuse_in_handler();
  stock_lock_take(&lock);
}

static inline VALUE taken(VALUE lock) {
  if (RB_UNLIKELY(stock_lock_noting)) stock_lock_note(lock);
  return lock;
}

static inline void given_up(VALUE lock) {
  if (RB_UNLIKELY(stock_lock_noting)) stock_lock_forget(lock);
}

static VALUE Mutex_lock(VALUE self) {
  if (has_to_wait_p(self)) wait_for_mutex(self);
  else if (direct) rb_mutex_lock(self);
  else rb_call_super(0, NULL);
  return taken(self);
}

static VALUE give_up_mutex(VALUE mutex) {
  rb_mutex_unlock(mutex);
  given_up(mutex);
  if (stock_lock_waited) stock_lock_given_up(mutex);
  return mutex;
}

static VALUE Mutex_unlock(VALUE self) {
  if (direct) return give_up_mutex(self);
  rb_call_super(0, NULL);
  given_up(self);
  if (stock_lock_waited) stock_lock_given_up(self);
  return self;
}

static VALUE Mutex_synchronize(VALUE self) {
  if (!rb_block_given_p()) return rb_call_super(0, NULL);
  if (has_to_wait_p(self)) wait_for_mutex(self);
  else if (direct) rb_mutex_lock(self);
  else return rb_call_super(0, NULL);
  taken(self);
  return rb_ensure(rb_yield, Qundef, give_up_mutex, self);
}

/* ---- Mutex#sleep ------------------------------------------------------------------------------ */

/* While a fiber waits for a condition of a Monitor: the Mutex inside belongs to that. */
struct monitor_wait {
  VALUE monitor, mutex;
};

static VALUE owner_of(VALUE mutex, struct fiber_state *fiber) {
  struct monitor_wait *wait = fiber ? fiber->monitor_wait : NULL;

  return wait && wait->mutex == mutex ? wait->monitor : mutex;
}

struct nap {
  VALUE mutex, timeout;
  struct fiber_state *fiber;
  bool woken;
};

static VALUE nap(VALUE argument) {
  struct nap *nap = (struct nap *)argument;

  nap->woken = scheduler_sleep(nap->timeout);
  return Qnil;
}

static VALUE get_up(VALUE argument) {
  struct nap *nap = (struct nap *)argument;
  struct stock_lock lock = { owner_of(nap->mutex, nap->fiber), rb_mutex_trylock, nap->mutex };

  if (!RTEST(rb_mutex_trylock(nap->mutex))) stock_lock_take_firmly(&lock);
  taken(lock.lock);
  return Qnil;
}

/* What came while it locked again. */
static void raise_late_exception(struct fiber_state *fiber) {
  VALUE late = backend_base_shift_exception(fiber);

  if (late != Qundef) error_invoke(late);
}

/* Nil or a Float: another number would be asked for its parts. Raises what Ruby raises for what is none. */
static VALUE plain_time(VALUE timeout) {
  if (NIL_P(timeout)) return timeout;
  struct timeval time = rb_time_interval(timeout);
  return DBL2NUM((double)time.tv_sec + (double)time.tv_usec / 1e6);
}

/* Ruby's own sleep is about to give the lock up by itself. Who waits for the lock is told before, and finds it free:
 * from here to there nothing lets other threads run, if the time is a plain one. */
static void tell_of_sleep(VALUE mutex) {
  if (!stock_lock_waited || !ractor_main_p() || !RTEST(rb_funcallv(mutex, id_owned_p, 0, NULL))) return;
  stock_lock_given_up(owner_of(mutex, fiber_state_lookup(rb_fiber_current())));
}

static VALUE sleep_as_stock(int argc, const VALUE *argv, VALUE self) {
  VALUE timeout = argc ? plain_time(argv[0]) : Qnil;

  tell_of_sleep(self);
  return rb_call_super(argc, &timeout);
}

/* Ruby's own, in a non-blocking fiber, leaves the mutex unlocked when the sleep is broken off, or when the
 * locking is: and whoever gave it away unlocks it once more. */
static VALUE Mutex_sleep(int argc, VALUE *argv, VALUE self) {
  rb_check_arity(argc, 0, 1);
  if (!ours_p()) return sleep_as_stock(argc, argv, self);
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  struct nap resting = { self, argc ? argv[0] : Qnil, fiber, false };
  time_t begun = time(NULL);

  if (!NIL_P(resting.timeout)) rb_time_interval(resting.timeout);  /* refused before it is given away */
  rb_mutex_unlock(self);
  given_up(owner_of(self, fiber));
  if (stock_lock_waited) stock_lock_given_up(owner_of(self, fiber));
  rb_ensure(nap, (VALUE)&resting, get_up, (VALUE)&resting);
  raise_late_exception(fiber);
  return resting.woken || fiber->signalled ? LL2NUM((long long)(time(NULL) - begun)) : Qnil;
}

/* ---- ConditionVariable ------------------------------------------------------------------------- */

/* Ruby puts the running fiber into a list and calls `sleep` of whatever it was given for a Mutex. A blocking
 * fiber would be woken as a thread, so a stand-in is put into the list, and asks its caller to sleep; what
 * is to wake the one wakes the other, see stand_in_acting. */
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

/* One for which no stand-in could be had is woken as a thread. */
static VALUE Relay_sleep(VALUE self, VALUE timeout) {
  struct wait *wait = typed_data(self, &relay_type);
  wait->timeout = timeout;
  if (NIL_P(rb_fiber_scheduler_current()) && !stand_in_p() && RTEST(rb_obj_is_kind_of(wait->mutex, cMutex))) {
    timeout = plain_time(timeout);
    tell_of_sleep(wait->mutex);
    return rb_mutex_sleep(wait->mutex, timeout);
  }
  return stand_in_ask(sleep_without_lock, (VALUE)wait);
}

static VALUE wait_as_stock(VALUE argument) {
  struct wait *wait = (struct wait *)argument;
  VALUE relay = TypedData_Wrap_Struct(cRelay, &relay_type, wait);
  VALUE argv[] = { wait->condition, relay, wait->timeout };

  return rb_funcallv(stock_wait, id_bind_call, 3, argv);
}

static VALUE wait_in_list(VALUE argument) {
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
  VALUE result = rb_protect(wait_in_list, (VALUE)&wait, &state);
  bool signalled = fiber->signalled;
  fiber->signalled = fiber->unblocked = false;
  FIBER_WRITE(fiber, condition, outer);
  if (state && signalled) rb_funcallv(self, id_signal, 0, NULL);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- Monitor ------------------------------------------------------------------------------------ */

/* Ruby's own methods, by the names they have in lib/polyphony/extensions/locks.rb. */
static VALUE try_enter(VALUE monitor) { return rb_funcallv(monitor, id_try_enter, 0, NULL); }
static VALUE enter(VALUE monitor) { return rb_funcallv(monitor, id_enter, 0, NULL); }
static VALUE leave(VALUE monitor) { return rb_funcallv(monitor, id_exit, 0, NULL); }

static bool may_enter_p(VALUE monitor) {
  return !promised_p(monitor) || RTEST(rb_funcallv(monitor, id_mon_owned_p, 0, NULL));
}

static VALUE Monitor_enter(VALUE self) {
  struct stock_lock lock = { self, try_enter, self };

  if (!may_enter_p(self) || !RTEST(try_enter(self))) {
    if (!ours_p()) return enter(self);
    refuse_in_handler();
    stock_lock_take(&lock);
  }
  taken(self);
  return Qnil;
}

/* It may have been entered more than once. */
static VALUE leave_noting(VALUE monitor) {
  VALUE result = leave(monitor);

  if (!RTEST(rb_funcallv(monitor, id_mon_owned_p, 0, NULL))) stock_lock_forget(monitor);
  return result;
}

static VALUE tell(VALUE monitor) {
  stock_lock_given_up(monitor);
  return Qnil;
}

static VALUE Monitor_exit(VALUE self) {
  VALUE (*out)(VALUE) = RB_UNLIKELY(stock_lock_noting) ? leave_noting : leave;

  return stock_lock_waited ? rb_ensure(out, self, tell, self) : out(self);
}

static VALUE Monitor_synchronize(VALUE self) {
  if (!rb_block_given_p()) return rb_call_super(0, NULL);
  Monitor_enter(self);
  return rb_ensure(rb_yield, Qundef, Monitor_exit, self);
}

static VALUE cConditionRelay;   /* Polyphony::StockLocks::ConditionRelay, never shown */

struct condition_wait {
  struct monitor_wait monitor_wait;
  VALUE condition;
};

static const rb_data_type_t condition_relay_type = {
  .wrap_struct_name = "Polyphony::StockLocks::ConditionRelay",
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

/* Here we learn which Mutex is inside. */
static VALUE ConditionRelay_wait(VALUE self, VALUE mutex, VALUE timeout) {
  struct condition_wait *wait = typed_data(self, &condition_relay_type);
  wait->monitor_wait.mutex = mutex;
  return rb_funcall(wait->condition, id_wait, 2, mutex, timeout);
}

struct monitor_call {
  VALUE argv[2];
};

static VALUE wait_for_cond(VALUE argument) {
  return rb_call_super(2, ((struct monitor_call *)argument)->argv);
}

static VALUE forget_monitor_wait(VALUE argument) {
  ((struct fiber_state *)argument)->monitor_wait = NULL;
  return Qnil;
}

static VALUE Monitor_wait_for_cond(VALUE self, VALUE condition, VALUE timeout) {
  if (!ractor_main_p()) {
    VALUE argv[] = { condition, timeout };
    return rb_call_super(2, argv);
  }
  struct condition_wait wait = { { self, Qnil }, condition };
  bool ours = ours_p();         /* if not, those who wait for the monitor are to be told all the same */
  struct fiber_state *fiber = ours ? backend_base_fiber(backend_base_current()) : fiber_state_of(rb_fiber_current());
  struct monitor_call call = { { TypedData_Wrap_Struct(cConditionRelay, &condition_relay_type, &wait), timeout } };

  fiber->monitor_wait = &wait.monitor_wait;
  return rb_ensure(wait_for_cond, (VALUE)&call, forget_monitor_wait, (VALUE)fiber);
}

/* ---- loading ------------------------------------------------------------------------------------ */

static void find_names(void) {
  id_owned_p = rb_intern("owned?");
  id_sleep = rb_intern("sleep");
  id_wait = rb_intern("wait");
  id_signal = rb_intern("signal");
  id_bind_call = rb_intern("bind_call");
  id_try_enter = rb_intern("__polyphony_try_enter");
  id_enter = rb_intern("__polyphony_enter");
  id_exit = rb_intern("__polyphony_exit");
  id_mon_owned_p = rb_intern("mon_owned?");
}

static VALUE instance_method(const char *path, const char *name) {
  return rb_funcall(rb_path2class(path), rb_intern("instance_method"), 1, ID2SYM(rb_intern(name)));
}

static void define_mutex(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "Mutex");

  rb_define_method(module, "lock", Mutex_lock, 0);
  rb_define_method(module, "unlock", Mutex_unlock, 0);
  rb_define_method(module, "synchronize", Mutex_synchronize, 0);
  rb_define_method(module, "sleep", Mutex_sleep, -1);
  rb_gc_register_address(&probe);
  probe = rb_mutex_new();
  rb_gc_register_address(&cMutex);
  cMutex = rb_path2class("Thread::Mutex");
  direct = rb_funcall(instance_method("Thread::Mutex", "lock"), rb_intern("owner"), 0) == cMutex;
}

static VALUE define_relay(VALUE *address, VALUE locks, const char *name) {
  rb_gc_register_address(address);
  *address = rb_define_class_under(locks, name, rb_cObject);
  rb_undef_alloc_func(*address);
  return *address;
}

static void define_condition(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "ConditionVariable");

  rb_define_method(module, "wait", Condition_wait, -1);
  rb_gc_register_address(&stock_wait);
  stock_wait = instance_method("Thread::ConditionVariable", "wait");
  rb_define_method(define_relay(&cRelay, locks, "Relay"), "sleep", Relay_sleep, 1);
}

static void define_monitor(VALUE locks) {
  VALUE module = rb_define_module_under(locks, "Monitor");

  rb_define_method(module, "enter", Monitor_enter, 0);
  rb_define_method(module, "mon_enter", Monitor_enter, 0);
  rb_define_method(module, "exit", Monitor_exit, 0);
  rb_define_method(module, "mon_exit", Monitor_exit, 0);
  rb_define_method(module, "synchronize", Monitor_synchronize, 0);
  rb_define_method(module, "mon_synchronize", Monitor_synchronize, 0);
  rb_define_method(module, "wait_for_cond", Monitor_wait_for_cond, 2);
  VALUE relay = define_relay(&cConditionRelay, locks, "ConditionRelay");
  rb_define_method(relay, "wait", ConditionRelay_wait, 2);
}

/* For reports. */
static VALUE Waiters_lock(VALUE self) { return stock_lock_subject(self); }
static VALUE Waiters_holders(VALUE self) { return stock_lock_holders(self); }

static VALUE StockLocks_set_noting(VALUE self, VALUE on) {
  (void)self;
  stock_lock_set_noting(RTEST(on));
  return on;
}

/* For tests: a wake that was lost by a mistake of ours would only be late. */
static VALUE StockLocks_unseen(VALUE self) {
  (void)self;
  return UINT2NUM(stock_lock_unseen);
}

void class_stock_locks_init(void) {
  stock_lock_init();
  VALUE locks = rb_const_get(mPolyphony, rb_intern("StockLocks"));

  find_names();
  define_mutex(locks);
  define_condition(locks);
  define_monitor(locks);
  rb_define_method(stock_lock_class(), "lock", Waiters_lock, 0);
  rb_define_method(stock_lock_class(), "holders", Waiters_holders, 0);
  rb_define_singleton_method(locks, "noting=", StockLocks_set_noting, 1);
  rb_define_singleton_method(locks, "unseen", StockLocks_unseen, 0);
}
