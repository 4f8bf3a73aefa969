/* virtual_clock.h - time that stands still while anybody runs and jumps when all wait; for tests.
 * Layer 1, under the GVL. One for all threads: deadlines are passed between them. begin and end are for
 * lib/polyphony/testing alone, the rest for backend_poll.c, which asks only while clock_shift.stopped.
 *
 * A thread counts if it is the main one or was begun with Polyphony, and is no helper. Time jumps, to
 * the first deadline in the threads that count, when none of these has anything to run, none of their
 * operations is with a worker thread, and what is in flight in the kernel was quiet for as long as the
 * test said. */
#ifndef POLYPHONY_VIRTUAL_CLOCK_H
#define POLYPHONY_VIRTUAL_CLOCK_H

#include "backend_base.h"

/* settle: ns for which operations in flight have to be quiet; negative: until there are none. May be
 * called again, to change that; the clock then goes on. */
void virtual_clock_begin(int64_t settle);
void virtual_clock_end(void);          /* goes on in real time from where it is */

/* Real ns that backend has to wait for events before it may ask for a jump. 0: none are in flight in
 * any thread. Negative: as long as it takes. */
int64_t virtual_clock_quiet(void);

/* Moves time if all wait and quiet, the real ns that events had to arrive, are enough: true if it has
 * moved. Threads with a timer that is due are woken. */
bool virtual_clock_jump(int64_t quiet);

/* Whether the running thread counts. */
bool virtual_clock_here_p(void);

#endif
