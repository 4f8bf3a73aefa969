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

static VALUE resume(VALUE fiber) { return rb_fiber_resume(fiber, 0, NULL); }

static VALUE refuse_yield(VALUE fiber) {
  VALUE error = rb_exc_new_cstr(eFiberError, "attempt to yield on a not resumed fiber");

  return rb_fiber_raise(fiber, 1, &error);
}

/* Ruby has no stack for it: it is switched to the usual way, which knows what to do then. */
static void put_back(struct backend_base *backend, struct fiber_state *target) {
  target->spun_at->brief = STARTER_UNSURE;
  if (!target->queued && !target->ended) backend_enqueue(backend, target, Qnil, RESUME_RETURN, AT_HEAD);
}

/* Until it has ended. Returns a tag if the thread is to be killed, or if something was raised on the way back. */
static int begin(struct backend_base *backend, struct fiber_state *target) {
  volatile VALUE fiber = target->fiber;
  int state;

  backend->current = target;
  backend->how = RESUME_RETURN;
  target->begun_by_starter = true;
  target->spun_at->brief = STARTER_UNSURE;  /* if it waits, nobody has to be told */
  rb_protect(resume, fiber, &state);
  if (state && !target->started) {
    rb_set_errinfo(Qnil);
    target->begun_by_starter = false;
    put_back(backend, target);
    return 0;
  }
  while (!state && !target->ended) rb_protect(refuse_yield, fiber, &state);
  if (target->switches <= 1) target->spun_at->brief = STARTER_SURE;
  fiber = Qnil;
  return state;
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

struct starter {
  struct backend_base *backend;
  struct fiber_state *self;
};

/* As a fiber that ends: Ruby's root fiber, or who waits in its place, takes the next entry. */
static VALUE leave(VALUE argument) {
  struct starter *starter = (struct starter *)argument;
  struct backend_base *backend = starter->backend;
  struct fiber_state *heir = generator_returned_to(backend->root);

  if (!heir->away) return backend_base_switch_fiber(backend, SWITCH_MUST_WAIT);
  VALUE fiber = heir->fiber;
  backend->current = heir;
  backend->handover = true;
  VALUE value = rb_fiber_transfer(fiber, 0, NULL);
  RB_GC_GUARD(fiber);
  return value;
}

static int park(struct starter *starter) {
  int state;

  starter->self->to_begin = Qnil;
  starter->backend->starter = starter->self;
  RB_OBJ_WRITTEN(starter->backend->self, Qundef, starter->self->self);
  rb_protect(leave, (VALUE)starter, &state);
  if (starter->backend->starter == starter->self) starter->backend->starter = NULL;
  return state;
}

/* The fiber to begin, unless somebody else was quicker while a signal handler ran here. */
static struct fiber_state *target_of(const struct fiber_state *self) {
  struct fiber_state *target = NIL_P(self->to_begin) ? NULL : fiber_state_unwrap(self->to_begin);

  return !target || target->started || target->ended || target->queued ? NULL : target;
}

/* A starter may be idle for long. Its stack is looked at by the GC meanwhile, and is not to hold on to the last fiber. */
static int start_all(struct starter *starter) {
  struct fiber_state *target = target_of(starter->self);
  volatile VALUE record = Qnil;
  int state = 0;

  while (target && !state) {
    record = target->self;
    state = begin(starter->backend, target);
    target = state ? NULL : shift_next(starter->backend);
  }
  record = Qnil;
  (void)record;
  return state;
}

static void retire(struct starter *starter) {
  starter->self->ended = true;
  starter->self->stack_known = 0;
  fiber_state_forget(starter->self);
}

/* What is raised here, on the way from one fiber to another, or ends the thread, is the main fiber's: it goes on. */
static void give_up(struct starter *starter, int state) {
  struct fiber_state *target = target_of(starter->self);

  if (target) put_back(starter->backend, target);
  retire(starter);
  starter->backend->current = starter->backend->root;
  rb_jump_tag(state);
}

/* One is enough: who stayed behind with a fiber that waited may find another in its place. */
static VALUE starter_main(RB_BLOCK_CALL_FUNC_ARGLIST(record, data)) {
  struct fiber_state *self = fiber_state_unwrap(record);
  struct starter starter = { self->backend, self };
  int state;
  (void)data, (void)argc, (void)argv, (void)blockarg;

  self->started = true;
  do state = start_all(&starter);
  while (!state && !starter.backend->starter && !(state = park(&starter)));
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
  struct starter starter;
  struct runqueue_entry *next;
};

static VALUE switch_to(VALUE argument) {
  struct switching *switching = (struct switching *)argument;
  struct fiber_state *self = switching->starter.self;

  if (!self) self = switching->starter.self = make(switching->starter.backend);
  VALUE fiber = self->fiber, record = self->self;
  FIBER_WRITE(self, to_begin, switching->next->fiber->self);
  VALUE value = rb_fiber_transfer(fiber, 1, &record);
  RB_GC_GUARD(fiber);
  return value;
}

/* There is no memory for a new starter: then there may be none for the fiber, either. */
static VALUE switch_to_new(struct switching *switching, struct fiber_state *from) {
  struct backend_base *backend = switching->starter.backend;
  int state;
  VALUE value = rb_protect(switch_to, (VALUE)switching, &state);

  if (!state) return value;
  if (switching->starter.self && switching->starter.self->started) rb_jump_tag(state);
  rb_set_errinfo(Qnil);
  return backend_transfer_with_care(backend, from, switching->next);
}

VALUE starter_transfer(struct backend_base *backend, struct fiber_state *from, struct runqueue_entry *next) {
  struct switching switching = { { backend, backend->starter }, next };

  backend->starter = NULL;
  return switching.starter.self ? switch_to((VALUE)&switching) : switch_to_new(&switching, from);
}
