/* stall.h - how long fibers keep their thread. A turn goes from one switchpoint to the next; one that lasts longer than the
 * limit is written down with where it ended, if there are others who could have run: a thread that waits for one fiber, in a
 * pool for instance, may wait in whatever way it likes. Layer 1. Off, it costs two comparisons for each switch. */
#ifndef POLYPHONY_STALL_H
#define POLYPHONY_STALL_H

#include "backend_base.h"
#include "clock.h"

OURS extern int64_t stall_limit;     /* ns; 0 when nobody wants to know */

void stall_init(void);          /* once, at load */

void stall_set_limit(int64_t limit);

/* When the turn that is under way began, ns; 0 if none is, or it is not watched. */
int64_t stall_turn(const struct backend_base *backend);

/* Array of [thread, fiber, seconds, turn, backtrace, who waited], which becomes the caller's. */
VALUE stall_take(void);

/* [limit in seconds or nil, stalls, longest turn, { seconds at most => turns }], of turns that others had to wait for, since
 * somebody began to watch. */
VALUE stall_figures(void);

/* Array of fibers that could run if that one gave way. */
VALUE stall_held_up(struct backend_base *backend, struct fiber_state *except);

/* Allocates; does not switch. */
void stall_look(struct backend_base *backend, struct fiber_state *fiber);

static inline void stall_turn_begins(struct backend_base *backend) {
  if (!stall_limit) return;
  backend->turn_began = clock_monotonic();
  backend->turn_shared = backend->runqueue.length > 0 || backend_base_pending_p(backend);
}

static inline void stall_turn_ends(struct backend_base *backend, struct fiber_state *fiber) {
  if (stall_limit) stall_look(backend, fiber);
}

#endif
