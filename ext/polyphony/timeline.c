/* timeline.c - see timeline.h */
#include "timeline.h"
#include "clock.h"
#include "reason.h"

#include <ruby/encoding.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

bool timeline_on = false;

static struct timeline_record *ring;
static uint64_t mask, count;    /* of the ring, and of records written since the start */
static uint64_t began;          /* of the counter */
static int64_t began_ns;
static uint32_t last_fiber;     /* ids, which are never used twice; 0 is nobody's */
static uint16_t last_thread;

/* Names of those that have ended: [id, name], the oldest overwritten. An ended fiber has left three records, so half
 * as many names do for all whose records are there. The names are shared, for most come from a few places. */
static VALUE names = Qnil, thread_names = Qnil;
static uint64_t name_count;
enum { MOST_THREAD_NAMES = 4096 };

/* ---- time --------------------------------------------------------------------------------------- */

static bool counter_p;          /* the processor has one that always runs at one speed */

static void look_for_counter(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  counter_p = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1 << 8);
#elif defined(__aarch64__)
  counter_p = true;
#endif
}

static inline uint64_t now(void) {
#if defined(__x86_64__)
  if (RB_LIKELY(counter_p)) return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
  return (uint64_t)clock_monotonic();
}

/* ---- records -------------------------------------------------------------------------------------- */

uint32_t timeline_fiber_id(struct fiber_state *fiber) {
  if (!fiber) return 0;
  if (!fiber->timeline_id) fiber->timeline_id = ++last_fiber;
  return fiber->timeline_id;
}

uint16_t timeline_thread_id(struct backend_base *backend) {
  if (!backend->timeline_id) backend->timeline_id = ++last_thread ? last_thread : ++last_thread;
  return backend->timeline_id;
}

static inline struct timeline_record *next_record(struct backend_base *backend, enum timeline_kind kind) {
  struct timeline_record *record = &ring[count++ & mask];

  record->time = now();
  record->kind = kind;
  record->thread = timeline_thread_id(backend);
  return record;
}

/* What a fiber that leaves waits for. */
static inline void note_wait(struct timeline_record *record, const struct fiber_state *fiber) {
  record->reason.text = fiber->wait_reason;
  record->detail = fiber->op ? fiber->op->fd : -1;
  record->flags = fiber->queued ? TIMELINE_RUNNABLE : 0;
}

void timeline_switch(struct backend_base *backend, struct fiber_state *from, struct fiber_state *to, bool raised) {
  struct timeline_record *record = next_record(backend, TIMELINE_SWITCH);

  record->fiber = timeline_fiber_id(from);
  record->other = timeline_fiber_id(to);
  note_wait(record, from);
  if (raised) record->flags |= TIMELINE_RAISED;
}

void timeline_wake(struct backend_base *here, struct fiber_state *waker, struct fiber_state *woken) {
  struct timeline_record *record = next_record(here ? here : woken->backend, TIMELINE_WAKE);

  record->fiber = timeline_fiber_id(waker);
  record->other = timeline_fiber_id(woken);
  record->reason.text = NULL;
  record->detail = timeline_thread_id(woken->backend);
  record->flags = woken->spun && !woken->started ? TIMELINE_NEWBORN : 0;
}

void timeline_poll(struct backend_base *backend, struct fiber_state *fiber, enum timeline_kind kind) {
  struct timeline_record *record = next_record(backend, kind);

  record->fiber = timeline_fiber_id(fiber);
  record->other = 0;
  note_wait(record, fiber);
}

/* ---- names ---------------------------------------------------------------------------------------- */

/* A tag may be anything, and its to_s anybody's code, which has no business at the end of a fiber. */
static VALUE tag_text(VALUE tag) {
  if (SYMBOL_P(tag)) return rb_sym2str(tag);
  if (RB_TYPE_P(tag, T_STRING)) return tag;
  return NIL_P(tag) ? rb_str_new(NULL, 0) : rb_any_to_s(tag);
}

static VALUE place_text(VALUE block) {
  VALUE place = NIL_P(block) ? Qnil : rb_funcall(block, rb_intern("source_location"), 0);

  if (!RB_TYPE_P(place, T_ARRAY)) return rb_str_new(NULL, 0);
  return rb_sprintf("%"PRIsVALUE":%"PRIsVALUE, RARRAY_AREF(place, 0), RARRAY_AREF(place, 1));
}

/* The tag comes last, for it may have any character, and goes byte by byte, for rb_sprintf raises for a NUL. */
VALUE timeline_fiber_name(struct fiber_state *fiber) {
  VALUE place = place_text(fiber->block), tag = tag_text(fiber->tag);
  VALUE name = rb_utf8_str_new_cstr(fiber->root ? "main" : fiber->spun ? "" : "fiber");

  tag = rb_str_conv_enc(tag, rb_enc_get(tag), rb_utf8_encoding());
  rb_str_cat(name, "", 1);
  rb_str_cat(name, RSTRING_PTR(place), RSTRING_LEN(place));
  rb_str_cat(name, "", 1);
  rb_str_cat(name, RSTRING_PTR(tag), RSTRING_LEN(tag));
  RB_GC_GUARD(place);
  RB_GC_GUARD(tag);
  return name;
}

static VALUE name_of(VALUE fiber) {
  return rb_str_to_interned_str(timeline_fiber_name((struct fiber_state *)fiber));
}

static void keep_name(struct fiber_state *fiber) {
  int state;
  VALUE name = rb_protect(name_of, (VALUE)fiber, &state);

  if (state) rb_set_errinfo(Qnil);  /* no memory: it stays without */
  else if (!NIL_P(names))
    rb_ary_store(names, (long)(name_count++ & (mask >> 1)), rb_assoc_new(UINT2NUM(fiber->timeline_id), name));
}

void timeline_end(struct fiber_state *fiber) {
  timeline_fiber_id(fiber);
  keep_name(fiber);
  if (!timeline_on) return;     /* meanwhile, by another thread */
  struct timeline_record *record = next_record(fiber->backend, TIMELINE_END);
  record->fiber = fiber->timeline_id;
  record->other = 0;
  record->reason.text = NULL;
  record->detail = -1;
  record->flags = fiber->failed ? TIMELINE_RAISED : 0;
}

/* Whoever made it the main fiber goes on without it, and it may be gone when the trace is read. */
void timeline_step_down(struct fiber_state *fiber) {
  if (fiber->timeline_id) keep_name(fiber);
}

void timeline_thread_begin(struct backend_base *backend) { timeline_poll(backend, backend->current, TIMELINE_THREAD); }

static VALUE thread_name(VALUE thread) { return rb_funcall(thread, rb_intern("inspect"), 0); }

void timeline_thread_end(struct backend_base *backend) {
  int state;

  if (!backend->timeline_id || RARRAY_LEN(thread_names) >= MOST_THREAD_NAMES) return;
  VALUE name = rb_protect(thread_name, backend->thread, &state);
  if (state) rb_set_errinfo(Qnil);
  else if (!NIL_P(thread_names)) rb_ary_push(thread_names, rb_assoc_new(UINT2NUM(backend->timeline_id), name));
}

/* ---- beginning and end ---------------------------------------------------------------------------- */

static void begin(void) {
  count = name_count = 0;
  names = rb_ary_new();
  thread_names = rb_ary_new();
  began_ns = clock_monotonic();
  began = now();
}

/* The first touch of a page takes as long as twenty switches: done here, and not while the program is watched, a switch takes
 * 8 % longer instead of 25 %. No more than that is touched, because the rest of a large ring may never be needed. */
enum { TOUCHED = 1 << 18 };

static void touch(uint64_t size) { memset(ring, 0, (size < TOUCHED ? size : TOUCHED) * sizeof(*ring)); }

void timeline_start(unsigned capacity) {
  uint64_t size = 1024;

  while (size < capacity && size < 1u << 30) size <<= 1;
  timeline_on = false;
  xfree(ring);
  ring = NULL;
  ring = ALLOC_N(struct timeline_record, size);
  touch(size);
  mask = size - 1;
  begin();
  timeline_on = true;
}

void timeline_after_fork(void) {
  if (timeline_on) begin();
}

/* Ticks to nanoseconds, by what the clock said at the beginning and says now. The counters of two processors may differ by
 * a little: never before the beginning. */
struct scale {
  double ns_per_tick;
};

static struct scale scale_of(void) {
  uint64_t ticks = now() - began;
  int64_t ns = clock_monotonic() - began_ns;

  return (struct scale){ ticks ? (double)ns / (double)ticks : 1 };
}

static uint64_t nanoseconds(struct scale scale, uint64_t ticks) {
  return ticks > began ? (uint64_t)((double)(ticks - began) * scale.ns_per_tick) : 0;
}

static uint64_t index_of(VALUE reasons, st_table *known, const char *text) {
  st_data_t index;

  if (!text) return 0;
  if (st_lookup(known, (st_data_t)text, &index)) return index;
  rb_ary_push(reasons, rb_utf8_str_new_cstr(text));
  st_insert(known, (st_data_t)text, (st_data_t)RARRAY_LEN(reasons));
  return (uint64_t)RARRAY_LEN(reasons);
}

static VALUE take_records(VALUE reasons) {
  struct scale scale = scale_of();
  uint64_t kept = count > mask ? mask + 1 : count;
  VALUE string = rb_str_new(NULL, (long)(kept * sizeof(*ring)));
  struct timeline_record *to = (struct timeline_record *)RSTRING_PTR(string);
  st_table *known = st_init_numtable();

  for (uint64_t i = count - kept; i < count; i++, to++) {
    *to = ring[i & mask];
    to->time = nanoseconds(scale, to->time);
    to->reason.index = index_of(reasons, known, to->reason.text);
  }
  st_free_table(known);
  return string;
}

VALUE timeline_stop(void) {
  if (!timeline_on) return Qnil;
  timeline_on = false;
  int64_t lasted = clock_monotonic() - began_ns;
  VALUE reasons = rb_ary_new(), records = take_records(reasons);
  VALUE taken = rb_ary_new_from_args(7, records, reasons, names, thread_names, ULL2NUM(count), ULL2NUM(mask + 1),
                                     LL2NUM(lasted));
  xfree(ring);
  ring = NULL;
  reason_trace_over();
  names = thread_names = Qnil;
  return taken;
}

void timeline_init(void) {
  rb_gc_register_address(&names);
  rb_gc_register_address(&thread_names);
  look_for_counter();
}
