/* generator.h - fibers that are not ours (Enumerator#next, Fiber.new): who has resumed whom. Layer 1.
 *
 * They are resumed, and Ruby does not switch to a fiber that is resuming another. Whatever is
 * scheduled for it goes to the innermost of those it has resumed, who waits in its place. So the
 * runtime has to know the chain, and Ruby does not tell it: a fiber that turns up at a switchpoint
 * was resumed by the one known to run before, or that one has yielded and somebody else did.
 *
 * While the running fiber is such a one, or one of them sits in a scope or is awaited, every switch
 * of the thread is looked at (an event hook, 45 ns each) and the chain is exact. Otherwise nothing
 * is, and a program without them pays nothing. */
#ifndef POLYPHONY_GENERATOR_H
#define POLYPHONY_GENERATOR_H

#include "backend_base.h"

static inline bool generator_p(const struct fiber_state *fiber) {
  return !fiber->spun && !fiber->root;
}

/* The last of those it has resumed, or its stand-in, which waits in its place; itself if there is none. It may
 * be switched to if it is away. */
static inline struct fiber_state *generator_innermost(struct fiber_state *fiber) {
  while (fiber->proxy && !fiber->away) fiber = fiber->proxy;
  return fiber;
}

/* Where Ruby goes on when a fiber ends that was transferred to: it does not know of stand-ins. */
static inline struct fiber_state *generator_returned_to(struct fiber_state *fiber) {
  while (fiber->proxy && !fiber->away && !fiber->proxy->worker) fiber = fiber->proxy;
  return fiber;
}

/* Who has resumed it in the end: a spun fiber, a main one, or one that nobody resumed. */
static inline struct fiber_state *generator_base(struct fiber_state *fiber) {
  while (fiber->resumer) fiber = fiber->resumer;
  return fiber;
}

/* The fiber runs, and is not backend->current: brings the chain up to date, and that too. */
void generator_arrive(struct backend_base *backend, struct fiber_state *fiber);

/* It was switched to by a fiber that ended, through the VM. Takes note of that end if it was a
 * generator's. */
void generator_came_back(struct backend_base *backend);

/* Looks at every switch of the thread from now on, as long as there is a reason to. */
void generator_watch(struct backend_base *backend);
void generator_unwatch(struct backend_base *backend);
/* A reason: it is in a scope, or somebody wants to hear of its end. For one that is not ours. */
void generator_note(struct fiber_state *fiber);
void generator_note_awaited(struct fiber_state *fiber);
void generator_drop(struct fiber_state *fiber);        /* in no scope any more */

/* Switches to the fiber by enter(argument), which returns when it is done with its part: the chain is
 * exact without looking at every switch. */
VALUE generator_escort(VALUE fiber, VALUE (*enter)(VALUE), VALUE argument);
/* The same by rb_fiber_resume. */
VALUE generator_resume(VALUE fiber, int argc, const VALUE *argv);

#endif
