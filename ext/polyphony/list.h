/* list.h - intrusive doubly linked list with a head; leaving is O(1) and needs no head. */
#ifndef POLYPHONY_LIST_H
#define POLYPHONY_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {                   /* a head, or a node in an owner; linked to itself when alone */
  struct list *next, *prev;
};

static inline void list_init(struct list *node) { node->next = node->prev = node; }
static inline bool list_empty_p(const struct list *node) { return node->next == node; }

static inline void list_push(struct list *head, struct list *node) {
  node->prev = head->prev;
  node->next = head;
  head->prev->next = node;
  head->prev = node;
}

static inline void list_unshift(struct list *head, struct list *node) {
  list_push(head->next, node);
}

static inline void list_remove(struct list *node) {   /* harmless on a node that is alone */
  node->prev->next = node->next;
  node->next->prev = node->prev;
  list_init(node);
}

#define list_entry(node, type, member) ((type *)((char *)(node) - offsetof(type, member)))
#define list_each(node, head) \
  for (struct list *node = (head)->next; node != (head); node = node->next)

#endif
