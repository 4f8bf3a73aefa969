/* fd.h - the descriptor of anything IO-like, and the bytes that a cancelled read had taken from
 * it already. Layer 1.
 *
 * Read-ahead belongs to the open file (device and inode), not to the number: duplicated
 * descriptors share it, and a number that was closed and given to another file does not see it.
 * The table is empty nearly always; looking costs nothing then. */
#ifndef POLYPHONY_FD_H
#define POLYPHONY_FD_H

#include "polyphony.h"

enum fd_direction { FD_READ, FD_WRITE };

/* IO, Polyphony::Pipe, an object with @io or to_io, or an Integer. Raises IOError when closed,
 * TypeError otherwise. Writes Ruby has buffered for it are flushed first when writing. */
int fd_of(VALUE io, enum fd_direction direction);
/* Writes what Ruby has buffered for an IO, so that it need not wait when it flushes. An error is left
 * for Ruby to meet. Switches if it has to wait. */
void fd_drain(VALUE io);

/* malloc for what would be lost without it, when nobody could be told: collects garbage and asks again before
 * it is NULL. Finalizers may run. */
void *fd_malloc(size_t size);

/* Bytes that arrived for a read nobody waits for any more. Regular files are wound back instead.
 * Never raises. */
void fd_give_back(int fd, const char *bytes, size_t length);
/* Likewise bytes that were taken in order and not used: they come first again. */
void fd_put_back(int fd, const char *bytes, size_t length);
/* Takes at most length bytes of read-ahead; 0 when there is none. */
size_t fd_take_ahead(int fd, char *into, size_t length);
bool fd_has_ahead(int fd);
void fd_forget(int fd);                 /* it is being closed */

void fd_after_fork(void);               /* child: the bytes are the parent's to read */

extern unsigned fd_ahead_count;         /* how many files have read-ahead */

#endif
