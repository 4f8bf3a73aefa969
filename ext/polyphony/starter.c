/* starter.c - see starter.h
 *
 * A starter has a record, so that it is known for one of ours, and nothing else of a spun fiber: no parent, no place in the queue. Between two
 * starts it is kept by its backend, and waits in park. Its `to_begin` is the record of the next. */
#include "starter.h"
#include "backend_parts.h"
#include "errors.h"
#include "fiber_life.h"
#include "stall.h"
#include "timeline.h"
#include "turn.h"

/* ---- what is expected ------------------------------------------------------------------------ */

void starter_learn(struct fiber_state *fiber) {
  struct place *place = fiber->spun_at;

  if (!place) return;
  if (fiber->switches > 1) place->brief = STARTER_UNSURE;
  else if (place->brief < STARTER_SURE) place->brief++;
}

/* ---- one fiber ------------------------------------------------------------------------------- */

static void refuse_yield(VALUE fiber) {
  VALUE error = rb_exc_new_cstr(eFiberError, "attempt to yield on a not resumed fiber");

  rb_fiber_raise(fiber, 1, &error);
}

/* Ruby has no stack for it: it is switched to the usual way, which knows what to do then. */
static void put_back(struct backend_base *backend, struct fiber_state *target) {
  target->spun_at->brief = STARTER_UNSURE;
  if (!target->queued && !target->ended) backend_enqueue(backend, target, Qnil, RESUME_RETURN, AT_HEAD);
}

struct starter {
  struct backend_base *backend;
  struct fiber_state *self;
  struct fiber_state *target;   /* that has been resumed; or NULL */
  VALUE record;                 /* of the target, which needs to be on this stack; or Qnil */
};

/* A starter may be idle for long. Its stack is looked at by the GC meanwhile, and is not to hold on to the last fiber. */
static void forget_target(struct starter *starter) {
  starter->target = NULL;
  starter->record = Qnil;
}

/* Until it has ended. Raises if the thread is to be killed, or if something was raised on the way back. */
static inline void begin(struct starter *starter, struct fiber_state *target) {
  starter->backend->current = target;
  starter->backend->how = RESUME_RETURN;
  starter->target = target;
  starter->record = target->self;
  target->begun_by_starter = true;
  target->spun_at->brief = STARTER_UNSURE;  /* if it waits, nobody has to be told */
  rb_fiber_resume(target->fiber, 0, NULL);
  while (RB_UNLIKELY(!target->ended)) refuse_yield(target->fiber);
  if (target->switches <= 1) target->spun_at->brief = STARTER_SURE;
}

/* What was raised is only that it could not be begun. */
static bool not_begun_p(struct starter *starter) {
  struct fiber_state *target = starter->target;

  if (!target || target->started) return false;
  rb_set_errinfo(Qnil);
  target->begun_by_starter = false;
  put_back(starter->backend, target);
  forget_target(starter);
  return true;
}

/* ---- the next one ---------------------------------------------------------------------------- */

static bool unwatched_p(struct backend_base *backend) {
  return !backend->uncommon && !stall_limit && !timeline_on &&
         !(backend_base_pending_p(backend) && ++backend->switched > SWITCHES_PER_POLL);
}

/* If it is one to be started, too, this can be done from here. */
static struct fiber_state *shift_next(struct backend_base *backend) {
  struct runqueue_entry *next = runqueue_plain_next(&backend->runqueue), entry;

  if (!next || !next->fiber || !starter_wanted_p(backend, next) || !unwatched_p(backend)) return NULL;
  runqueue_shift(&backend->runqueue, &entry);
  entry.fiber->switches++;
  backend->switch_count++;
  return entry.fiber;
}

/* ---- between starts -------------------------------------------------------------------------- */

/* As a fiber that ends: Ruby's root fiber, or who waits in its place, takes the next entry. */
static inline void leave(struct backend_base *backend) {
  struct fiber_state *heir = generator_returned_to(backend->root);

  if (!heir->away) {
    backend_base_switch_fiber(backend, SWITCH_MUST_WAIT);
    return;
  }
  VALUE fiber = heir->fiber;
  backend->current = heir;
  backend->handover = true;
  rb_fiber_transfer(fiber, 0, NULL);
  RB_GC_GUARD(fiber);
}

static void come_back(struct starter *starter) {
  if (starter->backend->starter == starter->self) starter->backend->starter = NULL;
}

static inline void park(struct starter *starter) {
  starter->self->to_begin = Qnil;
  starter->backend->starter = starter->self;
  RB_OBJ_WRITTEN(starter->backend->self, Qundef, starter->self->self);
  leave(starter->backend);
  come_back(starter);
}

/* The fiber to begin, unless somebody else was quicker while a signal handler ran here. */
static struct fiber_state *target_of(const struct fiber_state *self) {
  struct fiber_state *target = NIL_P(self->to_begin) ? NULL : fiber_state_unwrap(self->to_begin);

  return !target || target->started || target->ended || target->queued ? NULL : target;
}

/* One is enough: who stayed behind with a fiber that waited may find another in its place.
 * All in one function and one rb_protect: after a switch the processor guesses each return wrong. */
static VALUE run(VALUE argument) {
  struct starter *starter = (struct starter *)argument;

  for (;;) {
    for (struct fiber_state *target = target_of(starter->self); target; target = shift_next(starter->backend))
      begin(starter, target);
    forget_target(starter);
    if (starter->backend->starter) return Qnil;
    park(starter);
  }
}

static void retire(struct starter *starter) {
  starter->self->ended = true;
  starter->self->stack_known = 0;
  fiber_state_forget(starter->self);
}

/* What is raised here, on the way from one fiber to another, or ends the thread, is the main fiber's: it goes on. */
static void give_up(struct starter *starter, int state) {
  struct fiber_state *target = target_of(starter->self);

  come_back(starter);
  if (target) put_back(starter->backend, target);
  retire(starter);
  starter->backend->current = starter->backend->root;
  rb_jump_tag(state);
}

static VALUE starter_main(RB_BLOCK_CALL_FUNC_ARGLIST(record, data)) {
  struct fiber_state *self = fiber_state_unwrap(record);
  struct starter starter = { self->backend, self, NULL, Qnil };
  int state;
  (void)data, (void)argc, (void)argv, (void)blockarg;

  self->started = true;
  do rb_protect(run, (VALUE)&starter, &state);
  while (state && not_begun_p(&starter));
  if (state) give_up(&starter, state);
  retire(&starter);
  RB_GC_GUARD(record);
  return fiber_life_depart(self);
}

/* ---- a switch to it -------------------------------------------------------------------------- */

#ifdef HAVE_RB_FIBER_NEW_STORAGE
static VALUE new_fiber(void) { return rb_fiber_new_storage(starter_main, Qnil, Qnil); }
#else
static VALUE new_fiber(void) { return rb_fiber_new(starter_main, Qnil); }
#endif

static struct fiber_state *make(struct backend_base *backend) {
  struct fiber_state *self = fiber_state_new();
  VALUE record = self->self;

  self->spun = self->is_starter = true;
  self->backend = backend;
  RB_OBJ_WRITTEN(record, Qundef, backend->self);
  fiber_state_attach(self, new_fiber());
  RB_GC_GUARD(record);
  return self;
}

struct switching {
  struct backend_base *backend;
  struct fiber_state *self;     /* NULL: one is to be made */
  struct runqueue_entry *next;
};

static VALUE switch_to(VALUE argument) {
  struct switching *switching = (struct switching *)argument;
  struct fiber_state *self = switching->self;

  if (!self) self = switching->self = make(switching->backend);
  VALUE fiber = self->fiber, record = self->self;
  FIBER_WRITE(self, to_begin, switching->next->fiber->self);
  VALUE value = rb_fiber_transfer(fiber, 1, &record);
  RB_GC_GUARD(fiber);
  return value;
}

/* There is no memory for a new starter: then there may be none for the fiber, either. */
static VALUE switch_to_new(struct switching *switching, struct fiber_state *from) {
  int state;
  VALUE value = rb_protect(switch_to, (VALUE)switching, &state);

  if (!state) return value;
  if (switching->self && switching->self->started) rb_jump_tag(state);
  rb_set_errinfo(Qnil);
  return backend_transfer_with_care(switching->backend, from, switching->next);
}

VALUE starter_transfer(struct backend_base *backend, struct fiber_state *from, struct runqueue_entry *next) {
  struct switching switching = { backend, backend->starter, next };

  backend->starter = NULL;
  return switching.self ? switch_to((VALUE)&switching) : switch_to_new(&switching, from);
}
