/* intake.h - what a stock method has read so far. Layer 1.
 *
 * Ruby's gets and read gather bytes in a String of their own, which is gone when an exception comes while
 * they wait for the rest. So it is noted what they take, and it is put back then: the next read gets it.
 * Where the bytes are decoded on the way (and on Rubies that do not show their buffers) it is not. */
#ifndef POLYPHONY_INTAKE_H
#define POLYPHONY_INTAKE_H

#include "fiber_state.h"

struct intake {
  VALUE io;                     /* Qnil: nothing is noted */
  const char *base;             /* in Ruby's buffer: taken by the time that is empty */
  size_t count;
  VALUE taken;                  /* String, what was taken from there before; or Qnil */
  size_t direct;                /* bytes that went straight to the method's own String */
  bool unclear;                 /* in which order they came */
};

/* A method that reads is about to be called. */
void intake_begin(struct intake *intake, VALUE io);
/* It needs more. */
void intake_continue(struct intake *intake);
/* That many bytes were put at base, in Ruby's buffer or straight into its String. */
void intake_filled(struct intake *intake, const char *base, size_t count, bool in_buffer);
/* It is broken off, while it waited for bytes to be put at base. Never raises. */
void intake_put_back(struct intake *intake, const char *base);

/* Calls the function while the running fiber notes what it takes there. */
VALUE intake_during(struct intake *intake, VALUE (*function)(VALUE), VALUE argument);

#endif
