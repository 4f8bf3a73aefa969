/* timer_heap.c - see timer_heap.h
 * Four children a node: half as deep as a binary heap, and the children lie side by side. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "timer_heap.h"

#define CHILDREN 4
#define FIRST_CAPACITY 64

void timer_heap_init(struct timer_heap *heap) { memset(heap, 0, sizeof(*heap)); }

void timer_heap_free(struct timer_heap *heap) {
  for (size_t i = 0; i < heap->length; i++) heap->slots[i].timer->place = 0;
  free(heap->slots);
  timer_heap_init(heap);
}

static bool slot_before_p(const struct timer_heap_slot *a, const struct timer_heap_slot *b) {
  return a->deadline != b->deadline ? a->deadline < b->deadline : a->serial < b->serial;
}

static void slot_put(struct timer_heap *heap, size_t i, struct timer_heap_slot slot) {
  heap->slots[i] = slot;
  slot.timer->place = i + 1;
}

/* Both sifts move a hole and put the slot down once, at its end. */
static void sift_up(struct timer_heap *heap, size_t i, struct timer_heap_slot slot) {
  while (i > 0) {
    size_t parent = (i - 1) / CHILDREN;
    if (!slot_before_p(&slot, &heap->slots[parent])) break;
    slot_put(heap, i, heap->slots[parent]);
    i = parent;
  }
  slot_put(heap, i, slot);
}

static size_t earliest_child(const struct timer_heap *heap, size_t first) {
  size_t end = first + CHILDREN < heap->length ? first + CHILDREN : heap->length;
  size_t best = first;

  for (size_t i = first + 1; i < end; i++)
    if (slot_before_p(&heap->slots[i], &heap->slots[best])) best = i;
  return best;
}

static void sift_down(struct timer_heap *heap, size_t i, struct timer_heap_slot slot) {
  for (size_t child; (child = i * CHILDREN + 1) < heap->length; i = child) {
    child = earliest_child(heap, child);
    if (!slot_before_p(&heap->slots[child], &slot)) break;
    slot_put(heap, i, heap->slots[child]);
  }
  slot_put(heap, i, slot);
}

/* Places a slot whose index is right but whose order may be wrong in either direction. */
static void sift(struct timer_heap *heap, size_t i, struct timer_heap_slot slot) {
  if (i > 0 && slot_before_p(&slot, &heap->slots[(i - 1) / CHILDREN])) sift_up(heap, i, slot);
  else sift_down(heap, i, slot);
}

static int timer_heap_grow(struct timer_heap *heap) {
  size_t capacity = heap->capacity ? heap->capacity * 2 : FIRST_CAPACITY;
  struct timer_heap_slot *slots = realloc(heap->slots, capacity * sizeof(*slots));
  if (!slots) return -ENOMEM;

  heap->slots = slots;
  heap->capacity = capacity;
  return 0;
}

int timer_heap_arm(struct timer_heap *heap, struct timer *timer, int64_t deadline) {
  bool armed = timer_armed_p(timer);
  int rc;

  if (!armed && heap->length == heap->capacity && (rc = timer_heap_grow(heap)) < 0) return rc;
  timer->deadline = deadline;
  timer->serial = ++heap->serial;
  struct timer_heap_slot slot = { deadline, timer->serial, timer };
  if (armed) sift(heap, timer->place - 1, slot);
  else sift_up(heap, heap->length++, slot);
  return 0;
}

void timer_heap_disarm(struct timer_heap *heap, struct timer *timer) {
  if (!timer_armed_p(timer)) return;

  size_t hole = timer->place - 1;
  struct timer_heap_slot last = heap->slots[--heap->length];
  timer->place = 0;
  if (last.timer != timer) sift(heap, hole, last);
}

struct timer *timer_heap_first(const struct timer_heap *heap) {
  return heap->length ? heap->slots[0].timer : NULL;
}

struct timer *timer_heap_shift_due(struct timer_heap *heap, int64_t now) {
  if (!heap->length || heap->slots[0].deadline > now) return NULL;

  struct timer *timer = heap->slots[0].timer;
  timer_heap_disarm(heap, timer);
  return timer;
}
