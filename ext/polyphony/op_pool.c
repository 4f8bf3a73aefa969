/* op_pool.c - see op_pool.h */
#include <stdlib.h>
#include <string.h>
#include "op_pool.h"

#define SLAB_OPS 64                    /* about 30 kB a slab */

struct op_slab {
  struct op_slab *next;
  struct op ops[SLAB_OPS];
};

void op_pool_init(struct op_pool *pool) { memset(pool, 0, sizeof(*pool)); }

static void op_free(struct op *op) {
  if (op->memory && op->dispose) op->dispose(op->memory);
  free(op->memory);
  free(op->shots);
  op->memory = NULL;
  op->shots = NULL;
}

void op_pool_free(struct op_pool *pool) {
  for (struct op_slab *slab = pool->slabs, *next; slab; slab = next) {
    next = slab->next;
    for (unsigned i = 0; i < SLAB_OPS; i++) op_free(&slab->ops[i]);
    free(slab);
  }
  op_pool_init(pool);
}

static bool op_pool_grow(struct op_pool *pool) {
  struct op_slab *slab = calloc(1, sizeof(*slab));
  if (!slab) return false;

  slab->next = pool->slabs;
  pool->slabs = slab;
  pool->capacity += SLAB_OPS;
  for (unsigned i = SLAB_OPS; i-- > 0;) {   /* backwards, so that neighbours are used in turn */
    slab->ops[i].next_free = pool->free;
    pool->free = &slab->ops[i];
  }
  return true;
}

struct op *op_pool_acquire(struct op_pool *pool) {
  if (!pool->free && !op_pool_grow(pool)) return NULL;

  struct op *op = pool->free;
  pool->free = op->next_free;
  pool->used++;
  memset(op, 0, offsetof(struct op, small));
  op->fd = -1;
  return op;
}

void op_pool_release(struct op_pool *pool, struct op *op) {
  op_free(op);
  op->kind = OP_NONE;                  /* op_pool_each passes over it */
  op->state = OP_IDLE;
  op->next_free = pool->free;
  pool->free = op;
  pool->used--;
}

void op_pool_each(struct op_pool *pool, void (*visit)(struct op *, void *), void *arg) {
  for (struct op_slab *slab = pool->slabs; slab; slab = slab->next)
    for (unsigned i = 0; i < SLAB_OPS; i++)
      if (slab->ops[i].kind != OP_NONE) visit(&slab->ops[i], arg);
}

size_t op_pool_memsize(const struct op_pool *pool) {
  return pool->capacity / SLAB_OPS * sizeof(struct op_slab);
}
