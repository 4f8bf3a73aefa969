/* waitlist.h - fibers parked until somebody wakes them, first come first served. Layer 1.
 * Owner: a structure that marks it. Used under the GVL, also by several threads: each fiber is
 * scheduled on its own backend. A fiber is parked in one list at a time. */
#ifndef POLYPHONY_WAITLIST_H
#define POLYPHONY_WAITLIST_H

#include "backend_base.h"

void waitlist_init(struct waitlist *list);
static inline bool waitlist_empty_p(const struct waitlist *list) { return list_empty_p(&list->parked); }

/* Parks the current fiber. owner is the object that marks the list (for the write barrier and in
 * reports). Returns the value given to the wake, or what the fiber was scheduled with otherwise.
 * Switches. Raises what it was woken with; a wake that came together with an exception, and is
 * therefore not used, goes on to the next fiber in the list. */
VALUE waitlist_park(struct waitlist *list, VALUE owner, const char *reason);
/* The same, but what it was woken with is not raised: *state is a tag then, and 0 otherwise. Raises only where it cannot wait. */
VALUE waitlist_park_protected(struct waitlist *list, VALUE owner, const char *reason, int *state);
/* The same for at most that many nanoseconds; *expired tells whether they passed. */
VALUE waitlist_park_for(struct waitlist *list, VALUE owner, const char *reason, int64_t timeout,
                        bool *expired);
/* For who comes when there is enough for all, and nobody parked, but some of those who came before were woken and
 * have not run yet: it is woken at once, behind them. As waitlist_park otherwise. */
VALUE waitlist_line_up(struct waitlist *list, VALUE owner, const char *reason);
/* For who has to go on waiting, until done says so, whatever comes. Exceptions are scheduled on the fiber
 * then, and a kill goes on; only a Deadlock ends it. Switches. */
void waitlist_wait_firmly(struct waitlist *list, VALUE owner, const char *reason, bool (*done)(VALUE),
                          VALUE argument);

bool waitlist_wake_first(struct waitlist *list, VALUE value);
/* False when nobody was there, which is mostly so: whoever takes an item, or unlocks, asks each time. */
static inline bool waitlist_wake(struct waitlist *list, VALUE value) {
  return !waitlist_empty_p(list) && waitlist_wake_first(list, value);
}
void waitlist_wake_all(struct waitlist *list, VALUE value);
void waitlist_mark(const struct waitlist *list);
void waitlist_free(struct waitlist *list);             /* lets all go, without waking */

#endif
