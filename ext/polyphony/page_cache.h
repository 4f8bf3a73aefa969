/* page_cache.h - writes to files, and reads of files in memory, that are carried out where they are
 * asked for. Linux only; elsewhere nothing is. Plain C, no GVL needed.
 *
 * A read is tried, where that can be told from waiting for the disk: to be had at once it need not visit a driver.
 * ext4 and tmpfs refuse RWF_NOWAIT, for writes or for both, so a driver can only give the op to a
 * worker, its own or the kernel's. But nearly always it is a copy to or from the page cache, and the
 * visit costs several times as much. A write waits where too much is to be written to disk already:
 * then it takes longer than a copy, and for many times as long the drivers have them again. */
#ifndef POLYPHONY_PAGE_CACHE_H
#define POLYPHONY_PAGE_CACHE_H

#include "loop.h"

bool page_cache_do(struct loop *loop, const struct op *op, int64_t *result);    /* of a kind that may be about a file */

/* Whether op, not submitted or about to be, was carried out; its result then. May be short. What is about sockets only
 * does not go there: half a kilobyte of the stack would be touched for it, which of a thousand fibers are not in the cache. */
static inline bool page_cache_try(struct loop *loop, const struct op *op, int64_t *result) {
  bool may_be_file = op->kind == OP_WRITEV || op->kind == OP_WRITE || op->kind == OP_READ;

  return may_be_file && page_cache_do(loop, op, result);
}

#endif
