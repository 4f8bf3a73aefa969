/* pipe.h - both ends of a pipe in one object; what fd.c needs to know of it. Layer 1. */
#ifndef POLYPHONY_PIPE_H
#define POLYPHONY_PIPE_H

#include "fd.h"

/* True, and its descriptor, if object is a Polyphony::Pipe. Raises ClosedPipeError / IOError when
 * that end is closed. */
bool pipe_descriptor(VALUE object, enum fd_direction direction, int *fd);

#endif
