/* reason.h - what fibers wait for, in words that a program gave. Layer 1.
 * Waiting fibers and the records of a trace hold the pointer alone. So a text is kept once for all who have the same, for
 * as long as one of them is there or a trace is made. (A string of Ruby's was gone before the trace was read.) */
#ifndef POLYPHONY_REASON_H
#define POLYPHONY_REASON_H

#include <ruby.h>

const char *reason_acquire(VALUE text);         /* raises; never NULL */
void reason_release(const char *reason);        /* NULL: none. For the free function of who acquired it */
void reason_trace_over(void);                   /* those that nobody has any more may go */

#endif
