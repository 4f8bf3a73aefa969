/* trace.h - tells a proc of each event of a backend: Backend#trace_proc=. Layer 1. All of them may raise and switch, as the proc
 * does, and return at once without one: callers look at backend->trace_proc first, where it would cost. */
#ifndef POLYPHONY_TRACE_H
#define POLYPHONY_TRACE_H

#include "backend_base.h"

void trace_schedule(struct backend_base *backend, struct fiber_state *fiber, VALUE value, bool first);
void trace_poll(struct backend_base *backend, const char *name);  /* enter_poll or leave_poll */
void trace_block(struct backend_base *backend, struct fiber_state *self);
/* backend->how stays what it was. */
void trace_unblock(struct backend_base *backend, struct fiber_state *self, VALUE value);

#endif
