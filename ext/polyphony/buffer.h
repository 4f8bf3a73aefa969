/* buffer.h - memory lent to the kernel. Layer 1.
 * One loan per fiber at a time (a fiber waits for one operation). What is lent is held by the
 * fiber's record, which pins it; a String or IO::Buffer to be filled is locked besides, so that
 * Ruby code that touches it meanwhile gets Ruby's own error. io_await gives everything back. */
#ifndef POLYPHONY_BUFFER_H
#define POLYPHONY_BUFFER_H

#include "fiber_state.h"
#include "op.h"

/* Where bytes are read to. */
struct buffer {
  VALUE object;                 /* String, IO::Buffer, or Integer of a raw buffer; Qfalse: memory that is only the caller's */
  char *base;                   /* not of a String, whose is asked for each time */
  size_t size;                  /* room; of a String: what it has now */
  long pos;                     /* next byte goes here */
};

/* What object can take, beginning at pos (negative: behind what a String has; -1 is its end).
 * Raises for a frozen, locked or unsuitable object and for a position outside. */
struct buffer buffer_for_filling(VALUE object, long pos);
/* Room for length bytes at buffer->pos: grows a String, or returns what there is (raw, IO::Buffer).
 * Lends it to the fiber; the address is good until buffer_return. Raises. */
char *buffer_lend(struct buffer *buffer, struct fiber_state *fiber, size_t *length);
void buffer_advance(struct buffer *buffer, size_t length);  /* that many bytes came */
/* Cuts a String behind the last byte. Returns what the user gets: the String, or the count. */
VALUE buffer_finish(struct buffer *buffer, long start);

/* What is written: a frozen snapshot of a String (or of to_s), an IO::Buffer, or a raw buffer. */
VALUE buffer_snapshot(VALUE object, const char **base, size_t *length);
/* The same for bytes that an operation can have in its own memory: they are copied to small, and the snapshot is Qnil. */
VALUE buffer_copy_small(VALUE object, char small[OP_SMALL], const char **base, size_t *length);
/* The same as a frozen String, copied if need be: one loan cannot lock several buffers. */
VALUE buffer_text(VALUE object);
void buffer_lend_snapshot(struct fiber_state *fiber, VALUE snapshot);

void buffer_return(struct fiber_state *fiber);         /* the loan ends; no-op without one */

/* Raw buffers: malloc'd, named by an Integer that is checked whenever it comes back. */
VALUE buffer_raw_new(size_t size);
void buffer_raw_free(VALUE handle);
bool buffer_raw_find(VALUE handle, char **base, size_t *size, size_t **length);

#endif
