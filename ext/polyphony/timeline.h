/* timeline.h - who ran when, what others waited for, and who woke them: records of a fixed size in a ring, of which
 * Ruby makes a trace when asked (lib/polyphony/tools/trace.rb). Layer 1. Written and read under the GVL, by all threads.
 *
 * Off, it costs a comparison for each switch and for each wake. On, a switch writes one record of 32 bytes and reads the
 * processor's own counter: a call of the clock would cost three times that. */
#ifndef POLYPHONY_TIMELINE_H
#define POLYPHONY_TIMELINE_H

#include "backend_base.h"

enum timeline_kind {
  TIMELINE_SWITCH,              /* from fiber to other; reason: what the first waits for */
  TIMELINE_WAKE,                /* fiber (0: an event, or a thread without fibers) made other runnable */
  TIMELINE_POLL,                /* fiber waits for reason, and looks for events */
  TIMELINE_POLLED,              /* it has looked */
  TIMELINE_END,                 /* of fiber */
  TIMELINE_THREAD,              /* a thread has its first switchpoint before it, in fiber */
};

enum timeline_flag {
  TIMELINE_RUNNABLE = 1 << 0,   /* who leaves could run on: it gave way */
  TIMELINE_RAISED   = 1 << 1,   /* with an exception */
  TIMELINE_NEWBORN  = 1 << 2,   /* who is woken has never run */
};

struct timeline_record {
  uint64_t time;                /* of the counter; nanoseconds since the start when taken */
  uint32_t fiber, other;        /* fiber_state.timeline_id */
  union {
    const char *text;           /* static or of reason.h, or NULL */
    uint64_t index;             /* when taken: 1 and more, in the list of reasons; 0 for NULL */
  } reason;
  int32_t detail;               /* a descriptor, or -1 */
  uint16_t thread;              /* backend_base.timeline_id */
  uint8_t kind, flags;
};

OURS extern bool timeline_on;

void timeline_init(void);       /* once, at load */
/* From now on, in a ring of that many records, which is rounded up to a power of two. Raises NoMemoryError. */
void timeline_start(unsigned capacity);
/* Ends it: [records as a String, reasons, [[id, name]] of fibers that have ended, the same of threads, records in all,
 * capacity, nanoseconds]; Qnil if it was off. */
VALUE timeline_stop(void);
/* Ruby's own: it is the same ring, without what the parent did. */
void timeline_after_fork(void);

/* Kind, place and tag, with a NUL between. */
VALUE timeline_fiber_name(struct fiber_state *fiber);
uint32_t timeline_fiber_id(struct fiber_state *fiber);
uint16_t timeline_thread_id(struct backend_base *backend);

/* The rest is called when timeline_on. */
void timeline_switch(struct backend_base *backend, struct fiber_state *from, struct fiber_state *to, bool raised);
void timeline_wake(struct backend_base *here, struct fiber_state *waker, struct fiber_state *woken);
void timeline_poll(struct backend_base *backend, struct fiber_state *fiber, enum timeline_kind kind);
void timeline_end(struct fiber_state *fiber);          /* allocates; does not raise */
void timeline_step_down(struct fiber_state *fiber);    /* no longer the main one; allocates, does not raise */
void timeline_thread_begin(struct backend_base *backend);
void timeline_thread_end(struct backend_base *backend);

#endif
