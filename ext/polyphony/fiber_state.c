/* fiber_state.c - see fiber_state.h */
#include "fiber_state.h"
#include "backend_base.h"
#include "cancel_scope.h"
#include "gc_held_back.h"
#include "place.h"

VALUE cFiberState = Qnil;

#define EACH_REFERENCE(state, DO) \
  DO(state->self) DO(state->fiber) DO(state->pending) DO(state->wait_subject) DO(state->wake) \
  DO(state->block) DO(state->result) DO(state->tag) DO(state->mailbox) \
  DO(state->monitors) DO(state->monitor_mailbox) DO(state->caller) DO(state->auto_watcher) \
  DO(state->held_back) DO(state->sched) DO(state->deadline) DO(state->storage) DO(state->condition) \
  DO(state->last_status) DO(state->arrived) DO(state->context) DO(state->received) DO(state->closing) \
  DO(state->to_begin)

static void mark_lent(VALUE lent) {
  rb_gc_mark(lent);             /* pinned: the kernel has the address of the bytes */
  if (!RB_TYPE_P(lent, T_ARRAY)) return;
  for (long i = 0; i < RARRAY_LEN(lent); i++) mark_lent(RARRAY_AREF(lent, i));
}

static void state_mark(void *pointer) {
  struct fiber_state *state = pointer;

#define MARK(member) rb_gc_mark_movable(member);
  EACH_REFERENCE(state, MARK)
#undef MARK
  if (state->incoming != Qundef) rb_gc_mark_movable(state->incoming);
  if (state->set_aside != Qundef) rb_gc_mark_movable(state->set_aside);
  if (!NIL_P(state->lent)) mark_lent(state->lent);
  if (!NIL_P(state->held)) mark_lent(state->held);
  if (state->backend) rb_gc_mark_movable(state->backend->self);
  if (state->parent) rb_gc_mark_movable(state->parent->self);
  if (state->former) rb_gc_mark_movable(state->former->self);
  if (state->resumer) rb_gc_mark_movable(state->resumer->self);
  if (state->proxy) rb_gc_mark_movable(state->proxy->self);
  list_each(node, &state->children)
    rb_gc_mark_movable(list_entry(node, struct fiber_state, sibling)->self);
  fiber_state_mark_parked(&state->awaiters.parked);
  cancel_scope_mark_all(&state->scopes);
  place_mark(state->spun_at);
}

static void state_compact(void *pointer) {
  struct fiber_state *state = pointer;

#define MOVE(member) member = rb_gc_location(member);
  EACH_REFERENCE(state, MOVE)
#undef MOVE
  if (state->incoming != Qundef) state->incoming = rb_gc_location(state->incoming);
  if (state->set_aside != Qundef) state->set_aside = rb_gc_location(state->set_aside);
  cancel_scope_compact_all(&state->scopes);
  place_compact(state->spun_at);
}

static void orphan_all(struct list *list) {
  while (!list_empty_p(list)) {
    struct fiber_state *child = list_entry(list->next, struct fiber_state, sibling);
    list_remove(&child->sibling);
    child->parent = NULL;
  }
}

static void unpark_all(struct list *list) {
  while (!list_empty_p(list)) {
    struct fiber_state *fiber = list_entry(list->next, struct fiber_state, parked);
    fiber->waitlist = NULL;
    list_remove(&fiber->parked);
  }
}

static void unlink_all(struct list *list) {
  while (!list_empty_p(list)) list_remove(list->next);
}

/* Records come and go with every spin: some are kept for the next. Chained by resumer, which stands beside what is read when one is freed. */
#ifdef __SANITIZE_ADDRESS__             /* would not see who uses one after it was freed */
enum { SPARE_RECORDS = 0 };
#else
enum { SPARE_RECORDS = 1024 };
#endif
static struct fiber_state *spare;
static unsigned spare_count;

static struct fiber_state *acquire_record(void) {
  struct fiber_state *state = spare;

  if (!state) return ZALLOC(struct fiber_state);
  spare = state->resumer;
  spare_count--;
  memset(state, 0, sizeof(*state));
  return state;
}

static void release_record(struct fiber_state *state) {
  if (spare_count == SPARE_RECORDS) {
    xfree(state);
    return;
  }
  state->resumer = spare;
  spare = state;
  spare_count++;
}

/* Everything that points here is unlinked; records may be swept in any order. */
static void unlink_state(struct fiber_state *state) {
  cancel_scope_free_all(&state->scopes);
  if (timer_armed_p(&state->timer)) timer_heap_disarm(&state->backend->loop.timers, &state->timer);
  list_remove(&state->all);
  list_remove(&state->waiting);
  list_remove(&state->noted);
  list_remove(&state->parked);
  list_remove(&state->sibling);
  orphan_all(&state->children);
  unpark_all(&state->awaiters.parked);
  unlink_all(&state->holdings);
}

static bool alone_p(struct fiber_state *state) {
  struct list *lists[] = { &state->scopes, &state->waiting, &state->noted, &state->parked, &state->sibling, &state->children,
                           &state->awaiters.parked, &state->holdings };

  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
    if (!list_empty_p(lists[i])) return false;
  return !timer_armed_p(&state->timer);
}

void fiber_state_lay_to_rest(struct fiber_state *state) {
  if (!alone_p(state)) return;
  list_remove(&state->all);
  state->at_rest = true;
}

static void state_free(void *pointer) {
  struct fiber_state *state = pointer;

  if (state->stack_told) rb_gc_adjust_memory_usage(-FIBER_FOOTPRINT);
  place_release(state->spun_at);
  if (!state->at_rest) unlink_state(state);
  release_record(state);
}

static size_t state_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct fiber_state);
}

static const rb_data_type_t state_type = {
  .wrap_struct_name = "Polyphony::FiberState",
  .function = {
    .dmark    = state_mark,
    .dcompact = state_compact,
    .dsize    = state_memsize,
    .dfree    = state_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

void fiber_state_mark_parked(const struct list *list) {
  list_each(node, list) rb_gc_mark_movable(list_entry(node, struct fiber_state, parked)->self);
}

static void fire_sleeper(struct timer *timer) {
  struct fiber_state *state =
    (struct fiber_state *)((char *)timer - offsetof(struct fiber_state, timer));

  /* Woken in time, though it has not run yet: what it was woken with is not to be replaced. */
  if (!state->queued) backend_base_schedule_event(state, Qnil, RESUME_RETURN);
}

static struct list all = { &all, &all };

static void init_lists(struct fiber_state *state) {
  list_push(&all, &state->all);
  list_init(&state->waiting);
  list_init(&state->parked);
  list_init(&state->scopes);
  list_init(&state->noted);
  list_init(&state->children);
  list_init(&state->sibling);
  list_init(&state->awaiters.parked);
  list_init(&state->holdings);
}

struct fiber_state *fiber_state_draft(void) {
  struct fiber_state *state = acquire_record();

#define CLEAR(member) member = Qnil;
  EACH_REFERENCE(state, CLEAR)
#undef CLEAR
  state->incoming = state->set_aside = Qundef;
  state->lent = state->held = Qnil;
  state->timer.fire = fire_sleeper;
  init_lists(state);
  return state;
}

void fiber_state_publish(struct fiber_state *draft) {
  draft->self = TypedData_Wrap_Struct(cFiberState, &state_type, draft);
}

struct fiber_state *fiber_state_new(void) {
  struct fiber_state *state = fiber_state_draft();

  fiber_state_publish(state);
  return state;
}

/* ---- from Fiber to record ------------------------------------------------------------------
 * An instance variable holds the record; reading one costs 50 ns on an object of Ruby's own. The
 * last few fibers asked for are therefore remembered. The table keeps them alive, or an address
 * could be reused by another fiber between two sweeps and be mistaken for it; a fiber that ends
 * leaves it at once, so what it can hold back is a few abandoned generators. */

enum { RECENT_SIZE = 64 };

static struct recent {
  VALUE fiber;                  /* 0 when empty */
  struct fiber_state *state;
} recent[RECENT_SIZE];

static void recent_mark(void *pointer) {
  (void)pointer;
  for (int i = 0; i < RECENT_SIZE; i++)
    if (recent[i].fiber) rb_gc_mark_movable(recent[i].fiber);
}

static void recent_compact(void *pointer) {  /* the address is the key: start afresh */
  (void)pointer;
  memset(recent, 0, sizeof(recent));
}

/* Not WB_PROTECTED on purpose: it is written at every look-up, and marked at every GC instead. */
static const rb_data_type_t recent_type = {
  .wrap_struct_name = "Polyphony::RecentFibers",
  .function = { .dmark = recent_mark, .dcompact = recent_compact },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static inline struct recent *recent_slot(VALUE fiber) {
  return &recent[(fiber / 40 ^ fiber >> 12) & (RECENT_SIZE - 1)];
}

static void recent_store(struct fiber_state *state) {
  *recent_slot(state->fiber) = (struct recent){ state->fiber, state };
}

void fiber_state_forget(struct fiber_state *state) {
  struct recent *slot = recent_slot(state->fiber);

  if (slot->state == state) *slot = (struct recent){ 0, NULL };
}

void fiber_state_attach(struct fiber_state *state, VALUE fiber) {
  FIBER_WRITE(state, fiber, fiber);
  rb_ivar_set(fiber, id_state, state->self);
  recent_store(state);          /* somebody will ask soon: to await it, or to stop it */
}

struct fiber_state *fiber_state_unwrap(VALUE self) {
  return typed_data(self, &state_type);
}

struct fiber_state *fiber_state_lookup(VALUE fiber) {
  struct recent *slot = recent_slot(fiber);

  if (slot->fiber == fiber) return slot->state;
  if (!RTEST(rb_obj_is_kind_of(fiber, cFiber)))
    rb_raise(rb_eTypeError, "expected a Fiber, got %"PRIsVALUE, rb_inspect(fiber));
  VALUE object = rb_ivar_get(fiber, id_state);
  if (NIL_P(object)) return NULL;

  struct fiber_state *state = fiber_state_unwrap(object);
  if (!state->ended) recent_store(state);
  return state;
}

struct fiber_state *fiber_state_of(VALUE fiber) {
  struct fiber_state *state = fiber_state_lookup(fiber);

  if (state) return state;
  state = fiber_state_new();
  VALUE self = state->self;
  state->started = true;
  fiber_state_attach(state, fiber);
  RB_GC_GUARD(self);            /* state points into it, and only the fiber will refer to it */
  return state;
}

/* ---- kept in other objects -------------------------------------------------------------------- */

void fiber_state_note(VALUE object, ID name, VALUE fiber) {
  rb_ivar_set(object, name, NIL_P(fiber) ? Qnil : fiber_state_of(fiber)->self);
}

/* What Marshal.load has made of a record tells nothing. */
VALUE fiber_state_noted(VALUE object, ID name) {
  VALUE noted = rb_attr_get(object, name);

  return rb_typeddata_is_kind_of(noted, &state_type) ? fiber_state_unwrap(noted)->fiber : Qnil;
}

VALUE fiber_state_wait_subject(struct fiber_state *state) {
  VALUE subject = state->wait_subject;

  return rb_typeddata_is_kind_of(subject, &state_type) ? fiber_state_unwrap(subject)->fiber : subject;
}

static bool dead_p(struct fiber_state *state) {
  return state->ended || (!NIL_P(state->fiber) && !RTEST(rb_fiber_alive_p(state->fiber)));
}

VALUE fiber_state_name(struct fiber_state *state) {
  if (dead_p(state)) return ID2SYM(rb_intern("dead"));
  if (state->fiber == rb_fiber_current()) return ID2SYM(rb_intern("running"));
  if (state->queued) return ID2SYM(rb_intern("runnable"));
  /* Of another thread: it runs, unless that thread polls on its behalf. */
  bool current = state->backend && state->backend->current == state && !state->backend->polling;
  return ID2SYM(current ? rb_intern("running") : rb_intern("waiting"));
}

void fiber_state_adopt(struct fiber_state *parent, struct fiber_state *child) {
  if (child->parent) {
    list_remove(&child->sibling);
    child->parent->child_count--;
  }
  child->parent = parent;
  if (!parent) return;
  child->at_rest = parent->at_rest = false;
  child->inherited = false;     /* set by spin */
  list_push(&parent->children, &child->sibling);
  parent->child_count++;
  RB_OBJ_WRITTEN(parent->self, Qundef, child->self);
  RB_OBJ_WRITTEN(child->self, Qundef, parent->self);
}

static bool shown_p(struct fiber_state *state) {
  if (state->is_starter) return false;
  if (state->worker) return false;  /* what it waits for is told of its caller */
  if (state->oob && !state->started && !state->queued) return false;  /* in reserve */
  return state->backend && state->backend->open && !NIL_P(state->fiber) && !dead_p(state);
}

static VALUE add_all(VALUE fibers) {
  list_each(node, &all) {
    struct fiber_state *state = list_entry(node, struct fiber_state, all);
    if (shown_p(state)) rb_ary_push(fibers, state->fiber);
  }
  return fibers;
}

VALUE fiber_state_list(void) { return gc_held_back(add_all, rb_ary_new()); }

static void leave_waitlist(struct fiber_state *fiber) {
  struct waitlist *list = fiber->waitlist;

  if (!list) return;
  if (list_empty_p(&fiber->parked)) list->woken--;
  else list->length--;
  list_remove(&fiber->parked);
  fiber->waitlist = NULL;
}

/* Fibers that are not ours may be generators of the survivor, who can go on with them. */
void fiber_state_abandon_others(struct fiber_state *survivor) {
  list_each(node, &all) {
    struct fiber_state *fiber = list_entry(node, struct fiber_state, all);
    if (fiber == survivor) continue;
    leave_waitlist(fiber);
    if (!fiber->spun && !fiber->root) continue;
    fiber->ended = true;
    if (!NIL_P(fiber->fiber)) fiber_state_forget(fiber);
  }
}

void fiber_state_init(void) {
  rb_gc_register_address(&cFiberState);
  cFiberState = rb_define_class_under(mPolyphony, "FiberState", rb_cObject);
  rb_undef_alloc_func(cFiberState);
  rb_funcall(mPolyphony, rb_intern("private_constant"), 1, ID2SYM(rb_intern("FiberState")));
  rb_gc_register_mark_object(TypedData_Wrap_Struct(cFiberState, &recent_type, recent));
}
