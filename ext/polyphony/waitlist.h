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
/* The same for at most that many nanoseconds; *expired tells whether they passed. */
VALUE waitlist_park_for(struct waitlist *list, VALUE owner, const char *reason, int64_t timeout,
                        bool *expired);
/* For who has to go on waiting, until done says so, whatever comes. Exceptions are scheduled on the fiber
 * then, and a kill goes on; only a Deadlock ends it. Switches. */
void waitlist_wait_firmly(struct waitlist *list, VALUE owner, const char *reason, bool (*done)(VALUE),
                          VALUE argument);

bool waitlist_wake(struct waitlist *list, VALUE value);          /* false when nobody was there */
void waitlist_wake_all(struct waitlist *list, VALUE value);
/* A reason given as text, for who keeps its bytes: a string of their own, to be marked as one that does not
 * move. The name of an ID would not do: a short one lies in an object that moves. Raises. */
VALUE waitlist_reason(VALUE text);
void waitlist_mark(const struct waitlist *list);
void waitlist_free(struct waitlist *list);             /* lets all go, without waking */

#endif
