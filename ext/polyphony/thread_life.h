/* thread_life.h - a thread from birth to end, for those who wait for it. Layer 1.
 * Made before the thread is, and reached from it through a hidden instance variable. A thread that
 * was made without us (by another extension, or before the gem was loaded) has none.
 *
 * The end, in this order: MoveOn and Terminate become the value; the children of the main fiber are
 * stopped and waited for; joiners are told; the backend is closed; the VM ends the thread. */
#ifndef POLYPHONY_THREAD_LIFE_H
#define POLYPHONY_THREAD_LIFE_H

#include "waitlist.h"

struct thread_life {
  VALUE block;                  /* what the user wants to be run */
  VALUE context;                /* of who made it, see telemetry.h; or Qnil */
  VALUE masks;                  /* what it inherits, see interrupt_mask_legacy; or Qnil */
  bool begun;                   /* a kill or raise before that ends the thread without telling us */
  bool told_to_end;             /* before it had begun: the block is not run */
  bool over;                    /* the VM is about to end the thread, or has */
  struct waitlist joiners;
};

void thread_life_init(void);                           /* once, at load */

/* The object; the Proc for its thread; the tie between the two. */
VALUE thread_life_new(VALUE block, VALUE masks);
VALUE thread_life_proc(VALUE life);
void thread_life_attach(VALUE thread, VALUE life);
struct thread_life *thread_life_of(VALUE thread);      /* NULL if it has none */

/* Waits until the thread is over; Qfalse after that many seconds (nil: no limit). Only for one that
 * has begun. A plain wake ends it, too. Switches, raises. */
VALUE thread_life_await(VALUE thread, VALUE seconds);

#endif
