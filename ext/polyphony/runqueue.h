/* runqueue.h - the fibers that may run, in order, each with the value it resumes with.
 * Owner: struct backend_base, which does the write barriers. Layer 1.
 *
 * Two lanes: fibers woken by an event (a timer, a completed operation) have one of their own. As a
 * rule they are served together in order of arrival. When the other lane is crowded (thousands of
 * fibers were just spun, say), four woken ones may pass for each one of the crowd: a timer does
 * not wait for 30,000 others to start, nor they for ever. Within a lane order is always kept.
 *
 * A test may have the order drawn by lot, from a seed (runqueue_shuffle): then there is one lane, and
 * whoever is in it may be next, but for those at the head by priority. Off, it costs a comparison.
 *
 * A fiber is in the queue at most once: its record knows its place, so scheduling it again is a
 * merge, not a second entry. Places are absolute numbers that only grow at the tail and shrink at
 * the head; a place is found at (place & mask) whatever the capacity, so doubling keeps them. */
#ifndef POLYPHONY_RUNQUEUE_H
#define POLYPHONY_RUNQUEUE_H

#include <stdbool.h>
#include "polyphony.h"

struct fiber_state;

enum resume_how { RESUME_RETURN, RESUME_RAISE };

struct runqueue_entry {
  struct fiber_state *fiber;    /* NULL: the fiber left the queue, skip */
  VALUE value;
  enum resume_how how;
  uint64_t serial;              /* order of arrival; 0: at the head by priority */
};

struct lane {
  struct runqueue_entry *entries;
  uint64_t head, tail;          /* head is the next to run; tail the next free place */
  unsigned capacity;            /* a power of two, or 0 */
  unsigned length;              /* fibers in it; less than tail - head when some left */
};

enum { LANE_MAIN, LANE_EVENTS, LANES };
enum { RUNQUEUE_CROWD = 128 };

struct runqueue {
  struct lane lanes[LANES];
  unsigned length;              /* of both */
  unsigned high_mark;           /* greatest length since stats were read */
  unsigned passed;              /* events that have passed a crowd since one of it was served */
  uint64_t serial;              /* of the last arrival */
  bool shuffled;
  uint64_t lot;                 /* state of the generator, while shuffled */
};

void runqueue_init(struct runqueue *queue);
void runqueue_free(struct runqueue *queue);
void runqueue_clear(struct runqueue *queue);           /* all fibers leave */
size_t runqueue_memsize(const struct runqueue *queue);

unsigned runqueue_capacity(const struct runqueue *queue);

/* The fiber must not be queued. */
void runqueue_push(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how);
void runqueue_push_event(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how);
void runqueue_unshift(struct runqueue *queue, struct fiber_state *fiber, VALUE value, enum resume_how how);
bool runqueue_shift(struct runqueue *queue, struct runqueue_entry *entry);  /* false when empty */

/* What is next if only order of arrival counts, or NULL: nobody, or it has to be looked at more closely. */
static inline struct runqueue_entry *runqueue_plain_next(struct runqueue *queue) {
  struct lane *lane = &queue->lanes[LANE_MAIN];

  if (queue->lanes[LANE_EVENTS].length || !lane->length || queue->shuffled) return NULL;
  return &lane->entries[lane->head & (lane->capacity - 1)];
}

/* From now on the order is drawn by lot, beginning with that seed; or no more. For class_testing.c. */
void runqueue_shuffle(struct runqueue *queue, bool on, uint64_t seed);

/* The entry of a queued fiber; valid until the queue is changed. */
struct runqueue_entry *runqueue_find(struct runqueue *queue, struct fiber_state *fiber);
void runqueue_remove(struct runqueue *queue, struct fiber_state *fiber);    /* no-op if not queued */

void runqueue_mark(struct runqueue *queue);
void runqueue_compact(struct runqueue *queue);

#endif
