/* cancel_scope.h - a deadline around a piece of code. Layer 1.
 * A scope belongs to the fiber that entered it and is in that fiber's list; its timer is in the
 * backend's heap: no fiber and no system call for a timeout. When it expires, the fiber is
 * scheduled with an exception made for this scope alone, so that only this scope answers for it
 * and others let it pass. */
#ifndef POLYPHONY_CANCEL_SCOPE_H
#define POLYPHONY_CANCEL_SCOPE_H

#include "fiber_state.h"
#include "place.h"

/* The words and Timeout.timeout are not deeper than this below the user's own code. */
enum { SCOPE_FRAMES = 5 };

struct cancel_scope {
  struct list link;             /* in fiber->scopes */
  uint64_t serial;              /* another one has its address when it is gone, but not this */
  struct fiber_state *fiber;
  struct timer timer;
  int64_t period;               /* ns; -1: no deadline, ends only by cancel */
  VALUE spec;                   /* what to raise (errors.h), or Qundef: move on */
  VALUE exception;              /* scheduled at expiry; Qundef before */
  bool shield;                  /* not a limit: what comes from outside waits for its end */
  bool maskable;                /* Timeout's: a mask around it holds for it, as in stock Ruby */
  bool superseded;              /* one around it has expired: it has nothing to say any more */
  struct place_frame set_at[SCOPE_FRAMES];             /* for the message of a Cancel */
  unsigned frames;
  VALUE face;                   /* the Polyphony::CancelScope shown to the user, or Qnil */
  VALUE timings;                /* of a mask, see interrupt_mask.h; or Qnil */
};

/* Runs body(argument, scope) under the deadline. spec Qundef: an expiry returns move_on_value
 * instead of raising. Whatever body throws, breaks or raises passes. Switches, raises. */
VALUE cancel_scope_run(int64_t period, VALUE spec, VALUE move_on_value,
                       VALUE (*body)(VALUE argument, struct cancel_scope *), VALUE argument);

VALUE cancel_scope_yield(VALUE argument, struct cancel_scope *scope);  /* a body: the plain block */

/* Runs body; exceptions scheduled on the fiber meanwhile wait for its end, and are raised there: not
 * those of limits within, nor of exit and signals. Switches, raises. */
VALUE cancel_scope_shield(VALUE (*body)(VALUE argument, struct cancel_scope *), VALUE argument);
/* Whether the exception has to wait for the end of a shield or mask; then it is kept. */
bool cancel_scope_hold(struct fiber_state *fiber, VALUE exception);
void cancel_scope_keep_back(struct fiber_state *fiber, VALUE exception);
bool cancel_scope_held_p(struct fiber_state *fiber, VALUE exception);  /* whether it waits there */
/* The shields or masks have changed: decides anew for all that came and was not delivered yet. */
void cancel_scope_sort(struct fiber_state *fiber);

/* For what is not a limit but has its place among them. The fiber is the running one. */
struct cancel_scope *cancel_scope_enter(struct fiber_state *fiber, int64_t period, VALUE spec);
void cancel_scope_dispose(struct cancel_scope *scope);

void cancel_scope_reset(struct cancel_scope *scope);   /* starts the period again */
/* Expires now; any thread with the GVL. False if it has ended meanwhile, and is gone. Raises. */
bool cancel_scope_cancel(struct cancel_scope *scope);
void cancel_scope_drop_limits(struct fiber_state *fiber);  /* none of its scopes expires any more */

/* Told when a scope ends, so that its face lets go of it. Set by class_scope.c. */
extern void (*cancel_scope_ended)(VALUE face);

/* For the record of the fiber. */
void cancel_scope_mark_all(struct list *scopes);
void cancel_scope_compact_all(struct list *scopes);
void cancel_scope_free_all(struct list *scopes);

#endif
