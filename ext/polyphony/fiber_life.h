/* fiber_life.h - a spun fiber from birth to end. Layer 1.
 *
 * The end, in this order: MoveOn and Terminate become the result, other exceptions are the
 * result; children are stopped, youngest first, and waited for; awaiters and monitors are told; an
 * error nobody waits for goes to the parent; the parent forgets the fiber; the next fiber runs. */
#ifndef POLYPHONY_FIBER_LIFE_H
#define POLYPHONY_FIBER_LIFE_H

#include "backend_base.h"

void fiber_life_init(void);                            /* once, at load */

/* A new Fiber, child of parent, queued at the tail of parent's thread. Raises. */
VALUE fiber_life_spin(struct fiber_state *parent, VALUE tag, VALUE block);
/* A new Fiber that runs when somebody schedules it, a signal handler for instance: fibers made there
 * are, to Ruby, in it for ever and cannot lock a Mutex. It has no parent and inherits nothing. Raises. */
VALUE fiber_life_reserve(struct backend_base *backend, VALUE tag, VALUE block);

/* Waits for the end; the result, or raises what it ended with. Switches. */
VALUE fiber_life_await(struct fiber_state *fiber);

/* Waits for all children; raises what they raise. Switches. */
void fiber_life_await_children(struct fiber_state *fiber);
/* Stops all children, youngest first, and waits for them. Returns the first exception that came
 * meanwhile, or Qnil; a stop or a Restart goes to *order instead, the last of several. A main fiber
 * gives up at once for exit, a signal or a Deadlock. Switches, does not raise (but for Thread#kill). */
VALUE fiber_life_shut_down_children(struct fiber_state *fiber, bool graceful, VALUE *order);

/* The same for the main fiber of a thread that ends: errors of children that came too late to be
 * raised in it count as well, unless it has one of its own. */
VALUE fiber_life_end_children(struct fiber_state *main, bool take_late);
/* It is over: awaiters and monitors are told. */
void fiber_life_conclude(struct fiber_state *fiber, VALUE result, bool failed);

/* The last thing it does, see fiber_life.c: what its block returns. */
VALUE fiber_life_depart(struct fiber_state *fiber);

/* A fiber that cannot be started (no memory for its stack) ends with that error. */
void fiber_life_fail(struct fiber_state *fiber, VALUE error);

/* Makes an ended or new record run the block again in a new Fiber object (for restart). */
VALUE fiber_life_respawn(struct fiber_state *old, VALUE value);

#endif
