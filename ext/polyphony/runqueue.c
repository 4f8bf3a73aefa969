/* runqueue.c - see runqueue.h */
#include "runqueue.h"
#include "fiber_state.h"

enum { INITIAL_CAPACITY = 64 };
/* Room for 2^63 entries at either end: no wrap within the life of a process. */
static const uint64_t MIDDLE = UINT64_C(1) << 63;

void runqueue_init(struct runqueue *queue) {
  queue->capacity = INITIAL_CAPACITY;
  queue->entries = ALLOC_N(struct runqueue_entry, queue->capacity);
  queue->head = queue->tail = MIDDLE;
  queue->length = queue->high_mark = 0;
}

void runqueue_free(struct runqueue *queue) {
  xfree(queue->entries);
  queue->entries = NULL;
  queue->capacity = 0;
}

size_t runqueue_memsize(const struct runqueue *queue) {
  return queue->capacity * sizeof(*queue->entries);
}

static inline struct runqueue_entry *at(struct runqueue *queue, uint64_t place) {
  return &queue->entries[place & (queue->capacity - 1)];
}

static void grow(struct runqueue *queue) {
  struct runqueue old = *queue;

  queue->entries = ALLOC_N(struct runqueue_entry, (size_t)old.capacity * 2);
  queue->capacity = old.capacity * 2;
  for (uint64_t place = old.head; place != old.tail; place++) *at(queue, place) = *at(&old, place);
  xfree(old.entries);
}

static inline void fill(struct runqueue *queue, uint64_t place, struct fiber_state *fiber,
                        VALUE value, enum resume_how how) {
  *at(queue, place) = (struct runqueue_entry){ fiber, value, how };
  fiber->queued = true;
  fiber->place = place;
  if (++queue->length > queue->high_mark) queue->high_mark = queue->length;
}

void runqueue_push(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how) {
  if (queue->tail - queue->head == queue->capacity) grow(queue);
  fill(queue, queue->tail++, fiber, value, how);
}

void runqueue_unshift(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how) {
  if (queue->tail - queue->head == queue->capacity) grow(queue);
  fill(queue, --queue->head, fiber, value, how);
}

bool runqueue_shift(struct runqueue *queue, struct runqueue_entry *entry) {
  while (queue->head != queue->tail) {
    *entry = *at(queue, queue->head++);
    if (!entry->fiber) continue;
    entry->fiber->queued = false;
    queue->length--;
    return true;
  }
  return false;
}

struct runqueue_entry *runqueue_find(struct runqueue *queue, struct fiber_state *fiber) {
  return at(queue, fiber->place);
}

void runqueue_remove(struct runqueue *queue, struct fiber_state *fiber) {
  if (!fiber->queued) return;
  *at(queue, fiber->place) = (struct runqueue_entry){ NULL, Qnil, RESUME_RETURN };
  fiber->queued = false;
  queue->length--;
}

void runqueue_clear(struct runqueue *queue) {
  struct runqueue_entry entry;

  while (runqueue_shift(queue, &entry)) continue;
}

void runqueue_mark(struct runqueue *queue) {
  for (uint64_t place = queue->head; place != queue->tail; place++) {
    struct runqueue_entry *entry = at(queue, place);
    if (!entry->fiber) continue;
    rb_gc_mark_movable(entry->fiber->self);
    rb_gc_mark_movable(entry->value);
  }
}

void runqueue_compact(struct runqueue *queue) {
  for (uint64_t place = queue->head; place != queue->tail; place++) {
    struct runqueue_entry *entry = at(queue, place);
    if (entry->fiber) entry->value = rb_gc_location(entry->value);
  }
}
