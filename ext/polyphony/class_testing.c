/* class_testing.c - what lib/polyphony/testing needs of the runtime, and the clock that it may stop. */
#include "clock.h"
#include "faults.h"
#include "polyphony.h"
#include "virtual_clock.h"

static VALUE Clock_s_now(VALUE module) {
  (void)module;
  return DBL2NUM((double)clock_now() / NSEC_PER_SEC);
}

static VALUE Clock_s_nanoseconds(VALUE module) {
  (void)module;
  return LL2NUM(clock_now());
}

static VALUE Clock_s_real(VALUE module) {
  (void)module;
  return DBL2NUM((double)clock_monotonic() / NSEC_PER_SEC);
}

static VALUE Clock_s_stop(VALUE module, VALUE settle) {
  (void)module;
  virtual_clock_begin(NUM2LL(settle));
  return Qnil;
}

static VALUE Clock_s_go_on(VALUE module) {
  (void)module;
  virtual_clock_end();
  return Qnil;
}

static VALUE Clock_s_stopped_p(VALUE module) {
  (void)module;
  return clock_shift.stopped ? Qtrue : Qfalse;
}

/* Whether it is stopped for the running thread, too. */
static VALUE Clock_s_stopped_here_p(VALUE module) {
  (void)module;
  return clock_shift.stopped && virtual_clock_here_p() ? Qtrue : Qfalse;
}

/* For who runs turn by turn: time goes on to the next deadline, as if the running fiber waited, and whoever is due may run. */
static VALUE Clock_s_jump(VALUE module) {
  bool jumped = clock_shift.stopped && virtual_clock_jump(INT64_MAX);

  (void)module;
  backend_base_poll(backend_base_current(), false);
  return jumped ? Qtrue : Qfalse;
}

static void clock_methods_init(void) {
  VALUE clock = rb_define_module_under(mPolyphony, "Clock");

  rb_define_singleton_method(clock, "now", Clock_s_now, 0);
  rb_define_singleton_method(clock, "nanoseconds", Clock_s_nanoseconds, 0);
  rb_define_singleton_method(clock, "real", Clock_s_real, 0);
  rb_define_singleton_method(clock, "__stop", Clock_s_stop, 1);
  rb_define_singleton_method(clock, "__go_on", Clock_s_go_on, 0);
  rb_define_singleton_method(clock, "__jump", Clock_s_jump, 0);
  rb_define_singleton_method(clock, "stopped?", Clock_s_stopped_p, 0);
  rb_define_singleton_method(clock, "stopped_here?", Clock_s_stopped_here_p, 0);
}

/* A seed, or nil. */
static VALUE Polyphony_set_lots(VALUE module, VALUE seed) {
  (void)module;
  backend_base_current();              /* the thread that asks is the first */
  backend_base_shuffle(!NIL_P(seed), NIL_P(seed) ? 0 : NUM2ULL(seed));
  return seed;
}

static VALUE fault_symbol(int fault) { return ID2SYM(rb_intern(fault_name(fault))); }

static VALUE Faults_s_names(VALUE module) {
  VALUE names = rb_ary_new();

  (void)module;
  for (int i = 0; i < FAULTS; i++) rb_ary_push(names, fault_symbol(i));
  return names;
}

/* Hash of name => chance, which have been checked; and a seed. */
static VALUE Faults_s_set(VALUE module, VALUE chances, VALUE seed) {
  uint64_t rates[FAULTS];

  (void)module;
  for (int i = 0; i < FAULTS; i++)
    rates[i] = (uint64_t)(NUM2DBL(rb_hash_lookup2(chances, fault_symbol(i), INT2FIX(0))) * 4294967296.0);
  faults_set(rates, NUM2ULL(seed));
  return Qnil;
}

static VALUE Faults_s_counts(VALUE module) {
  uint64_t rates[FAULTS], counts[FAULTS];
  VALUE hash = rb_hash_new();

  (void)module;
  faults_get(rates, counts);
  for (int i = 0; i < FAULTS; i++)
    if (rates[i]) rb_hash_aset(hash, fault_symbol(i), ULL2NUM(counts[i]));
  return hash;
}

static void fault_methods_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "Faults");

  rb_define_singleton_method(module, "names", Faults_s_names, 0);
  rb_define_singleton_method(module, "counts", Faults_s_counts, 0);
  rb_define_singleton_method(module, "__set", Faults_s_set, 2);
}

void class_testing_init(void) {
  fault_methods_init();
  rb_define_module_function(mPolyphony, "__lots=", Polyphony_set_lots, 1);
  clock_methods_init();
}
