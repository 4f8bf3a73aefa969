/* deadlock.h - when a thread has nothing to run and nothing to wait for: is anybody left who could help,
 * and who is told if not. Layer 1. */
#ifndef POLYPHONY_DEADLOCK_H
#define POLYPHONY_DEADLOCK_H

#include "backend_base.h"

enum outlook {
  OUTLOOK_GOOD,                 /* another thread is at work, or waits for something that may come */
  OUTLOOK_OPEN,                 /* the same, but it will not tell us when it comes to wait for ever */
  OUTLOOK_BAD,                  /* all wait, some in Ruby's own way: such a one may be about to go on */
  OUTLOOK_NONE,                 /* no other thread can help: there is none, or each waits as we do */
};

enum outlook deadlock_outlook(void);

/* Whether a thread is one of ours (the main one, or begun with Polyphony) and does something by itself. */
bool deadlock_counts_p(VALUE thread);
/* Whether all others that count wait, for whatever it may be. Gives way first: a thread whose wait is over
 * but who has not got the GVL yet looks as if it waited. */
bool deadlock_others_wait_p(void);

/* Raises Deadlock in the main thread's main fiber, whichever thread found out. True if that fiber is
 * one of backend's, so that there is somebody to run now. */
bool deadlock_report(struct backend_base *backend);

#endif
