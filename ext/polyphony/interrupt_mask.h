/* interrupt_mask.h - Thread.handle_interrupt, for the fiber that says it. Layer 1.
 *
 * Ruby's own mask is the thread's, and a stack: fibers that take turns would pop each other's. So it is only
 * used for a thread's main fiber (by the caller of interrupt_mask_run), for what Ruby itself raises there,
 * signals for instance. Everything else that comes from outside passes a mask of ours: a cancel scope
 * without a limit that knows which classes may come when. Limits set within it are not from outside; except
 * those of Timeout, to which the mask applies in stock Ruby. */
#ifndef POLYPHONY_INTERRUPT_MASK_H
#define POLYPHONY_INTERRUPT_MASK_H

#include "fiber_state.h"

enum timing { TIMING_UNSAID, TIMING_IMMEDIATE, TIMING_ON_BLOCKING, TIMING_NEVER };

/* Runs body(argument). timings: Hash by identity, Class => :immediate, :on_blocking or :never, anything
 * else raises ArgumentError. What was held back and may come now comes at once. Raises. */
VALUE interrupt_mask_run(VALUE timings, VALUE (*body)(VALUE), VALUE argument);

/* What the masks of the fiber say of the exception. */
enum timing interrupt_mask_timing(struct fiber_state *fiber, VALUE exception);
/* The same with those it has resumed, to the one that waits or runs in its place: what is said there counts
 * first. */
enum timing interrupt_mask_chain_timing(struct fiber_state *fiber, VALUE exception);
/* Whether the exception has to wait for the end of a mask. */
bool interrupt_mask_holds_p(struct fiber_state *fiber, VALUE exception);
/* Of the fiber and those who have resumed it: the one whose mask holds the exception back, or NULL. */
struct fiber_state *interrupt_mask_holder(struct fiber_state *fiber, VALUE exception);

/* Whether an exception of that class (Qnil: any) has come and was not delivered yet. */
bool interrupt_mask_pending_p(struct fiber_state *fiber, VALUE klass);

/* A new thread has the masks of the fiber that makes it, for good: Array of timings, outermost first, or Qnil.
 * The other takes them on in the main fiber of the new thread. */
VALUE interrupt_mask_legacy(struct fiber_state *fiber);
void interrupt_mask_inherit(VALUE legacy);

/* Whether a kill of the thread has to wait for a mask of a fiber that was spun; then it is noted. */
bool interrupt_mask_hold_kill(struct backend_base *backend);

#endif
