/* backend_parts.h - what the files of a backend, backend_*.c, know of each other. Others include backend_base.h. Layer 1. */
#ifndef POLYPHONY_BACKEND_PARTS_H
#define POLYPHONY_BACKEND_PARTS_H

#include "backend_base.h"
#include "generator.h"

/* ---- backend_base.c ---- */

/* What a thread remembers as its backend may be gone, or have moved. No GVL needed in a GC. */
void backend_forget_here(void);
/* The one it remembers; NULL if there is none. Does not raise. */
struct backend_base *backend_remembered_here(void);
/* The running fiber is not the one that was switched to last. */
struct fiber_state *backend_adopt_current(struct backend_base *backend, VALUE current);

/* ---- backend_life.c ---- */

struct backend_base *backend_open_here(VALUE thread);  /* a new one. Raises */
/* The fiber is the first of its thread at a switchpoint: says which one is the main fiber. */
void backend_find_root(struct backend_base *backend, struct fiber_state *fiber);

/* ---- backend_schedule.c ---- */

enum backend_position { AT_TAIL, AT_TAIL_OF_EVENTS, AT_HEAD };

extern uint64_t backend_wakes;  /* of fibers, in all threads: see hopeless_p in backend_idle.c */

/* Into the run queue, by the merge rule, without a look at shields, generators and other threads. */
void backend_enqueue(struct backend_base *backend, struct fiber_state *fiber, VALUE value, enum resume_how how,
                     enum backend_position position);
/* Who can be switched to in the place of a fiber that has resumed others; itself, when it has not. */
struct fiber_state *backend_deputy(struct fiber_state *fiber);
/* Whether a shield or mask holds the exception back: one of the fiber's own, or of those it has resumed, down
 * to the one that waits in its place. */
bool backend_held_back_p(struct fiber_state *fiber, struct fiber_state *last, VALUE exception);
/* Of a time limit in the fiber: nobody else can make sense of it. */
bool backend_own_limit_p(struct fiber_state *fiber, VALUE exception);
/* Array#delete, which asks for the very same object. False if it was not there. */
bool backend_delete_identical(VALUE array, VALUE object);

/* ---- backend_poll.c ---- */

/* While it polls. Once: it does not look before it has the GVL, and then at all there is. */
static inline void backend_rouse(struct backend_base *backend) {
  if (backend->roused) return;
  backend->roused = true;
  loop_wake(&backend->loop);
}

/* What it has been sent for (backend_base_send). */
void backend_run_errand(struct backend_base *backend);
/* An exception has come out of interrupts that were run in a wait: state is rb_protect's. Raises it, if it is meant for
 * the fiber that runs; else the main one is scheduled. */
void backend_heed(struct backend_base *backend, int state);
/* Runs interrupts, for the main fiber. Raises what is meant for the fiber that runs. */
void backend_check_interrupts(struct backend_base *backend);
/* The same in the fiber that runs, which is meant. */
void backend_be_interrupted(struct backend_base *backend);

/* ---- backend_idle.c ---- */

/* Waits until there is somebody in the run queue. Raises. */
void backend_find_runnable(struct backend_base *backend, struct fiber_state *self, enum switch_idle idle);

/* ---- backend_refusal.c ---- */

extern VALUE backend_fiber_kill;  /* what rb_errinfo says of a fiber that is being killed (Fiber#kill, since 3.3); or Qundef */

void backend_learn_fiber_kill(void);  /* once, at load */
/* A transfer which Ruby may refuse. backend->handover is set when it was, or when it came back by the end of a fiber. */
VALUE backend_transfer_with_care(struct backend_base *backend, struct fiber_state *self, struct runqueue_entry *next);

/* Ruby kills a fiber that is not ours again whenever it is switched to. What it does in an ensure, closing a
 * connection for instance, has to wait; so only the first time counts, which is not here: a fiber that
 * waits gets an exception. */
static inline bool backend_killable_p(const struct fiber_state *fiber) {
  return backend_fiber_kill != Qundef && generator_p(fiber);
}

#endif
