/* fork_locks.h - what the parent's fibers have locked, in a forked child. Layer 1.
 *
 * Ruby frees the locks of the other threads, which are gone. Those of fibers of the forking thread it leaves locked, since to Ruby
 * these fibers live on; with us they never run again. Only a fiber itself can unlock what it has locked. So each is switched to where it
 * waits, unlocks, and switches back. */
#ifndef POLYPHONY_FORK_LOCKS_H
#define POLYPHONY_FORK_LOCKS_H

#include "backend_base.h"

/* Before anything else is done in the child. locks: Array of Mutex, those inside of Monitors too. */
void fork_locks_give_up(struct backend_base *backend, VALUE locks);

/* Wherever a fiber of ours comes back from a transfer, before it looks at anything. */
extern bool fork_locks_asking;
void fork_locks_answer(void);
static inline void fork_locks_asked(void) {
  if (RB_UNLIKELY(fork_locks_asking)) fork_locks_answer();
}

#endif
