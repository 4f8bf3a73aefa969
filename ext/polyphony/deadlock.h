/* deadlock.h - when a thread has nothing to run and nothing to wait for: is anybody left who could help,
 * and who is told if not. Layer 1. */
#ifndef POLYPHONY_DEADLOCK_H
#define POLYPHONY_DEADLOCK_H

#include "backend_base.h"

/* Whether no other thread can help: there is none, or each of them waits as we do. */
bool deadlock_hopeless_p(void);

/* Raises Deadlock in the main thread's main fiber, whichever thread found out. True if that fiber is
 * one of backend's, so that there is somebody to run now. */
bool deadlock_report(struct backend_base *backend);

#endif
