/* starter.h - fibers that are begun by being resumed. Layer 1.
 *
 * Ruby gives the stack of a fiber that has ended back at once only if it was resumed; that of one which was transferred to is kept
 * until the next collection, and each new fiber gets fresh memory meanwhile, which is most of what a short one costs. So fibers of
 * which it is expected that they end without waiting are resumed, by a fiber that does nothing else: the starter. All
 * switches that follow are transfers as ever. Should the fiber wait after all, its starter stays behind, resuming it, until it ends.
 *
 * What is expected is kept where the fiber was spun (place.h): the last ones from there did not wait. One that does makes them
 * all start the usual way for a while, so there are few starters that stay behind. */
#ifndef POLYPHONY_STARTER_H
#define POLYPHONY_STARTER_H

#include "backend_base.h"
#include "place.h"

/* So many in a row that ended in their first turn make the next one start this way. */
enum { STARTER_SURE = 2, STARTER_UNSURE = -64 };

static inline bool starter_wanted_p(const struct backend_base *backend, const struct runqueue_entry *next) {
  const struct fiber_state *fiber = next->fiber;

  return !fiber->started && fiber->spun_at && fiber->spun_at->brief >= STARTER_SURE && next->how == RESUME_RETURN &&
         NIL_P(next->value) && !fiber->starting && !fiber->oob && NIL_P(backend->trace_proc);
}

/* In place of a transfer to the new fiber, and likewise it returns when somebody switches back. Raises what a transfer may. */
VALUE starter_transfer(struct backend_base *backend, struct fiber_state *from, struct runqueue_entry *next);

/* The fiber has run its block: remembers whether it waited. */
void starter_learn(struct fiber_state *fiber);

#endif
