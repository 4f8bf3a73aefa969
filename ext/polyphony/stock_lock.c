/* stock_lock.c - see stock_lock.h */
#include "stock_lock.h"
#include "clock.h"
#include "ractor.h"

static const char *const REASON = "a lock";
static const int64_t LOOK_EVERY = NSEC_PER_SEC / 10;

unsigned stock_lock_waited, stock_lock_unseen;
static int64_t last_look;
static VALUE cWaiters;          /* Polyphony::StockLocks::Waiters, never shown */
static VALUE all;               /* Hash by identity: lock => its Waiters */

struct waiters {
  VALUE lock;
  VALUE promised;               /* thread of the fiber that was woken last; Qnil before */
  struct waitlist list;
  unsigned users;               /* fibers that want the lock */
  unsigned changes;             /* how often it was given up meanwhile */
};

static void waiters_mark(void *pointer) {
  struct waiters *waiters = pointer;

  rb_gc_mark_movable(waiters->lock);
  rb_gc_mark_movable(waiters->promised);
  waitlist_mark(&waiters->list);
}

static void waiters_compact(void *pointer) {
  struct waiters *waiters = pointer;

  waiters->lock = rb_gc_location(waiters->lock);
  waiters->promised = rb_gc_location(waiters->promised);
}

static void waiters_free(void *pointer) {
  waitlist_free(&((struct waiters *)pointer)->list);
  xfree(pointer);
}

static size_t waiters_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct waiters);
}

static const rb_data_type_t waiters_type = {
  .wrap_struct_name = "Polyphony::StockLocks::Waiters",
  .function = {
    .dmark    = waiters_mark,
    .dcompact = waiters_compact,
    .dsize    = waiters_memsize,
    .dfree    = waiters_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct waiters *get(VALUE self) {
  return typed_data(self, &waiters_type);
}

static VALUE make(VALUE lock) {
  struct waiters *waiters;
  VALUE self = TypedData_Make_Struct(cWaiters, struct waiters, &waiters_type, waiters);

  waiters->promised = Qnil;
  RB_OBJ_WRITE(self, &waiters->lock, lock);
  waitlist_init(&waiters->list);
  rb_hash_aset(all, lock, self);
  stock_lock_waited++;
  return self;
}

/* Other ractors run at the same time: they have locks of their own, and must not look into the Hash. */
static VALUE find(VALUE lock) {
  return stock_lock_waited && ractor_main_p() ? rb_hash_lookup(all, lock) : Qnil;
}

static void forget(VALUE lock) {
  rb_hash_delete(all, lock);
  stock_lock_waited = (unsigned)RHASH_SIZE(all);
}

VALUE stock_lock_class(void) { return cWaiters; }
VALUE stock_lock_subject(VALUE waiters) { return get(waiters)->lock; }

/* ---- waiting ---------------------------------------------------------------------------------- */

struct taking {
  const struct stock_lock *lock;
  VALUE self;                   /* the Waiters */
  struct waiters *waiters;
};

static bool try(struct taking *taking) { return RTEST(taking->lock->try(taking->lock->argument)); }

/* Trying may let other threads run, and one of them may have given the lock up before we were parked. A
 * newcomer lines up behind one of its own thread, who would never get it otherwise: whoever gives a lock
 * up and takes it again is always faster than those who have to be switched to. */
static VALUE take(VALUE argument) {
  struct taking *taking = (struct taking *)argument;
  struct waiters *waiters = taking->waiters;
  bool polite = stock_lock_promised_p(waiters->lock);

  for (;;) {
    unsigned changes = waiters->changes;
    if (!polite && try(taking)) return Qnil;
    if (changes == waiters->changes) waitlist_park(&waiters->list, taking->self, REASON);
    polite = false;
  }
}

static bool try_once(VALUE argument) { return try((struct taking *)argument); }

static VALUE take_firmly(VALUE argument) {
  struct taking *taking = (struct taking *)argument;

  waitlist_wait_firmly(&taking->waiters->list, taking->self, REASON, try_once, argument);
  return Qnil;
}

static VALUE finish(VALUE argument) {
  struct taking *taking = (struct taking *)argument;

  if (--taking->waiters->users == 0) forget(taking->waiters->lock);
  return Qnil;
}

static void take_by(const struct stock_lock *lock, VALUE (*way)(VALUE)) {
  backend_base_fiber(backend_base_current());  /* opened now: other threads may run meanwhile */
  VALUE found = find(lock->lock), self = NIL_P(found) ? make(lock->lock) : found;
  struct taking taking = { lock, self, get(self) };

  taking.waiters->users++;
  rb_ensure(way, (VALUE)&taking, finish, (VALUE)&taking);
  RB_GC_GUARD(self);
}

void stock_lock_take(const struct stock_lock *lock) { take_by(lock, take); }
void stock_lock_take_firmly(const struct stock_lock *lock) { take_by(lock, take_firmly); }

bool stock_lock_promised_p(VALUE lock) {
  VALUE self = find(lock);

  if (NIL_P(self)) return false;
  struct waiters *waiters = get(self);
  return waiters->list.woken && waiters->promised == rb_thread_current();
}

static void wake(VALUE self, struct waiters *waiters) {
  waiters->changes++;
  if (waitlist_empty_p(&waiters->list)) return;
  struct fiber_state *first = list_entry(waiters->list.parked.next, struct fiber_state, parked);
  RB_OBJ_WRITE(self, &waiters->promised, first->backend->thread);
  waitlist_wake(&waiters->list, Qtrue);
}

void stock_lock_given_up(VALUE lock) {
  VALUE self = find(lock);

  if (!NIL_P(self)) wake(self, get(self));
}

/* ---- who has it ------------------------------------------------------------------------------- */

bool stock_lock_noting;
static VALUE owners;            /* Hash by identity: lock => Fiber */

void stock_lock_set_noting(bool on) {
  stock_lock_noting = on;
  if (!on) rb_hash_clear(owners);
}

void stock_lock_note(VALUE lock) {
  if (ractor_main_p()) rb_hash_aset(owners, lock, rb_fiber_current());
}

void stock_lock_forget(VALUE lock) {
  if (ractor_main_p()) rb_hash_delete(owners, lock);
}

VALUE stock_lock_holders(VALUE waiters) {
  VALUE fiber = rb_hash_lookup(owners, get(waiters)->lock);

  return NIL_P(fiber) ? rb_ary_new() : rb_ary_new_from_args(1, rb_assoc_new(fiber, Qnil));
}

/* ---- given up unseen -------------------------------------------------------------------------- */

static int collect(VALUE lock, VALUE self, VALUE list) {
  (void)lock;
  rb_ary_push(list, self);
  return ST_CONTINUE;
}

static bool mutex_p(VALUE lock) { return RTEST(rb_obj_is_kind_of(lock, rb_path2class("Thread::Mutex"))); }

static bool free_p(VALUE lock) {
  if (mutex_p(lock)) return !RTEST(rb_mutex_locked_p(lock));
  return !RTEST(rb_funcall(lock, rb_intern("mon_locked?"), 0));
}

static bool look_at(VALUE self) {
  struct waiters *waiters = get(self);

  if (waitlist_empty_p(&waiters->list) || waiters->list.woken || !free_p(waiters->lock)) return false;
  if (mutex_p(waiters->lock)) stock_lock_unseen++;
  wake(self, waiters);
  return true;
}

bool stock_lock_look(bool now) {
  bool found = false;

  if (!stock_lock_waited || (!now && clock_monotonic_coarse() - last_look < LOOK_EVERY)) return false;
  last_look = clock_monotonic_coarse();
  VALUE list = rb_ary_new();
  rb_hash_foreach(all, collect, list);
  for (long i = 0; i < RARRAY_LEN(list); i++)
    if (look_at(RARRAY_AREF(list, i))) found = true;
  return found;
}

int64_t stock_lock_patience(void) { return stock_lock_waited ? LOOK_EVERY : -1; }

void stock_lock_after_fork(void) {
  rb_hash_clear(all);
  rb_hash_clear(owners);
  stock_lock_waited = 0;
}

void stock_lock_init(void) {
  VALUE locks = rb_define_module_under(mPolyphony, "StockLocks");

  rb_gc_register_address(&cWaiters);
  cWaiters = rb_define_class_under(locks, "Waiters", rb_cObject);
  rb_undef_alloc_func(cWaiters);
  rb_gc_register_address(&all);
  all = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
  rb_gc_register_address(&owners);
  owners = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
}
