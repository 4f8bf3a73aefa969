/* runqueue.c - see runqueue.h */
#include "runqueue.h"
#include "fiber_state.h"

enum { INITIAL_CAPACITY = 64, MAY_PASS = 4 };
/* Room for 2^63 entries at either end: no wrap within the life of a process. */
static const uint64_t MIDDLE = UINT64_C(1) << 63;

static void lane_init(struct lane *lane) {
  lane->entries = ALLOC_N(struct runqueue_entry, INITIAL_CAPACITY);
  lane->capacity = INITIAL_CAPACITY;
  lane->head = lane->tail = MIDDLE;
}

void runqueue_init(struct runqueue *queue) {
  *queue = (struct runqueue){ .length = 0 };
  for (int i = 0; i < LANES; i++) lane_init(&queue->lanes[i]);
}

void runqueue_free(struct runqueue *queue) {
  for (int i = 0; i < LANES; i++) {
    xfree(queue->lanes[i].entries);
    queue->lanes[i] = (struct lane){ .entries = NULL };
  }
}

unsigned runqueue_capacity(const struct runqueue *queue) {
  return queue->lanes[LANE_MAIN].capacity;
}

size_t runqueue_memsize(const struct runqueue *queue) {
  return (queue->lanes[LANE_MAIN].capacity + queue->lanes[LANE_EVENTS].capacity) *
         sizeof(struct runqueue_entry);
}

static inline struct runqueue_entry *at(struct lane *lane, uint64_t place) {
  return &lane->entries[place & (lane->capacity - 1)];
}

static void make_room(struct lane *lane) {
  if (lane->tail - lane->head < lane->capacity) return;
  struct lane old = *lane;

  lane->entries = ALLOC_N(struct runqueue_entry, (size_t)old.capacity * 2);
  lane->capacity = old.capacity * 2;
  for (uint64_t place = old.head; place != old.tail; place++) *at(lane, place) = *at(&old, place);
  xfree(old.entries);
}

static inline void fill(struct runqueue *queue, int lane, uint64_t place,
                        struct runqueue_entry entry) {
  *at(&queue->lanes[lane], place) = entry;
  queue->lanes[lane].length++;
  entry.fiber->queued = true;
  entry.fiber->lane = lane;
  entry.fiber->place = place;
  if (++queue->length > queue->high_mark) queue->high_mark = queue->length;
}

static inline void push(struct runqueue *queue, int lane, struct fiber_state *fiber, VALUE value,
                        enum resume_how how) {
  make_room(&queue->lanes[lane]);
  fill(queue, lane, queue->lanes[lane].tail++,
       (struct runqueue_entry){ fiber, value, how, ++queue->serial });
}

void runqueue_push(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how) {
  push(queue, LANE_MAIN, fiber, value, how);
}

void runqueue_push_event(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how) {
  push(queue, RB_UNLIKELY(queue->shuffled) ? LANE_MAIN : LANE_EVENTS, fiber, value, how);
}

void runqueue_unshift(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how) {
  struct lane *lane = &queue->lanes[LANE_MAIN];

  make_room(lane);
  fill(queue, LANE_MAIN, --lane->head, (struct runqueue_entry){ fiber, value, how, 0 });
}

static struct runqueue_entry *first(struct lane *lane) {
  while (!at(lane, lane->head)->fiber) lane->head++;
  return at(lane, lane->head);
}

static bool may_pass_p(struct runqueue *queue) {
  if (queue->lanes[LANE_MAIN].length <= RUNQUEUE_CROWD) return false;
  if (queue->passed++ < MAY_PASS) return true;
  queue->passed = 0;
  return false;
}

/* Both lanes have somebody. */
static struct lane *next_lane(struct runqueue *queue) {
  struct lane *main = &queue->lanes[LANE_MAIN], *events = &queue->lanes[LANE_EVENTS];
  uint64_t serial = first(main)->serial;

  if (serial == 0) return main;
  if (first(events)->serial < serial || may_pass_p(queue)) return events;
  return main;
}

void runqueue_shuffle(struct runqueue *queue, bool on, uint64_t seed) {
  queue->shuffled = on;
  queue->lot = seed;
}

/* splitmix64: every seed is as good as any other, 0 too. */
static uint64_t draw(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* Somebody from behind changes places with the first. Serials stay where they are, in order. */
static void draw_first(struct runqueue *queue, struct lane *lane) {
  struct runqueue_entry *head = first(lane);
  uint64_t place = lane->head + draw(&queue->lot) % (lane->tail - lane->head);

  if (head->serial == 0) return;       /* by priority: not up to chance */
  while (!at(lane, place)->fiber) place = place + 1 == lane->tail ? lane->head : place + 1;
  struct runqueue_entry *drawn = at(lane, place), before = *head;
  uint64_t serial = drawn->serial;

  *head = (struct runqueue_entry){ drawn->fiber, drawn->value, drawn->how, before.serial };
  *drawn = (struct runqueue_entry){ before.fiber, before.value, before.how, serial };
  before.fiber->place = place;
  head->fiber->place = lane->head;
}

bool runqueue_shift(struct runqueue *queue, struct runqueue_entry *entry) {
  struct lane *lane = &queue->lanes[LANE_MAIN];

  if (!queue->length) return false;
  if (RB_UNLIKELY(queue->shuffled) && lane->length > 1) draw_first(queue, lane);
  if (queue->lanes[LANE_EVENTS].length) lane = lane->length ? next_lane(queue) : lane + 1;
  *entry = *first(lane);
  lane->head++;
  lane->length--;
  queue->length--;
  entry->fiber->queued = false;
  return true;
}

struct runqueue_entry *runqueue_find(struct runqueue *queue, struct fiber_state *fiber) {
  return at(&queue->lanes[fiber->lane], fiber->place);
}

void runqueue_remove(struct runqueue *queue, struct fiber_state *fiber) {
  if (!fiber->queued) return;
  *runqueue_find(queue, fiber) = (struct runqueue_entry){ NULL, Qnil, RESUME_RETURN, 0 };
  fiber->queued = false;
  queue->lanes[fiber->lane].length--;
  queue->length--;
}

void runqueue_clear(struct runqueue *queue) {
  struct runqueue_entry entry;

  while (runqueue_shift(queue, &entry)) continue;
  for (int i = 0; i < LANES; i++) queue->lanes[i].head = queue->lanes[i].tail;
}

#define EACH_ENTRY(queue, entry) \
  for (struct lane *lane = (queue)->lanes; lane < (queue)->lanes + LANES; lane++) \
    for (uint64_t place = lane->head; place != lane->tail; place++) \
      for (struct runqueue_entry *entry = at(lane, place); entry && entry->fiber; entry = NULL)

void runqueue_mark(struct runqueue *queue) {
  EACH_ENTRY(queue, entry) {
    rb_gc_mark_movable(entry->fiber->self);
    rb_gc_mark_movable(entry->value);
  }
}

void runqueue_compact(struct runqueue *queue) {
  EACH_ENTRY(queue, entry) entry->value = rb_gc_location(entry->value);
}
