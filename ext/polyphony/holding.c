/* holding.c - see holding.h */
#include "holding.h"
#include "backend_base.h"
#include "clock.h"
#include "gc_held_back.h"

static const int64_t LOOK_EVERY = NSEC_PER_SEC / 10;
static struct list unseen = { &unseen, &unseen };  /* holdings of which nobody will tell the end */

void holding_init(struct holding *holding, void (*ended)(struct holding *)) {
  holding->fiber = holding->thread = Qnil;
  holding->ended = ended;
  list_init(&holding->link);
}

void holding_mark(const struct holding *holding) {
  rb_gc_mark_movable(holding->fiber);
  rb_gc_mark_movable(holding->thread);
}

void holding_compact(struct holding *holding) {
  holding->fiber = rb_gc_location(holding->fiber);
  holding->thread = rb_gc_location(holding->thread);
}

void holding_free(struct holding *holding) { list_remove(&holding->link); }

void holding_take(struct holding *holding, VALUE owner) {
  RB_OBJ_WRITE(owner, &holding->fiber, rb_fiber_current());
  RB_OBJ_WRITE(owner, &holding->thread, rb_thread_current());
  holding->since = clock_now_coarse();
}

void holding_drop(struct holding *holding) {
  holding->fiber = holding->thread = Qnil;
  list_remove(&holding->link);
}

/* It ends when the program does. */
static bool main_fiber_p(const struct fiber_state *fiber) {
  return fiber->root && fiber->backend && fiber->backend->thread == rb_thread_main();
}

void holding_watch(struct holding *holding) {
  if (NIL_P(holding->fiber) || !list_empty_p(&holding->link)) return;
  struct fiber_state *fiber = fiber_state_of(holding->fiber);
  if (fiber->spun) list_push(&fiber->holdings, &holding->link);
  else if (!main_fiber_p(fiber)) list_push(&unseen, &holding->link);
}

static bool thread_over_p(VALUE thread) {
  return thread != rb_thread_current() && !RTEST(rb_funcall(thread, id_alive_p, 0));
}

bool holding_over_p(const struct holding *holding) {
  VALUE fiber = holding->fiber;

  if (NIL_P(fiber)) return false;
  struct fiber_state *state = fiber_state_lookup(fiber);
  return (state && state->ended) || !RTEST(rb_fiber_alive_p(fiber)) ||
         thread_over_p(holding->thread);
}

static void end(struct holding *holding) {
  list_remove(&holding->link);
  holding->ended(holding);
}

void holding_end_all(struct fiber_state *fiber) {
  while (!list_empty_p(&fiber->holdings))
    end(list_entry(fiber->holdings.next, struct holding, link));
}

static VALUE look_at_all(VALUE argument) {
  bool *found = (bool *)argument;
  struct list *node = unseen.next;

  while (node != &unseen) {
    struct holding *holding = list_entry(node, struct holding, link);
    bool over = holding_over_p(holding);
    bool gone = list_empty_p(node);  /* given back by another thread meanwhile */
    if (over && !gone) {
      end(holding);
      *found = gone = true;
    }
    node = gone ? unseen.next : node->next;
  }
  return Qnil;
}

bool holding_look(void) {
  bool found = false;

  if (!list_empty_p(&unseen)) gc_held_back(look_at_all, (VALUE)&found);
  return found;
}

int64_t holding_patience(void) { return list_empty_p(&unseen) ? -1 : LOOK_EVERY; }

VALUE holding_report(const struct holding *holding) {
  if (NIL_P(holding->fiber)) return rb_ary_new();
  VALUE since = rb_float_new((double)holding->since / NSEC_PER_SEC);
  return rb_ary_new_from_args(1, rb_assoc_new(holding->fiber, since));
}
