/* stall.c - see stall.h. */
#include <math.h>
#include "stall.h"
#include "fiber_state.h"

int64_t stall_limit = 0;

static int64_t watched_since;   /* ns: turns that began before have times of an earlier watch */

static VALUE stalls;               /* see stall_take */

/* More are not written down before somebody takes these: who reads them may be late, or gone with a fork. */
enum { STALLS_MOST = 1000 };

static bool others_wait_p(const struct backend_base *backend, const struct fiber_state *fiber) {
  return backend->turn_shared || backend->runqueue.length > fiber->queued;
}

/* ---- how long turns last --------------------------------------------------------------------------- */

static const int64_t bounds[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000 };  /* ms */
enum { BOUNDS = sizeof(bounds) / sizeof(bounds[0]) };
static uint64_t turns[BOUNDS + 1];
static uint64_t stall_count;
static int64_t longest;

static void count_turn(int64_t lasted) {
  unsigned i = 0;

  while (i < BOUNDS && lasted > bounds[i] * (NSEC_PER_SEC / 1000)) i++;
  turns[i]++;
  if (lasted > longest) longest = lasted;
  if (lasted >= stall_limit) stall_count++;
}

static VALUE seconds(int64_t ns) { return DBL2NUM((double)ns / NSEC_PER_SEC); }

VALUE stall_figures(void) {
  VALUE histogram = rb_hash_new();

  for (unsigned i = 0; i < BOUNDS; i++)
    rb_hash_aset(histogram, seconds(bounds[i] * (NSEC_PER_SEC / 1000)), ULL2NUM(turns[i]));
  rb_hash_aset(histogram, DBL2NUM(HUGE_VAL), ULL2NUM(turns[BOUNDS]));
  return rb_ary_new_from_args(4, stall_limit ? seconds(stall_limit) : Qnil, ULL2NUM(stall_count), seconds(longest), histogram);
}

/* ---- who waited -------------------------------------------------------------------------------------- */

enum { HELD_UP_MOST = 100 };

static void add_held_up(VALUE list, struct fiber_state *fiber, struct fiber_state *except) {
  if (fiber && fiber != except && RARRAY_LEN(list) < HELD_UP_MOST) rb_ary_push(list, fiber->fiber);
}

/* Those in the queue, and those whose sleep is over: what else has come, nobody has asked the kernel for yet. */
VALUE stall_held_up(struct backend_base *backend, struct fiber_state *except) {
  VALUE list = rb_ary_new();
  int64_t now = clock_monotonic();

  if (!backend->open) return list;
  for (unsigned i = 0; i < LANES; i++) {
    const struct lane *lane = &backend->runqueue.lanes[i];
    for (uint64_t place = lane->head; place < lane->tail; place++)
      add_held_up(list, lane->entries[place & (lane->capacity - 1)].fiber, except);
  }
  list_each(node, &backend->waiting) {
    struct fiber_state *fiber = list_entry(node, struct fiber_state, waiting);
    if (timer_armed_p(&fiber->timer) && fiber->timer.deadline <= now) add_held_up(list, fiber, except);
  }
  return list;
}

void stall_look(struct backend_base *backend, struct fiber_state *fiber) {
  int64_t began = backend->turn_began;

  backend->turn_began = 0;
  if (began < watched_since || !others_wait_p(backend, fiber)) return;
  int64_t lasted = clock_monotonic() - began;
  count_turn(lasted);
  if (lasted < stall_limit || RARRAY_LEN(stalls) >= STALLS_MOST) return;
  rb_ary_push(stalls, rb_ary_new_from_args(6, backend->thread, fiber->fiber, seconds(lasted), LL2NUM(began),
                                           rb_make_backtrace(), stall_held_up(backend, fiber)));
}

VALUE stall_take(void) {
  VALUE taken = stalls;

  stalls = rb_ary_new();
  return taken;
}

void stall_set_limit(int64_t limit) {
  watched_since = clock_monotonic();
  stall_limit = limit;
  if (!limit) return;           /* what was counted can be read on */
  MEMZERO(turns, uint64_t, BOUNDS + 1);
  stall_count = 0;
  longest = 0;
}

int64_t stall_turn(const struct backend_base *backend) {
  bool watched = stall_limit && !backend->polling && backend->current && backend->turn_began >= watched_since;

  return watched && others_wait_p(backend, backend->current) ? backend->turn_began : 0;
}

void stall_init(void) {
  rb_gc_register_address(&stalls);
  stalls = rb_ary_new();
}
