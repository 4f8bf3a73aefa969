/* class_semaphore.c - Polyphony::Semaphore, between fibers and threads. Layer 2.
 *
 * Everything happens under the GVL. A place that is given back stays free until the fiber that was
 * woken for it runs; newcomers leave such places alone, and line up behind that fiber if there are more,
 * so order of arrival is kept, and a fiber that is cancelled meanwhile leaves the place to the next. */
#include "clock.h"
#include "errors.h"
#include "io.h"
#include "waitlist.h"

static const char *const REASON = "a place in a semaphore";

struct place {
  VALUE fiber;                  /* who took it */
  int64_t since;                /* ns on the coarse monotonic clock */
};

struct semaphore {
  unsigned limit;
  unsigned taken, capacity;
  struct place *places;         /* those taken, longest first; NULL before the first */
  struct waitlist waiting;
};

static void semaphore_mark(void *pointer) {
  struct semaphore *semaphore = pointer;

  for (unsigned i = 0; i < semaphore->taken; i++) rb_gc_mark_movable(semaphore->places[i].fiber);
  waitlist_mark(&semaphore->waiting);
}

static void semaphore_compact(void *pointer) {
  struct semaphore *semaphore = pointer;

  for (unsigned i = 0; i < semaphore->taken; i++)
    semaphore->places[i].fiber = rb_gc_location(semaphore->places[i].fiber);
}

static void semaphore_free(void *pointer) {
  struct semaphore *semaphore = pointer;

  waitlist_free(&semaphore->waiting);
  xfree(semaphore->places);
  xfree(semaphore);
}

static size_t semaphore_memsize(const void *pointer) {
  const struct semaphore *semaphore = pointer;

  return sizeof(*semaphore) + semaphore->capacity * sizeof(struct place);
}

static const rb_data_type_t semaphore_type = {
  .wrap_struct_name = "Polyphony::Semaphore",
  .function = {
    .dmark    = semaphore_mark,
    .dcompact = semaphore_compact,
    .dsize    = semaphore_memsize,
    .dfree    = semaphore_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Semaphore_allocate(VALUE klass) {
  struct semaphore *semaphore;
  VALUE self = TypedData_Make_Struct(klass, struct semaphore, &semaphore_type, semaphore);

  waitlist_init(&semaphore->waiting);
  return self;
}

static struct semaphore *get(VALUE self) {
  return typed_data(self, &semaphore_type);
}

/* ---- places --------------------------------------------------------------------------------- */

static void grow(struct semaphore *semaphore) {
  unsigned capacity = semaphore->capacity ? semaphore->capacity * 2 : 4;
  struct place *places = ALLOC_N(struct place, capacity);

  MEMCPY(places, semaphore->places, struct place, semaphore->taken);
  xfree(semaphore->places);
  semaphore->places = places;
  semaphore->capacity = capacity;
}

static bool free_p(const struct semaphore *semaphore) {
  return semaphore->taken + semaphore->waiting.woken < semaphore->limit;
}

static bool try(VALUE self, struct semaphore *semaphore) {
  if (!free_p(semaphore)) return false;
  if (semaphore->taken == semaphore->capacity) grow(semaphore);
  struct place *place = &semaphore->places[semaphore->taken];
  place->since = clock_now_coarse();
  RB_OBJ_WRITE(self, &place->fiber, rb_fiber_current());
  semaphore->taken++;
  return true;
}

/* Anybody may give a place back: one's own latest first, else the one taken longest. */
static unsigned place_to_leave(const struct semaphore *semaphore) {
  VALUE fiber = rb_fiber_current();

  for (unsigned i = semaphore->taken; i > 0; i--)
    if (semaphore->places[i - 1].fiber == fiber) return i - 1;
  return 0;
}

/* There are places for all, but others were there before. */
static void line_up(VALUE self, struct semaphore *semaphore) {
  if (semaphore->waiting.woken && free_p(semaphore)) waitlist_line_up(&semaphore->waiting, self, REASON);
}

static void acquire(VALUE self, struct semaphore *semaphore) {
  if (!semaphore->waiting.woken && try(self, semaphore)) return;
  backend_base_fiber(backend_base_current());  /* opened now: other threads may run meanwhile */
  line_up(self, semaphore);
  while (!try(self, semaphore)) waitlist_park(&semaphore->waiting, self, REASON);
}

static bool acquire_within(VALUE self, struct semaphore *semaphore, int64_t timeout) {
  struct backend_base *backend = backend_base_current();
  int64_t deadline = backend_base_now(backend) + timeout;
  bool expired = false;

  backend_base_fiber(backend);
  line_up(self, semaphore);
  while (!try(self, semaphore)) {
    if (expired) return false;
    int64_t left = deadline - backend_base_now(backend);
    waitlist_park_for(&semaphore->waiting, self, REASON, left < 0 ? 0 : left, &expired);
  }
  return true;
}

/* ---- Ruby ----------------------------------------------------------------------------------- */

static VALUE Semaphore_initialize(VALUE self, VALUE limit) {
  long number = NUM2LONG(limit);

  if (number < 1 || number > INT_MAX)
    rb_raise(rb_eArgError, "limit must be positive, got %ld", number);
  get(self)->limit = (unsigned)number;
  return self;
}

static VALUE Semaphore_acquire(int argc, VALUE *argv, VALUE self) {
  static ID keyword;
  VALUE options, timeout = Qundef;

  if (!keyword) keyword = rb_intern("timeout");
  rb_scan_args(argc, argv, "0:", &options);
  if (!NIL_P(options)) rb_get_kwargs(options, &keyword, 0, 1, &timeout);
  int64_t period = timeout == Qundef ? -1 : io_period(timeout);
  if (period >= 0) return acquire_within(self, get(self), period) ? Qtrue : Qfalse;
  acquire(self, get(self));
  return Qtrue;
}

static VALUE Semaphore_try_acquire(VALUE self) { return try(self, get(self)) ? Qtrue : Qfalse; }

static VALUE Semaphore_release(VALUE self) {
  struct semaphore *semaphore = get(self);

  if (!semaphore->taken)
    rb_raise(rb_eThreadError, "all %u places of this semaphore are free", semaphore->limit);
  unsigned index = place_to_leave(semaphore);
  semaphore->taken--;
  MEMMOVE(&semaphore->places[index], &semaphore->places[index + 1], struct place,
          semaphore->taken - index);
  waitlist_wake(&semaphore->waiting, Qtrue);
  return self;
}

static VALUE yield(VALUE nothing) {
  (void)nothing;
  return rb_yield_values(0);
}

static VALUE Semaphore_synchronize(VALUE self) {
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "synchronize needs a block to run");
  acquire(self, get(self));
  return rb_ensure(yield, Qnil, Semaphore_release, self);
}

static VALUE Semaphore_limit(VALUE self) { return UINT2NUM(get(self)->limit); }

static VALUE Semaphore_available(VALUE self) {
  struct semaphore *semaphore = get(self);

  return UINT2NUM(semaphore->limit - semaphore->taken - semaphore->waiting.woken);
}

static VALUE Semaphore_holders(VALUE self) {
  struct semaphore *semaphore = get(self);
  VALUE holders = rb_ary_new_capa(semaphore->taken);

  for (unsigned i = 0; i < semaphore->taken; i++) {
    struct place place = semaphore->places[i];
    VALUE since = rb_float_new((double)place.since / NSEC_PER_SEC);
    rb_ary_push(holders, rb_assoc_new(place.fiber, since));
  }
  return holders;
}

void class_semaphore_init(void) {
  VALUE klass = rb_define_class_under(mPolyphony, "Semaphore", rb_cObject);

  rb_define_alloc_func(klass, Semaphore_allocate);
  rb_undef_method(klass, "initialize_copy");  /* places that are taken cannot be copied */
  rb_define_method(klass, "initialize", Semaphore_initialize, 1);
  rb_define_method(klass, "acquire", Semaphore_acquire, -1);
  rb_define_method(klass, "try_acquire", Semaphore_try_acquire, 0);
  rb_define_method(klass, "release", Semaphore_release, 0);
  rb_define_method(klass, "synchronize", Semaphore_synchronize, 0);
  rb_define_method(klass, "limit", Semaphore_limit, 0);
  rb_define_method(klass, "available", Semaphore_available, 0);
  rb_define_method(klass, "holders", Semaphore_holders, 0);
}
