/* fiber_state.h - the C record of a fiber: everything the runtime knows of it, without instance
 * variables on hot paths. Layer 1.
 *
 * The record is a Ruby object of its own (never shown to users) that the fiber refers to. Every
 * VALUE in it is written through FIBER_WRITE, which does the write barrier. Pointers to other
 * records are kept alive by the lists they stand for: a parent marks its children, a waitlist its
 * parked fibers, a backend the fibers whose operations or timers are pending. */
#ifndef POLYPHONY_FIBER_STATE_H
#define POLYPHONY_FIBER_STATE_H

#include "list.h"
#include "polyphony.h"
#include "runqueue.h"
#include "timer_heap.h"

struct backend_base;
struct op;
struct place;
struct monitor_wait;
struct worker;

struct waitlist {               /* see waitlist.h */
  struct list parked;           /* by fiber_state.parked, longest waiting first */
  unsigned length;
  unsigned woken;               /* woken and not running yet: what they were woken for is theirs */
};

struct fiber_state {
  struct list all;              /* every record there is, for a fork */
  VALUE self;                   /* the wrapping object */
  VALUE fiber;                  /* the Fiber */
  struct backend_base *backend; /* whose queue it runs in; NULL until its first switchpoint */
  struct place *spun_at;        /* where it was spun, see place.h; or NULL */

  /* standing */
  bool spun : 1;                /* made by spin: ends through fiber_life.c */
  bool root : 1;                /* a thread's first fiber, or who took its place after a fork */
  bool started : 1;
  bool retried : 1;             /* its stack could not be had once already */
  bool ended : 1;               /* result is set; will not run again */
  bool away : 1;                /* has left through backend_base_switch_fiber */
  bool at_turn : 1;             /* and it was by giving others their turn: it is queued, with nothing to hear */
  bool idle_ok : 1;             /* waits in suspend: may be resumed when there is nothing to do */
  bool failed : 1;              /* ended, and result is the exception */
  bool graceful : 1;            /* graceful_shutdown? */
  bool told_to_end : 1;         /* by a parent that shuts down its children */
  bool oob : 1;                 /* runs a signal handler */
  bool off : 1;                 /* kept off the run queue, for a debugger */
  bool inherited : 1;           /* its deadline is that of its parent */
  bool independent : 1;         /* made by Fiber.schedule: the thread waits for its end */
  bool starting : 1;            /* likewise, and whoever called that waits for its first wait */
  bool blocked : 1;             /* waits to be unblocked, see scheduler.h */
  bool unblocked : 1;           /* has been, and does not know yet */
  bool signalled : 1;           /* by the condition variable it waits for */
  bool is_starter : 1;          /* see starter.h */
  bool begun_by_starter : 1;    /* which goes on when it ends */
  bool stack_told : 1;          /* the GC knows of its stack */
  bool at_rest : 1;             /* ended, and in no list: there is nothing to be undone when it is freed */

  /* Fibers that are not ours are resumed, and Ruby does not switch to a fiber that is resuming
   * another: whatever is scheduled for it goes to the one that waits in its place. */
  struct fiber_state *resumer;  /* who has resumed this one, see generator.h; or NULL */
  struct fiber_state *proxy;    /* the other way round */
  struct worker *worker;        /* of a stand-in, see stand_in.c; or NULL */
  bool unsure : 1;              /* others may stand between it and the resumer */
  bool escorted : 1;            /* by generator_resume, which knows when it is back */
  bool heard : 1;               /* somebody wants to hear of its end */

  uint64_t switches;            /* how often it had its turn */
  const char *stack_low;        /* a piece of its stack, between two places where it was seen running: */
  size_t stack_known;           /* its length; 0 while nothing is known, and when it has ended */
  uint32_t timeline_id;         /* see timeline.h; 0 until it is seen there */

  /* runqueue.c */
  bool queued;
  uint8_t lane;                 /* and where in it, while queued */
  uint64_t place;
  VALUE incoming;               /* an exception on its way in during a transfer; else Qundef */
  VALUE set_aside;              /* what was scheduled while it is off the queue; else Qundef */
  enum resume_how set_aside_how;
  VALUE pending;                /* Array of further exceptions to be delivered, or Qnil */

  /* what it waits for */
  struct list waiting;          /* in backend->waiting while an op or timer is pending */
  struct list parked;           /* in a waitlist */
  VALUE wake;                   /* what it was woken with there; Qnil before */
  struct waitlist *waitlist;    /* it is parked in or has been woken from; NULL when it runs again */
  struct timer timer;           /* of sleep */
  struct op *op;                /* in flight, or NULL */
  VALUE closing;                /* what tells it that its descriptor is being closed: the number tells nothing now; or Qnil */
  const char *wait_reason;      /* for reports; NULL when not waiting */
  int64_t wait_since;           /* coarse, see clock.h */
  VALUE wait_subject;           /* the io, queue, fiber ... it waits for, or Qnil */
  VALUE lent;                   /* String, IO::Buffer or Array lent to the kernel, pinned; or Qnil */
  struct monitor_wait *monitor_wait;  /* of Ruby's Monitor, see class_stock_locks.c; or NULL */
  VALUE condition;              /* Ruby's ConditionVariable it is in a wait of, or Qnil */
  struct intake *intake;        /* of the stock method it is in, see intake.h; or NULL */
  VALUE held;                   /* loans put aside while an interjection runs, pinned; or Qnil */
  struct list scopes;           /* cancel scopes it is in, innermost first */
  unsigned shields;             /* how many of them are shields */
  unsigned masks;               /* how many are masks, see interrupt_mask.h */
  bool holds_kill;              /* one of these says so */
  VALUE arrived;                /* in a mask: the last exception that came from outside; or Qnil */
  VALUE held_back;              /* Array of exceptions that wait for the end of those, or Qnil */
  VALUE sched;                  /* the Polyphony::Sched it was pushed to, or Qnil */
  VALUE deadline;               /* Polyphony::Deadline that holds for it and what it spins, or Qnil */
  struct list noted;            /* in backend->noted while it is in one, or heard, and not ours */

  /* the tree */
  struct fiber_state *parent;   /* NULL for a root or a raw fiber */
  struct fiber_state *former;   /* of an ended one: whose child it was, for a restart; or NULL */
  struct list children;         /* by sibling, oldest first */
  struct list sibling;
  unsigned child_count;

  /* life */
  VALUE last_status;            /* $? of whoever spun it, until it starts; else Qnil */
  VALUE context;                /* of whoever spun it, see telemetry.h; or Qnil */
  VALUE received;               /* that of the last message it took; or Qnil */
  VALUE storage;                /* Hash shared with whoever spun it, replaced on writing; or Qnil */
  VALUE block, result, tag, mailbox, monitors, monitor_mailbox, caller, auto_watcher;
  VALUE to_begin;               /* of a starter: the record of the fiber it is to begin; or Qnil */
  struct waitlist awaiters;     /* fibers parked until this one ends */
  struct list holdings;         /* what it holds and others wait for; see holding.h */
};

extern VALUE cFiberState;       /* of the wrapping objects */

#define FIBER_WRITE(state, member, value) RB_OBJ_WRITE((state)->self, &(state)->member, (value))

/* What a fiber's stack and frames cost beside the Ruby objects: told to the GC when a spun fiber begins, or
 * thousands of ended ones would wait for a collection that nothing calls for. */
enum { FIBER_FOOTPRINT = 8192 };

void fiber_state_init(void);                           /* once, at load */

/* A new record; fiber is Qnil until fiber_state_attach. May run the GC. */
struct fiber_state *fiber_state_new(void);
void fiber_state_attach(struct fiber_state *state, VALUE fiber);
/* The same in two steps. A draft is no object yet, and the GC does not see it: what is stored in it needs no write barrier, but has to be
 * held by somebody else until it is published. That may run the GC. */
struct fiber_state *fiber_state_draft(void);
void fiber_state_publish(struct fiber_state *draft);
/* It has ended. If nothing refers to it, it leaves the list of all while its memory is in the caches: when it is freed, it has long
 * been out of them. */
void fiber_state_lay_to_rest(struct fiber_state *state);

/* The record of a Fiber; made on demand for fibers that are not ours (Enumerator, Fiber.new).
 * Raises TypeError if it is not a Fiber. */
struct fiber_state *fiber_state_of(VALUE fiber);
/* The same, but NULL where there is no record yet. */
struct fiber_state *fiber_state_lookup(VALUE fiber);
struct fiber_state *fiber_state_unwrap(VALUE self);     /* from the wrapping object */
/* Drops what is remembered for quick look-up, when a fiber has ended. */
void fiber_state_forget(struct fiber_state *state);

/* An object (an exception) remembers a Fiber, or Qnil, under a hidden name. It is the record that is
 * kept, so that the object can still be marshalled: a Fiber cannot be. */
void fiber_state_note(VALUE object, ID name, VALUE fiber);
VALUE fiber_state_noted(VALUE object, ID name);         /* the Fiber, or Qnil */

/* What it waits for, as an object that may be shown; or Qnil. */
VALUE fiber_state_wait_subject(struct fiber_state *state);

/* :running :runnable :waiting :dead */
VALUE fiber_state_name(struct fiber_state *state);

/* Makes child a child of parent (NULL: of nobody); leaves the former one. */
void fiber_state_adopt(struct fiber_state *parent, struct fiber_state *child);

/* Every Fiber that has waited or is to run, and has not ended, eldest first. */
VALUE fiber_state_list(void);

/* In a forked child: no fiber but this one lives on, and none is waiting for anything. */
void fiber_state_abandon_others(struct fiber_state *survivor);

/* A structure that is not itself a Ruby object keeps fibers in a list: mark them. */
void fiber_state_mark_parked(const struct list *list);

#endif
