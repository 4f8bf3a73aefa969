/* gc_held_back.h - lists of things that nobody else may refer to. Layer 1.
 *
 * The garbage collector sweeps some time after it has found what is garbage, one object before the other. What is
 * in such a list may be garbage, and what it refers to may have been swept already: then it must not be touched. */
#ifndef POLYPHONY_GC_HELD_BACK_H
#define POLYPHONY_GC_HELD_BACK_H

#include "polyphony.h"

/* Calls function(argument) when all garbage that was found has been swept; meanwhile, no more is looked for. */
VALUE gc_held_back(VALUE (*function)(VALUE), VALUE argument);

#endif
