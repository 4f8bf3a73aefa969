/* stand_in.h - stock methods on fibers for which Ruby does not ask the scheduler. Layer 1.
 *
 * A thread's first fiber and the fiber of Enumerator#next are blocking ones: a stock method called there
 * stops the whole thread. So it is run in a non-blocking fiber, the stand-in, which is resumed like a
 * generator; whatever is scheduled for the fiber that waits reaches the stand-in (fiber_state.h,
 * `proxy`), so the call can be cancelled. A block is called in the fiber that gave it: the stand-in
 * yields what the block is to get, and goes on with what it returned. */
#ifndef POLYPHONY_STAND_IN_H
#define POLYPHONY_STAND_IN_H

#include "backend_base.h"
#include "intake.h"

void stand_in_init(void);                              /* once, at load */

/* Makes one that begins when it is needed, and makes the next one then. While Ruby raises an exception (it calls
 * a `backtrace` of the user's) it runs no interrupts, and a fiber that is made there never will. */
void stand_in_reserve(struct backend_base *backend);

/* Whether the running fiber needs one: it is a blocking fiber, its thread has a backend and our
 * scheduler, and it may wait. */
bool stand_in_wanted_p(void);
/* Whether it needs none, because Ruby asks our scheduler. */
bool stand_in_scheduled_p(void);
/* Either: whether others can run while it waits. */
bool stand_in_possible_p(void);

struct stand_in_call {
  VALUE method;                 /* UnboundMethod */
  VALUE receiver;
  int argc;
  const VALUE *argv;
  int keywords;                 /* as rb_keyword_given_p says */
  struct intake *intake;        /* of a method that reads; or NULL */
  void (*before_block)(int argc, const VALUE *argv);  /* in the caller's fiber; or NULL */
};

/* Calls the method in a stand-in, with the block of the current frame if there is one. Returns what it
 * returns, raises what it raises, as if it had been called here. Switches. */
VALUE stand_in_call(const struct stand_in_call *call);
/* The same for a function. */
VALUE stand_in_run(VALUE (*function)(VALUE), VALUE argument);

/* In a stand-in: calls a function in the fiber that called. If that raises, so does this, for good. In
 * another fiber: calls it. */
VALUE stand_in_ask(VALUE (*function)(VALUE), VALUE argument);
bool stand_in_p(void);                                 /* whether the running fiber is one */
/* Who is at work: the fiber itself; while it asks, the one that called it. */
struct fiber_state *stand_in_acting(struct fiber_state *fiber);

#endif
