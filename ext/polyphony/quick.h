/* quick.h - work that Ruby would let a scheduler do elsewhere, and that is done at once. Layer 1.
 *
 * Since 3.4 Ruby asks for computations (compression) and for every call to the file system: each stat, each
 * entry of a folder, each file that require tries. Another thread would have to be given the lock of the
 * interpreter for it, which costs forty times what the call does and much more while others compute; and
 * require would let other fibers run. Up to 3.3 nobody is asked. */
#ifndef POLYPHONY_QUICK_H
#define POLYPHONY_QUICK_H

#include "polyphony.h"

/* Whether the method in which the running hook was called is not known to compute. */
bool quick_p(VALUE work);
/* Calls the work in the running fiber, and stops it. Since 3.2. */
void quick_call(VALUE work);

#endif
