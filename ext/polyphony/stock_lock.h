/* stock_lock.h - fibers that wait for Ruby's own Mutex and Monitor. Layer 1.
 *
 * Any fiber tries by itself, for a lock belongs to the fiber that took it; if it has to wait, it is parked
 * here and not in Ruby's own list, where only threads stay. Whoever gives a lock up by one of its methods
 * says so here. Somebody may give it up behind our back (a thread that ends with the lock in its hands, a
 * C extension): that is looked for now and then. */
#ifndef POLYPHONY_STOCK_LOCK_H
#define POLYPHONY_STOCK_LOCK_H

#include "waitlist.h"

struct stock_lock {
  VALUE lock;                   /* what is waited for: a Mutex or a Monitor */
  VALUE (*try)(VALUE);          /* takes it without waiting; truthy if it could */
  VALUE argument;               /* of try: the lock, or the Mutex inside a Monitor */
};

extern unsigned stock_lock_waited;      /* how many locks are waited for; mostly none */
extern unsigned stock_lock_unseen;      /* how often a Mutex was found given up behind our back */

/* While somebody looks for deadlocks it is written down who takes which lock: Ruby does not tell. */
extern bool stock_lock_noting;
void stock_lock_set_noting(bool on);
void stock_lock_note(VALUE lock);                      /* the running fiber has it; when noting */
void stock_lock_forget(VALUE lock);                    /* it has given it up; when noting */
VALUE stock_lock_holders(VALUE waiters);               /* [[fiber, nil]], or [] if it is not known */

void stock_lock_init(void);                            /* once, at load */
/* In Ruby: the lock, of what a report says a fiber waits for. */
VALUE stock_lock_class(void);
VALUE stock_lock_subject(VALUE waiters);

/* Waits in order of arrival. Raises. Switches. */
void stock_lock_take(const struct stock_lock *lock);
/* Whatever comes; see waitlist_wait_firmly. */
void stock_lock_take_firmly(const struct stock_lock *lock);
/* Whether a fiber of this thread was told that the lock is free, and has not come to take it. */
bool stock_lock_promised_p(VALUE lock);
/* It was given up. Only where somebody waits for a lock. */
void stock_lock_given_up(VALUE lock);

/* Tells those whose lock was given up unseen; true if there were any. Not more often than it is worth,
 * unless told to. */
bool stock_lock_look(bool now);
int64_t stock_lock_patience(void);                     /* as holding_patience */
void stock_lock_after_fork(void);

#endif
