/* loading.h - files that Ruby loads. Layer 1.
 *
 * require reads its file through the scheduler, like any other. But up to Ruby 3.1 an autoload belongs to a
 * thread: if fibers could switch meanwhile, one that names the same constant would be told that there is
 * none. So these reads do not switch, as they do not in stock Ruby. */
#ifndef POLYPHONY_LOADING_H
#define POLYPHONY_LOADING_H

#include "polyphony.h"

void loading_init(void);                               /* once, at load */

/* Whether the running hook or stock method was called by require or load, or by RubyGems on their behalf,
 * to read this regular file. */
bool loading_p(VALUE io);
/* Bytes, or -errno. Stops the thread. */
int64_t loading_read(int fd, char *base, size_t length);

#endif
