#include "timer_heap.h"
#include "test.h"

#define MANY 100000

/* A fixed seed: a failure must come back. */
static uint32_t random_below(uint32_t limit) {
  static uint64_t state = 88172645463325252u;

  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 32) % limit;
}

static struct timer *naive_first(struct timer *timers, size_t count) {
  struct timer *first = NULL;

  for (struct timer *timer = timers; timer < timers + count; timer++) {
    if (!timer_armed_p(timer)) continue;
    if (!first || timer->deadline < first->deadline ||
        (timer->deadline == first->deadline && timer->serial < first->serial)) first = timer;
  }
  return first;
}

TEST(heap_agrees_with_a_naive_model) {
  struct timer timers[200] = { 0 };
  struct timer_heap heap;
  size_t armed = 0;

  timer_heap_init(&heap);
  for (int step = 0; step < 200000; step++) {
    struct timer *timer = &timers[random_below(200)];
    bool was_armed = timer_armed_p(timer);
    if (random_below(3) == 0) {
      timer_heap_disarm(&heap, timer);
      armed -= was_armed;
    } else {
      CHECK_EQUAL(0, timer_heap_arm(&heap, timer, random_below(50)));
      armed += !was_armed;
    }
    CHECK_EQUAL(armed, heap.length);
    CHECK(timer_heap_first(&heap) == naive_first(timers, 200));
  }
  timer_heap_free(&heap);
}

TEST(heap_gives_equal_deadlines_in_the_order_of_arming) {
  struct timer *timers = calloc(1000, sizeof(*timers));
  struct timer_heap heap;

  timer_heap_init(&heap);
  for (int i = 0; i < 1000; i++) timer_heap_arm(&heap, &timers[i], 7);
  timer_heap_arm(&heap, &timers[0], 7);          /* armed again: goes to the end */
  for (int i = 1; i < 1000; i++) CHECK(timer_heap_shift_due(&heap, 7) == &timers[i]);
  CHECK(timer_heap_shift_due(&heap, 7) == &timers[0]);
  CHECK(timer_heap_shift_due(&heap, 7) == NULL);
  timer_heap_free(&heap);
  free(timers);
}

TEST(heap_sorts_a_hundred_thousand_timers) {
  struct timer *timers = calloc(MANY, sizeof(*timers));
  struct timer_heap heap;
  int64_t last = 0;

  timer_heap_init(&heap);
  for (int i = 0; i < MANY; i++) timer_heap_arm(&heap, &timers[i], random_below(1000000));
  for (int i = 0; i < MANY; i += 3) timer_heap_disarm(&heap, &timers[i]);
  for (int i = 1; i < MANY; i += 3) timer_heap_arm(&heap, &timers[i], random_below(1000000));
  size_t left = heap.length;
  for (struct timer *timer; (timer = timer_heap_shift_due(&heap, INT64_MAX)); left--) {
    CHECK(timer->deadline >= last && !timer_armed_p(timer));
    last = timer->deadline;
  }
  CHECK_EQUAL(0, left);
  timer_heap_free(&heap);
  free(timers);
}

TEST(heap_shifts_only_what_is_due) {
  struct timer early = { 0 }, late = { 0 };
  struct timer_heap heap;

  timer_heap_init(&heap);
  CHECK(timer_heap_first(&heap) == NULL);
  CHECK(timer_heap_shift_due(&heap, INT64_MAX) == NULL);
  timer_heap_arm(&heap, &late, 20);
  timer_heap_arm(&heap, &early, 10);
  CHECK(timer_heap_shift_due(&heap, 9) == NULL);
  CHECK(timer_heap_shift_due(&heap, 10) == &early);
  CHECK(timer_heap_shift_due(&heap, 19) == NULL);
  CHECK(timer_heap_first(&heap) == &late);
  timer_heap_free(&heap);
  CHECK(!timer_armed_p(&late));
}
