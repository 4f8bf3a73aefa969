/* fifo.h - named pipes. Layer 1.
 *
 * Opening one waits until somebody opens its other end, in a system call that has no other form. So it
 * is done in a thread of its own: see lib/polyphony/extensions/fifo.rb. */
#ifndef POLYPHONY_FIFO_H
#define POLYPHONY_FIFO_H

#include "polyphony.h"

bool fifo_p(VALUE path);        /* whether this String names one; raises for nothing */
/* Calls Polyphony::Fifo.name with the arguments, keywords and block of the current frame. Switches. */
VALUE fifo_call(ID name, int argc, const VALUE *argv);

#endif
