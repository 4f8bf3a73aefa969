/* virtual_clock.c - see virtual_clock.h */
#include "virtual_clock.h"
#include "clock.h"
#include "deadlock.h"

/* What is further away than that means for ever (io_nanoseconds cuts there, at 146 years). */
static const int64_t FOR_EVER = INT64_MAX / 4;

static int64_t settle_time;

void virtual_clock_begin(int64_t settle) {
  settle_time = settle;
  if (clock_shift.stopped) return;
  clock_shift.now = clock_now();
  clock_shift.stopped = true;
}

void virtual_clock_end(void) {
  if (!clock_shift.stopped) return;
  int64_t ahead = clock_shift.now - clock_monotonic();

  if (ahead > clock_shift.ahead) clock_shift.ahead = ahead;
  clock_shift.stopped = false;
}

bool virtual_clock_here_p(void) { return deadlock_counts_p(rb_thread_current()); }

struct survey {
  unsigned runnable;                   /* fibers */
  unsigned in_flight;
  unsigned at_work;                    /* operations that are with a worker */
  int64_t next;                        /* deadline */
};

static struct survey survey;           /* backend_base_each has room for an int only */

static void look(struct backend_base *backend, int unused) {
  (void)unused;
  if (!deadlock_counts_p(backend->thread)) return;
  struct timer *first = timer_heap_first(&backend->loop.timers);

  survey.runnable += backend->runqueue.length;
  survey.in_flight += backend->loop.in_flight;
  survey.at_work += backend->loop.offloads;
  if (first && first->deadline < survey.next) survey.next = first->deadline;
}

static void look_at_all(void) {
  survey = (struct survey){ .next = CLOCK_NEVER };
  backend_base_each(look, NULL, 0);
}

int64_t virtual_clock_quiet(void) {
  look_at_all();
  if (survey.at_work) return -1;
  return survey.in_flight ? settle_time : 0;
}

static void wake_if_due(struct backend_base *backend, int unused) {
  struct timer *first = timer_heap_first(&backend->loop.timers);

  (void)unused;
  if (first && first->deadline <= clock_shift.now) backend_base_wake(backend);
}

bool virtual_clock_jump(int64_t quiet) {
  if (!deadlock_others_wait_p()) return false;
  /* Others have run meanwhile, and may have woken one of ours, or begun an operation that nobody has given time yet. */
  int64_t needed = virtual_clock_quiet();
  if (survey.next == CLOCK_NEVER || survey.next - clock_shift.now > FOR_EVER) return false;
  if (survey.runnable || needed < 0 || needed > quiet) return false;
  if (survey.next > clock_shift.now) clock_shift.now = survey.next;
  backend_base_each(wake_if_due, NULL, 0);
  return true;
}
