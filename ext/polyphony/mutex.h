/* mutex.h - Polyphony::Mutex and Monitor for callers in C: conditions. Layer 2. */
#ifndef POLYPHONY_MUTEX_H
#define POLYPHONY_MUTEX_H

#include "polyphony.h"

bool mutex_p(VALUE object);

/* Gives it up, however often it was entered; returns how often. Raises ThreadError if it is not
 * the current fiber's. */
unsigned mutex_release(VALUE self);
/* Takes it again as often, whatever comes meanwhile: exceptions are scheduled on the fiber when it
 * has the lock. Switches. */
void mutex_reacquire(VALUE self, unsigned entries);

#endif
