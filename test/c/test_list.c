#include "list.h"
#include "test.h"

struct item {
  struct list node;
  int value;
};

static void check_order(struct list *head, const char *digits) {
  size_t i = 0;

  list_each(node, head) CHECK_EQUAL(digits[i++] - '0', list_entry(node, struct item, node)->value);
  CHECK_EQUAL(strlen(digits), i);
}

TEST(list_keeps_order_and_lets_anyone_leave) {
  struct list head;
  struct item items[3] = { { .value = 0 }, { .value = 1 }, { .value = 2 } };

  list_init(&head);
  CHECK(list_empty_p(&head));
  list_push(&head, &items[1].node);
  list_push(&head, &items[2].node);
  list_unshift(&head, &items[0].node);
  check_order(&head, "012");
  list_remove(&items[1].node);
  check_order(&head, "02");
  list_remove(&items[1].node);         /* alone: harmless */
  list_push(&head, &items[1].node);
  check_order(&head, "021");
  for (int i = 0; i < 3; i++) list_remove(&items[i].node);
  CHECK(list_empty_p(&head));
}
