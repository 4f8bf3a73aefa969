/* turn.h - how a fiber that gives the others their turn goes to the end of the queue. Mostly the next one has done the same;
 * then there is nothing to look at but whether it is time for a poll, or whether something uncommon is the case: for that
 * there is the long way, through backend_base_switch_fiber. The order is the same on both. Inline, because there is not much more
 * to a turn: for backend_base.c, class_fiber.c and class_sched.c. Layer 1. */
#ifndef POLYPHONY_TURN_H
#define POLYPHONY_TURN_H

#include "backend_base.h"
#include "errors.h"
#include "stall.h"
#include "timeline.h"

/* Two fibers that schedule each other for ever must not starve the rest: with more switches than
 * this, and than fibers in the queue (a crowd counts as 128), since the last poll, events are
 * looked at without waiting. */
enum { SWITCHES_PER_POLL = 10 };

static inline bool turn_uncommon_p(struct backend_base *backend, const struct fiber_state *self) {
  return backend->uncommon || self->queued || self->wait_reason || stall_limit || self->incoming != Qundef ||
         (backend_base_pending_p(backend) && ++backend->switched > SWITCHES_PER_POLL);
}

/* Who can be switched to at once; or NULL. Who resumes with nil has no exception to hear of. */
static inline struct fiber_state *turn_next(struct backend_base *backend, const struct fiber_state *self) {
  struct runqueue_entry *next = runqueue_plain_next(&backend->runqueue);

  if (!next || !next->fiber || !next->fiber->at_turn || next->fiber->proxy || !NIL_P(next->value)) return NULL;
  return turn_uncommon_p(backend, self) ? NULL : next->fiber;
}

/* The next one leaves the queue, and the fiber goes to its end. Here and not in runqueue.c, which would be a call. */
static inline void turn_rotate(struct backend_base *backend, struct fiber_state *self, struct fiber_state *next) {
  struct runqueue *queue = &backend->runqueue;
  struct lane *lane = &queue->lanes[LANE_MAIN];

  lane->head++;                 /* its place is free for the one at the end */
  next->queued = false;
  lane->entries[lane->tail & (lane->capacity - 1)] = (struct runqueue_entry){ self, Qnil, RESUME_RETURN, ++queue->serial };
  self->queued = true;
  self->lane = LANE_MAIN;
  self->place = lane->tail++;
}

/* What follows it. There is no write barrier: both are spun or the first of a thread, so they are their parent's or the backend's. */
static inline VALUE turn_transfer(struct backend_base *backend, struct fiber_state *self, struct fiber_state *next, VALUE status) {
  VALUE value;

  self->away = self->at_turn = true;
  self->idle_ok = false;
  next->switches++;
  backend->switch_count++;
  backend->current = next;
  backend->how = RESUME_RETURN;
  value = rb_fiber_transfer(next->fiber, 0, NULL);
  self->away = self->at_turn = false;
  if (RB_UNLIKELY(backend->current != self || backend->uncommon || backend->how == RESUME_RAISE || status != Qundef ||
                  !NIL_P(self->pending)))
    return backend_base_come_back_late(backend, self, value, status);
  return value;
}

/* For a turn that is more than a transfer. */
static inline bool turn_noted_p(void) { return backend_base_keeps_statuses || timeline_on; }

/* Nobody else is there, nothing can come, and nobody is told of a turn: it would change nothing. */
static inline bool turn_void_p(const struct backend_base *backend, const struct fiber_state *self) {
  return !backend->runqueue.length && !backend_base_pending_p(backend) && self->incoming == Qundef &&
         !backend->uncommon && !stall_limit && !timeline_on;
}

/* A turn of the running fiber, which is known by its place on the stack; or Qundef: it has to go the long way, through
 * backend_base_snooze. */
static inline VALUE turn_at_once(struct fiber_state *self) {
  struct backend_base *backend = backend_here.backend;
  struct fiber_state *next;

  if (RB_UNLIKELY(turn_noted_p())) return backend_base_turn_noted(backend, self);
  if (!(next = turn_next(backend, self))) return Qundef;
  turn_rotate(backend, self, next);
  VALUE value = turn_transfer(backend, self, next, Qundef);
  return RB_UNLIKELY(backend->how == RESUME_RAISE) ? error_invoke(value) : value;
}

#endif
