/* scheduler.h - Ruby's Fiber::Scheduler on the core's operations. Layer 1.
 *
 * A scheduler has no state of its own: it works on the backend of the thread that calls it, which is
 * opened when it first has to wait. Ruby calls it in non-blocking fibers only; for the others see
 * stand_in.h. */
#ifndef POLYPHONY_SCHEDULER_H
#define POLYPHONY_SCHEDULER_H

#include "backend_base.h"

extern VALUE cScheduler;                /* Polyphony::Scheduler */

void scheduler_init(void);              /* once, at load */

/* From now on every thread of ours gets a scheduler; at once the current one. */
void scheduler_install_everywhere(void);
/* Gives the current thread one if it is to have one and has none. */
void scheduler_install_here(void);
/* Ruby takes a thread's scheduler away when it ends, before at_exit, where fibers may still be at work;
 * and somebody may have set another one for a while. Called by whoever waits, until it is there again. */
void scheduler_come_back(struct backend_base *backend);
bool scheduler_everywhere_p(void);      /* or used alone */
/* Whether the thread's scheduler is one of ours, and has the running fiber. */
bool scheduler_ours_p(void);
/* Whether somebody else's is asked when the running fiber waits: stock methods are its business then. */
bool scheduler_foreign_p(void);
/* From now on a thread may have one of that class: ours for our fibers, somebody else's for all others
 * (lib/polyphony/extensions/scheduler.rb). */
void scheduler_share(VALUE klass);
/* Whether it is one of our fibers then: spun, or standing in for another. */
bool scheduler_has_p(VALUE fiber);

/* Waits to be unblocked, timeout in seconds or Qnil. Whether it was. An unblock is never lost: if an
 * exception comes with it, that is delivered at the next switchpoint. */
bool scheduler_block(VALUE blocker, VALUE timeout);
void scheduler_unblock(VALUE blocker, VALUE fiber);  /* any thread; lets other threads run */
/* Sleeps; an unblock ends it as well, which is how Ruby's ConditionVariable wakes. Whether something did
 * before the time was over. */
bool scheduler_sleep(VALUE timeout);

/* A child of the thread's main fiber, which runs at once until it waits. Raises what ends it before. */
VALUE scheduler_fiber(VALUE block);
void scheduler_run(void);               /* waits for all of those; raises what they raise */
/* Likewise, and the scheduler goes. If the wait is broken off, those that are left are stopped. */
void scheduler_close(void);
/* Somebody else's, at the end of a thread, as Ruby does a little later: its fibers may need the backend. */
void scheduler_close_others(void);

/* Reads or writes at least minimum bytes unless the file ends, from offset within the IO::Buffer; at
 * the file's position if position is negative. Bytes, or -errno. */
VALUE scheduler_io_read(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position);
VALUE scheduler_io_write(VALUE io, VALUE buffer, size_t minimum, size_t offset, int64_t position);
/* Reads what is there, at the file's position, and does not wait. */
VALUE scheduler_io_try(VALUE io, VALUE buffer, size_t offset);
/* Events that are there, or Qfalse after the timeout. */
VALUE scheduler_io_wait(VALUE io, int events, VALUE timeout);

#endif
