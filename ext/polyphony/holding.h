/* holding.h - what a fiber holds, a lock say, and how those who wait for it learn that the fiber
 * has ended without giving it back. Layer 1.
 *
 * Owner: a structure that marks `fiber` and `thread`. Nothing is linked anywhere until somebody
 * waits. The end of a spun fiber is told by fiber_life.c; nobody tells of the end of other fibers
 * and of threads, so their holdings are looked at with every poll. */
#ifndef POLYPHONY_HOLDING_H
#define POLYPHONY_HOLDING_H

#include "fiber_state.h"

struct holding {
  VALUE fiber;                  /* who has it; Qnil when nobody */
  VALUE thread;                 /* of that fiber */
  int64_t since;                /* ns on the coarse monotonic clock */
  struct list link;             /* in fiber_state.holdings, or among those to look at; or alone */
  void (*ended)(struct holding *);  /* the holder has; called once, unlinked, under the GVL */
};

void holding_init(struct holding *holding, void (*ended)(struct holding *));
void holding_mark(const struct holding *holding);
void holding_compact(struct holding *holding);
void holding_free(struct holding *holding);

/* Gives it to the current fiber. owner is the object that marks it. */
void holding_take(struct holding *holding, VALUE owner);
void holding_drop(struct holding *holding);
/* Somebody is about to wait for it: `ended` is called if the holder ends. */
void holding_watch(struct holding *holding);
/* Whether somebody has it who has ended. Calls Ruby, so other threads may run meanwhile. */
bool holding_over_p(const struct holding *holding);

void holding_end_all(struct fiber_state *fiber);       /* that fiber has ended */
/* Tells those whose holder has ended unseen; true if there were any. */
bool holding_look(void);
/* How long a thread may sleep before it looks again, in ns; -1: as long as it likes. */
int64_t holding_patience(void);

/* [[fiber, since]], or [] */
VALUE holding_report(const struct holding *holding);

#endif
