/* op_pool.h - slabs of ops whose address never changes while the loop lives.
 * Owner: struct loop. Plain C, one thread. */
#ifndef POLYPHONY_OP_POOL_H
#define POLYPHONY_OP_POOL_H

#include "op.h"

struct op_slab;

struct op_pool {
  struct op_slab *slabs;        /* newest first, NULL when empty */
  struct op *free;              /* chained by next_free */
  unsigned used, capacity;
};

void op_pool_init(struct op_pool *pool);
void op_pool_free(struct op_pool *pool);              /* frees each op's memory and shots too */
struct op *op_pool_acquire(struct op_pool *pool);     /* zeroed, fd -1; NULL when memory is out */
void op_pool_release(struct op_pool *pool, struct op *op);  /* frees op->memory, op->shots */
/* Visits each op that was given a kind and not released; visit may release it. */
void op_pool_each(struct op_pool *pool, void (*visit)(struct op *, void *), void *arg);
size_t op_pool_memsize(const struct op_pool *pool);

#endif
