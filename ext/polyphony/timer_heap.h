/* timer_heap.h - deadlines in order. Timers are embedded in their owners: arming and disarming
 * allocates only when the heap's array grows, and never enters the kernel.
 * Equal deadlines fire in the order in which they were armed. Plain C, one thread. */
#ifndef POLYPHONY_TIMER_HEAP_H
#define POLYPHONY_TIMER_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
  int64_t deadline;             /* nanoseconds on the loop's clock */
  uint64_t serial;              /* order of arming, breaks ties */
  size_t place;                 /* 1-based index in the heap; 0 when not armed */
  void (*fire)(struct timer *); /* called by the owner of the heap after it has shifted the timer */
};

struct timer_heap_slot {        /* deadline copied in, so that sifting stays within the array */
  int64_t deadline;
  uint64_t serial;
  struct timer *timer;
};

struct timer_heap {
  struct timer_heap_slot *slots;  /* NULL until the first arm */
  size_t length, capacity;
  uint64_t serial;
};

void timer_heap_init(struct timer_heap *heap);
void timer_heap_free(struct timer_heap *heap);        /* disarms all; the timers are not ours */
/* Arms, or moves an armed one. 0, or -ENOMEM and the timer is as it was. */
int  timer_heap_arm(struct timer_heap *heap, struct timer *timer, int64_t deadline);
void timer_heap_disarm(struct timer_heap *heap, struct timer *timer);  /* no-op when not armed */
struct timer *timer_heap_first(const struct timer_heap *heap);         /* NULL when empty */
/* Takes out the earliest timer if its deadline is not after now; else NULL. */
struct timer *timer_heap_shift_due(struct timer_heap *heap, int64_t now);

static inline bool timer_armed_p(const struct timer *timer) { return timer->place != 0; }

#endif
