#include "op_pool.h"
#include "test.h"

#define MANY 10000

TEST(pool_never_moves_an_op) {
  struct op **ops = calloc(MANY, sizeof(*ops));
  struct op_pool pool;

  op_pool_init(&pool);
  for (int i = 0; i < MANY; i++) {
    ops[i] = op_pool_acquire(&pool);
    ops[i]->result = i;
  }
  for (int i = 0; i < MANY; i++) CHECK_EQUAL(i, ops[i]->result);
  CHECK_EQUAL(MANY, pool.used);
  CHECK(op_pool_memsize(&pool) >= MANY * sizeof(struct op));
  op_pool_free(&pool);
  free(ops);
}

TEST(pool_reuses_ops_and_gives_them_out_zeroed) {
  struct op zero = { .fd = -1 };
  struct op_pool pool;

  op_pool_init(&pool);
  for (int i = 0; i < MANY; i++) {
    struct op *op = op_pool_acquire(&pool);
    zero.next_free = op->next_free;
    CHECK(memcmp(op, &zero, sizeof(*op)) == 0);
    memset(&op->as, 0xff, sizeof(op->as));
    memset(&op->driver, 0xff, sizeof(op->driver));
    op->kind = OP_READ;
    op->flags = OP_DETACHED;
    op->memory = malloc(16);
    op->shots = malloc(16);
    op_pool_release(&pool, op);
  }
  CHECK_EQUAL(0, pool.used);
  CHECK(pool.capacity < 1000);
  op_pool_free(&pool);
}

static void count(struct op *op, void *arg) {
  CHECK_EQUAL(OP_READ, op->kind);
  ++*(int *)arg;
}

TEST(pool_visits_ops_in_use_and_frees_their_memory) {
  struct op_pool pool;
  int visits = 0;

  op_pool_init(&pool);
  for (int i = 0; i < 300; i++) {
    struct op *op = op_pool_acquire(&pool);
    op->kind = OP_READ;
    op->memory = malloc(1);
    if (i % 3 == 0) op_pool_release(&pool, op);
  }
  op_pool_each(&pool, count, &visits);
  CHECK_EQUAL(200, visits);
  op_pool_free(&pool);
}

TEST(op_kinds_all_have_a_name) {
  for (int kind = OP_NONE; kind < OP_KINDS; kind++) CHECK(op_kind_name(kind) != NULL);
}
