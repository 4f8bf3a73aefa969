/* sqlite_handlers.c - see sqlite_link.h
 *
 * A statement runs with the interpreter's lock held. SQLite calls on_progress every so many steps of its virtual machine; there
 * the fiber takes turns with others, in the middle of sqlite3_step, on its own stack. That is allowed because
 * - nobody else calls SQLite with that connection meanwhile: `holding` and `waiting` see to it,
 * - the connection has no mutex of SQLite's (SQLITE_OPEN_NOMUTEX, or SQLITE_CONFIG_MULTITHREAD). With one, another thread that
 *   finalizes a statement in its garbage collection would wait for it with the interpreter's lock, for ever,
 * - no exception passes SQLite's frames: it is kept, the statement is interrupted, and the exception is raised afterwards. */
#include "errors.h"  /* first: Ruby's configuration decides what dlfcn.h has */
#include <dlfcn.h>
#include <time.h>
#include "clock.h"
#include "sqlite_link.h"

/* Steps between two looks at the clock: some 10 us. */
static const int STEPS = 1000;
/* While a file is busy: another process may have let go of it. */
static const int64_t LONGEST_PAUSE = NSEC_PER_SEC / 50;

static unsigned busy_waiters;   /* fibers of all threads that wait for a file */
static ID id_park;

/* Ruby knows, but tells it in no public header. It is asked by name; where it does not answer, nothing of ours is
 * attached to a connection. See docs/decisions/135. */
static int (*has_lock)(void);

bool sqlite_handlers_lock_held_p(void) { return has_lock && has_lock(); }

/* 0, or 1 if something was raised, which is kept. A kill of the thread cannot be kept, and passes SQLite's frames: what they leave behind is
 * the statement, which the gem finalizes then, extralite before it is seen in sqlite_link_call(). So what it has done is undone here, in the middle of
 * it: nobody comes back to that. One that waits for a file has not begun, or is done and commits. */
static int protected_p(struct sqlite_link *link, VALUE (*function)(VALUE), VALUE argument, VALUE *result) {
  VALUE before = rb_errinfo();
  int state;
  VALUE value = rb_protect(function, argument, &state);

  if (!state) {
    if (result) *result = value;
    return 0;
  }
  VALUE error = rb_errinfo();
  if (!RTEST(rb_obj_is_kind_of(error, rb_eException))) {
    if (function == sqlite_link_take_turns) sqlite_link_undo_half(link);
    rb_jump_tag(state);
  }
  RB_OBJ_WRITE(link->self, &link->error, error);
  rb_set_errinfo(before);
  return 1;
}

static bool statement_over_p(struct sqlite_link *link, int64_t now) {
  if (!link->statement_timeout) return false;
  if (!link->statement_began) link->statement_began = now;
  return now - link->statement_began > link->statement_timeout;
}

static int on_progress(void *argument) {
  if (!sqlite_handlers_lock_held_p() || rb_during_gc()) return 0;
  struct sqlite_link *link = argument;
  int64_t now = clock_monotonic();

  if (link->firm) return 0;
  if (!NIL_P(link->error) || statement_over_p(link, now)) return 1;
  if (now < link->turn_ends || !link->turns) return 0;
  if (protected_p(link, sqlite_link_take_turns, Qnil, NULL)) return 1;
  link->turn_ends = clock_monotonic() + SQLITE_TURN;
  return 0;
}

struct pause {
  VALUE file;
  int64_t length;
};

static VALUE park_for_file(VALUE argument) {
  struct pause *pause = (struct pause *)argument;

  return rb_funcall(pause->file, id_park, 1, DBL2NUM((double)pause->length / NSEC_PER_SEC));
}

static VALUE waiter_gone(VALUE nothing) {
  busy_waiters--;
  return nothing;
}

static VALUE pause_for_file(VALUE argument) {
  busy_waiters++;
  return rb_ensure(park_for_file, argument, waiter_gone, Qnil);
}

void sqlite_handlers_pause(struct sqlite_link *link, int64_t length) {
  struct pause pause = { link->file, length };

  pause_for_file((VALUE)&pause);
}

bool sqlite_handlers_pausing_p(void) { return busy_waiters; }

static int64_t pause_length(const struct sqlite_link *link, int count) {
  int64_t pause = (NSEC_PER_SEC / 1000) << (count > 6 ? 6 : count);
  int64_t left = link->busy_timeout - (clock_now() - link->busy_since);

  if (pause > LONGEST_PAUSE) pause = LONGEST_PAUSE;
  return pause < left ? pause : left;
}

static void sleep_plainly(int64_t length) {
  struct timespec time = { length / NSEC_PER_SEC, length % NSEC_PER_SEC };

  nanosleep(&time, NULL);
}

/* Whether to try again. */
static int wait_for_file(struct sqlite_link *link, int count) {
  if (!count) link->busy_since = clock_now();
  struct pause pause = { link->file, pause_length(link, count) };

  if (pause.length <= 0) return 0;
  if (!sqlite_handlers_lock_held_p() || !sqlite_link_backend_for_turns() || !link->turns || NIL_P(link->file)) {
    sleep_plainly(pause.length);
    return 1;
  }
  return !protected_p(link, pause_for_file, (VALUE)&pause, NULL);
}

struct asking {
  VALUE handler;
  int count;
};

static VALUE ask_handler(VALUE argument) {
  struct asking *asking = (struct asking *)argument;

  return rb_funcall(asking->handler, id_call, 1, INT2FIX(asking->count));
}

/* A statement that was dropped in the middle is finalized by the garbage collector, and may want the file; there nobody can wait, and the
 * link may have been freed before it. */
static int on_busy(void *argument, int count) {
  struct sqlite_link *link = argument;

  if (sqlite_handlers_lock_held_p() && rb_during_gc()) return 0;
  link->asked = true;
  if (link->firm || !NIL_P(link->error)) return 0;
  if (NIL_P(link->busy_handler) || !sqlite_handlers_lock_held_p()) return wait_for_file(link, count);
  struct asking asking = { link->busy_handler, count };
  VALUE answer = Qfalse;
  if (protected_p(link, ask_handler, (VALUE)&asking, &answer)) return 0;
  return answer != Qfalse;
}

void sqlite_handlers_set_busy(struct sqlite_link *link, bool ours) {
  int (*busy_handler)(void *, int (*)(void *, int), void *) =
    (int (*)(void *, int (*)(void *, int), void *))link->api[API_BUSY_HANDLER];

  if (link->db) busy_handler(link->db, ours ? on_busy : NULL, link);
}

void sqlite_handlers_set_progress(struct sqlite_link *link, bool ours) {
  void (*progress_handler)(void *, int, int (*)(void *), void *) =
    (void (*)(void *, int, int (*)(void *), void *))link->api[API_PROGRESS_HANDLER];

  if (link->db) progress_handler(link->db, ours ? STEPS : 0, ours ? on_progress : NULL, link);
}

void sqlite_handlers_init(void) {
  has_lock = (int (*)(void))dlsym(RTLD_DEFAULT, "ruby_thread_has_gvl_p");
  id_park = rb_intern("park");
}
