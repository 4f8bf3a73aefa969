/* errors.h - the exceptions of the gem, and raising from -errno with a way out in the message.
 * Layer 1. Every function here that says so raises. */
#ifndef POLYPHONY_ERRORS_H
#define POLYPHONY_ERRORS_H

#include "polyphony.h"

extern VALUE eBaseException;    /* Polyphony::BaseException < Exception, with a value */
extern VALUE eMoveOn, eCancel, eTerminate, eRestart, eInterjection;
extern VALUE eDeadlineExceeded; /* Polyphony::DeadlineExceeded < Cancel */
extern VALUE eTimeout;          /* Polyphony::TimeoutException */
extern VALUE eDeadlock;         /* Polyphony::Deadlock */
extern VALUE eFiberError, eClosedQueue;  /* Ruby's own, not named in its public headers */

void errors_init(void);

/* Raises SystemCallError for -errno; for the limits users meet (EMFILE, ENFILE, ENOMEM) the
 * message names the setting to change. Never returns. */
NORETURN(void error_raise_errno(int64_t negative_errno, const char *doing));

/* The same as an exception object, to be scheduled on a fiber. */
VALUE error_new_errno(int64_t negative_errno, const char *doing);

/* Raises TypeError unless error_instantiate knows what is meant. */
void error_check(VALUE spec);

/* The exception meant by a user: nil (RuntimeError), String, class, [class, message], instance.
 * Raises TypeError for anything else. */
VALUE error_instantiate(VALUE spec);

/* exit and signals: meant for the program, whichever fiber they come up in. */
bool error_ends_program_p(VALUE exception);

/* How a waiting fiber gets an exception: through exception.invoke, which raises, except for
 * Interjection, which calls its block and returns nil. */
VALUE error_invoke(VALUE exception);

#endif
