/* backend_base.h - a thread's event loop and run queue, and the one routine that switches fibers.
 * Layer 1. One per thread, used by that thread; scheduling a fiber is allowed from any thread that
 * holds the GVL (the queue is only touched under it), and wakes the owner if it is polling.
 *
 * There is no reactor fiber: whoever has to wait runs backend_base_switch_fiber, which takes the
 * next runnable fiber, polls when there is none, and transfers.
 *
 * What happens at every switch stands in backend_base.c; the rest in backend_life.c, backend_schedule.c,
 * backend_poll.c, backend_idle.c, backend_refusal.c and trace.c. */
#ifndef POLYPHONY_BACKEND_BASE_H
#define POLYPHONY_BACKEND_BASE_H

#include "fiber_state.h"
#include "loop.h"
#include "polyphony.h"
#include "runqueue.h"

struct backend_base {
  VALUE self;                   /* the Polyphony::Backend */
  VALUE thread;                 /* its Thread */
  bool open;                    /* the loop is usable */
  struct loop loop;
  struct runqueue runqueue;
  struct fiber_state *current;  /* who was switched to last; check against rb_fiber_current */
  bool steady;                  /* of the main thread: nobody else ever runs on the stack of its first fiber */
  struct fiber_state *root;     /* the thread's main fiber */
  struct fiber_state *starter;  /* an idle one, see starter.h; or NULL */
  struct list waiting;          /* fibers with a pending op or timer: they are rooted here */
  struct list selects;          /* struct select_wait, see io.h */
  struct list noted;            /* fibers that are not ours, in a scope or awaited (generator.h) */
  union {
    struct {
      bool handover;            /* a fiber ended and came back through the VM: take the next one */
      bool in_handler;          /* signal handlers run on top of the fiber that polls */
      bool interrupted;         /* an exception is on its way to the fiber that runs */
      bool unscheduled;         /* its scheduler was told to go: see scheduler.h */
      bool traced;              /* there is a trace_proc */
    };
    uint64_t uncommon;          /* not 0 if one of these is set: a turn does not take the short way then */
  };
  bool watching;                /* switches are looked at */
  unsigned quiet;               /* those since the last that mattered */
  enum resume_how how;          /* how the value of the transfer under way is meant */
  bool try_only;                /* the next read must not wait: see direct_paths.c */
  bool deaf;                    /* it could not be raised there: it is in the middle of another raise */
  unsigned interrupters;        /* threads that are about to raise it there */
  unsigned kill_masks;          /* fibers that hold a kill back, see interrupt_mask.h */
  bool kill_held;               /* until they are through */
  bool polling;                 /* the GVL is released: others must wake us */
  bool roused;                  /* while polling: it has been woken, for something to run or an errand */
  void (*errand)(VALUE);        /* what it has been asked to do when it has polled; or NULL */
  VALUE errand_about;           /* the argument; or Qnil */
  unsigned doubts;              /* how often in a row all threads seemed to wait for ever */
  int64_t look_again;           /* ns until it has to look for a deadlock again; 0: need not */
  bool hopeful;                 /* while polling: an operation or timer was pending when it began */
  unsigned switched;            /* switches since the last poll */
  unsigned batch;               /* runnable fibers after the last poll */
  uint64_t switch_count, poll_count, op_count;  /* reset when stats are read */
  uint64_t switch_total, poll_total, op_total;  /* those from before */
  int64_t turn_began;           /* ns, of the fiber that runs; 0 when not known, see stall.h */
  bool turn_shared;             /* when it began there were others to run, or to be woken */
  VALUE trace_proc, idle_proc;  /* or Qnil */
  uint64_t quick_at;            /* switch_count at the last call that did not switch, */
  unsigned quick_count;         /* and how many there were in a row */
  VALUE stand_ins;              /* idle ones, see stand_in.h; or Qnil */
  unsigned stand_in_count;
  bool tracing;                 /* inside trace_proc: no re-entry */
  VALUE last_status;            /* $? of the fiber that runs, as long as ... */
  VALUE thread_status;          /* ... the thread's is this one; Qundef before the first wait */
  VALUE handed;                 /* what the last switch to a generator had for it */
  int64_t idle_gc_period;       /* ns, 0 when off */
  int64_t idle_gc_last;
  uint64_t ended_count;         /* spun fibers that have run and ended */
  uint16_t timeline_id;         /* see timeline.h; 0 until it is seen there */
  uint64_t ended_at_gc;         /* the same when stacks were last asked back; 0 before */
};

/* What to do when nothing can run and nothing is pending. */
enum switch_idle {
  SWITCH_MAY_RETURN,            /* suspend: come back with nil */
  SWITCH_MUST_WAIT,             /* something outside may wake us: wait for it */
};

/* The thread's own backend. Checked by thread and epoch before it is followed: Ruby reuses native
 * threads and the addresses of Thread objects. */
struct backend_here {
  VALUE thread;
  unsigned epoch;
  struct backend_base *backend;
};

#ifdef __GLIBC__                /* a library loaded at run time may do that only there */
#define QUICK __attribute__((tls_model("initial-exec")))
#else
#define QUICK
#endif
extern __thread struct backend_here backend_here QUICK;
OURS extern unsigned backend_epoch;  /* changes when a remembered backend may be gone or have moved */

/* Whoever stands on a stack is the fiber whose stack it is. Ruby's thread and fiber take 120 instructions to ask for,
 * so the fiber that was switched to last is known again by where it stands: between two places on its stack where Ruby
 * had confirmed it before. Fibers that are not ours, and the first ones of threads but the main thread, whose stacks
 * may go on under others without our notice, are asked for each time. Returns NULL if it has to be. */
static inline struct fiber_state *backend_base_known_here(const char *frame) {
  if (backend_here.epoch != backend_epoch) return NULL;
  struct fiber_state *fiber = backend_here.backend->current;
  return (size_t)(frame - fiber->stack_low) < fiber->stack_known ? fiber : NULL;
}

/* After the backend was made to refer to a fiber. Those that were spun are their parent's and the first of a thread is the backend's
 * all along: they need no write barrier. */
static inline void backend_base_hold(struct backend_base *backend, const struct fiber_state *fiber) {
  if (!fiber->spun && !fiber->root) RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
}

void backend_base_init(void);                          /* once, at load */

/* The backend of the current thread, opened on first use. Raises when no driver works. */
struct backend_base *backend_base_current(void);
struct backend_base *backend_base_of(VALUE object);    /* of a Polyphony::Backend; raises TypeError */
struct backend_base *backend_base_of_thread(VALUE thread);  /* NULL if it has none */
struct backend_base *backend_base_open_here(void);     /* of the running thread; NULL if none is open */
VALUE backend_base_allocate(VALUE klass);
/* Opens the loop for the current thread. Raises. */
void backend_base_open(struct backend_base *backend);
/* Cancels and waits for what is in flight, frees the driver. Fibers are not resumed any more. */
void backend_base_finalize(struct backend_base *backend);
/* In a forked child: only the current fiber lives on, as main; the backends of threads that are
 * gone are closed. backend is the current thread's, or NULL. Raises. */
void backend_base_after_fork(struct backend_base *backend);

/* $? belongs to the fiber. Ruby has one for each thread, and sets it: after a switch, what is there
 * is the last of other fibers. Nobody reads it by itself before some fiber has waited for a child, so
 * nothing is done for it before that. */
OURS extern bool backend_base_keeps_statuses;          /* set it when a child is waited for */
VALUE backend_base_last_status(struct backend_base *backend);  /* of the running fiber, or nil */
void backend_base_show_status(struct backend_base *backend, VALUE status);

/* Makes a fiber the main one of its thread, without children. */
void backend_base_make_root(struct fiber_state *fiber);
/* Says that the running fiber is its thread's first one. */
void backend_base_note_root(void);

/* The record of the running fiber, bound to this backend, for whoever is about to wait. Raises
 * ThreadError on top of a wait: in a stock signal handler, an idle hook or a trace proc. */
struct fiber_state *backend_base_fiber(struct backend_base *backend);
bool backend_base_may_wait_p(struct backend_base *backend);  /* false: it would raise */
struct fiber_state *backend_base_running(struct backend_base *backend);  /* for others; does not raise */

/* Leaves the current fiber until it is scheduled; the only place where a fiber is left, but for one
 * whose turn is over (backend_base_snooze and Sched, which have a shorter way beside it: turn.h).
 * Returns the value it was resumed with; backend->how says whether it is to be raised.
 * Switches. May itself raise (signals, Thread#raise, Deadlock). */
VALUE backend_base_switch_fiber(struct backend_base *backend, enum switch_idle idle);

/* The same, and raises an exception it was resumed with. */
VALUE backend_base_suspend(struct backend_base *backend, enum switch_idle idle);
VALUE backend_base_snooze(struct backend_base *backend);
/* After a turn that did not just end: an exception came, or another fiber ended, or was not as it seemed. */
VALUE backend_base_come_back_late(struct backend_base *backend, struct fiber_state *self, VALUE value, VALUE status);
/* A turn at once while somebody wants to know of it: as turn_at_once. */
VALUE backend_base_turn_noted(struct backend_base *backend, struct fiber_state *self);
/* For calls that need not wait and then do not switch: false when there were so many of them in a row
 * that it is others' turn. */
bool backend_base_quick_p(struct backend_base *backend);

/* Protected: state is 0, or a tag for rb_jump_tag after cleaning up. Does not raise. The resume
 * value is returned, *how says how. Marks what the fiber waits for, for reports. */
VALUE backend_base_wait(struct backend_base *backend, enum switch_idle idle, const char *reason,
                        VALUE subject, enum resume_how *how, int *state);

/* Makes a fiber runnable. Under the GVL, from any thread. Ignored for a fiber that has ended.
 * Merge rule: a plain value replaces a plain value; an exception replaces a plain value; an
 * exception behind an exception is kept and delivered after it. */
void backend_base_schedule(struct fiber_state *fiber, VALUE value, enum resume_how how);
/* The same for what timers and completed operations wake: they may pass a crowd (runqueue.h). */
void backend_base_schedule_event(struct fiber_state *fiber, VALUE value, enum resume_how how);
/* At the head. */
void backend_base_schedule_first(struct fiber_state *fiber, VALUE value, enum resume_how how);
/* Value or exception, told by its class: what Fiber#schedule does. */
void backend_base_schedule_value(struct fiber_state *fiber, VALUE value, bool first);
/* Keeps a fiber off the queue, for a debugger; what is scheduled meanwhile waits for its return. */
void backend_base_take_off(struct fiber_state *fiber);
void backend_base_put_back(struct fiber_state *fiber);
/* Exceptions that came while another was waiting to be delivered follow, one at a switchpoint: called
 * when that one has been delivered. */
void backend_base_queue_pending(struct fiber_state *fiber);
/* Takes back an exception that was scheduled and not delivered. False if it was not there. */
bool backend_base_unschedule(struct fiber_state *fiber, VALUE exception);
/* The same, when the fiber runs and another thread calls. */
bool backend_base_withdraw(struct fiber_state *fiber, VALUE exception);
/* from stood in for to, and got what was meant for it; now it has yielded or ended, and cannot be
 * switched to. Its own limits stay with it. */
void backend_base_hand_back(struct fiber_state *from, struct fiber_state *to);
/* Whether the fiber, or a generator it resumed, has its thread: it computes, or is in a call that
 * stops the whole thread. Any thread. */
bool backend_base_runs_p(struct fiber_state *fiber);
/* Whether an exception is the next thing the fiber gets. */
bool backend_base_raising_p(struct fiber_state *fiber);
/* Takes back the next one, whichever it is; Qundef when there is none. */
VALUE backend_base_shift_exception(struct fiber_state *fiber);
/* The same for the next one of that class. */
VALUE backend_base_shift_instance(struct fiber_state *fiber, VALUE klass);

/* While on, the order of runnable fibers is drawn by lot, in all threads: each has a seed made of this one and of
 * when its backend was opened. For class_testing.c. */
void backend_base_shuffle(bool on, uint64_t seed);

/* Calls back for every open backend but one. */
void backend_base_each(void (*each)(struct backend_base *, int), struct backend_base *except, int arg);

/* Runs completions and due timers; waits if blocking and nothing is runnable. Raises. */
void backend_base_poll(struct backend_base *backend, bool blocking);
/* Schedules the owners of all ops with news. After every call that may settle one. */
void backend_base_collect(struct backend_base *backend);
/* Ends a poll of its thread; any thread. False when it is not polling. */
bool backend_base_wake(struct backend_base *backend);
/* The same, and has it call errand as the first thing with the GVL, in which it must not switch. False when it is not polling, or has
 * another errand. */
bool backend_base_send(struct backend_base *backend, void (*errand)(VALUE), VALUE about);
/* Whether the thread polls, and has nothing to do. */
static inline bool backend_base_rests_p(const struct backend_base *backend) {
  return backend->polling && !backend->runqueue.length && !backend->errand;
}

/* Arms a timer. Raises NoMemoryError. */
void backend_base_arm(struct backend_base *backend, struct timer *timer, int64_t deadline);

/* GC only when idle, at most once in that many nanoseconds; 0 or less: as usual. */
void backend_base_set_idle_gc(struct backend_base *backend, int64_t period);
VALUE backend_base_stats(struct backend_base *backend);
void backend_base_trace(struct backend_base *backend, int argc, const VALUE *argv);

/* Whether an operation or a timer may still wake somebody. */
static inline bool backend_base_pending_p(const struct backend_base *backend) {
  return backend->loop.in_flight > 0 || backend->loop.timers.length > 0;
}

int64_t backend_base_now(struct backend_base *backend);  /* ns on the clock of its timers */

#endif
