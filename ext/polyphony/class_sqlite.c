/* class_sqlite.c - Polyphony::SQLiteLink: what fibers need of a connection of SQLite, whichever gem has opened it. Layer 2.
 *
 * This shared object is also an extension of SQLite's own (sqlite3_load_extension), so that SQLite hands over the connection
 * and the table of its functions. No header of SQLite is needed, and no symbol: gems have it linked in and hidden. The table
 * only ever grows at its end ("add new interfaces to the end of this structure only", sqlite3ext.h).
 *
 * A statement runs with the interpreter's lock held. SQLite calls on_progress every so many steps of its virtual machine; there
 * the fiber takes turns with others, in the middle of sqlite3_step, on its own stack. That is allowed because
 * - nobody else calls SQLite with that connection meanwhile: `holding` and `waiting` see to it,
 * - the connection has no mutex of SQLite's (SQLITE_OPEN_NOMUTEX, or SQLITE_CONFIG_MULTITHREAD). With one, another thread that
 *   finalizes a statement in its garbage collection would wait for it with the interpreter's lock, for ever,
 * - no exception passes SQLite's frames: it is kept, the statement is interrupted, and the exception is raised afterwards.
 *
 * A kill of the thread cannot be kept, and the gems let exceptions of functions that are written in Ruby pass as well. SQLite does not know
 * then that the statement has failed, and would commit the part that is done when the gem finalizes it: see undo_half.
 *
 * SQLite rolls the whole transaction back when a statement that writes is interrupted. What the fiber does next would be committed by itself,
 * so it is refused: see doom. */
#include "errors.h"  /* first: Ruby's configuration decides what dlfcn.h has */
#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>
#include "clock.h"
#include "generator.h"
#include "holding.h"
#include "waitlist.h"

typedef void (*sqlite_function)(void);

enum { SQLITE_OK = 0, SQLITE_MISUSE = 21, SQLITE_CONFIG_MULTITHREAD = 2 };

/* Places in the table. */
enum {
  API_BUSY_HANDLER = 13, API_EXEC = 55, API_GET_AUTOCOMMIT = 60, API_PROGRESS_HANDLER = 75, API_NEXT_STATEMENT = 152,
  API_DB_MUTEX = 164, API_STATEMENT_BUSY = 184, API_STATEMENT_READONLY = 185
};

/* Steps between two looks at the clock: some 10 us. The turn of a statement, and the longest pause while a file is busy, which
 * another process may have let go of. */
static const int STEPS = 1000;
static const unsigned LOOK_EVERY = 16;
static const int64_t TURN = NSEC_PER_SEC / 1000;
static const int64_t LONGEST_PAUSE = NSEC_PER_SEC / 50;
static const char *const REASON = "a database connection";

struct link {
  VALUE self;                   /* the wrapping object */
  void *db;                     /* sqlite3 *; NULL when closed */
  const sqlite_function *api;
  pid_t pid;                    /* who has opened it: in a forked child SQLite must not be called with it */
  struct holding holding;       /* by the fiber that calls, or has begun a transaction */
  struct waitlist waiting;
  struct waitlist tidying;      /* who ends a statement, and waits for a call to return */
  VALUE database;               /* the gem's object */
  VALUE errors;                 /* class of what the gem raises when SQLite reports an error */
  VALUE file;                   /* a WaitList, of those who wait for the file; Qnil if nobody can */
  VALUE busy_handler;           /* a user's, or Qnil */
  VALUE error;                  /* to be raised when SQLite has returned; Qnil when there is none */
  bool turns;                   /* whether it may take turns within a statement */
  bool firm;                    /* something is being rolled back */
  bool doomed;                  /* the holder's transaction is lost, and another open in its place */
  VALUE permitted;              /* the statement that ends it; Qnil */
  unsigned depth;               /* calls of the holder that have not returned */
  unsigned entries;             /* of fibers that were not within a call */
  int64_t turn_ends;            /* ns on the monotonic clock; 0: others first */
  int64_t busy_timeout;         /* ns */
  int64_t busy_since;
  bool asked;                   /* SQLite has asked on_busy in this call */
  unsigned pragma;              /* calls after which to look whether a pragma has set that time */
  int64_t statement_timeout;    /* ns; 0: none */
  int64_t statement_began;      /* 0: not seen yet */
};

static VALUE cLink;
static VALUE kept;              /* databases with a transaction that some fiber has begun => true */
static unsigned busy_waiters;   /* fibers of all threads that wait for a file */
static ID id_link, id_park, id_wake, id_attached, id_lost;

int ruby_thread_has_gvl_p(void);  /* exported for Fiddle, which declares it itself, too */

static void link_mark(void *pointer) {
  struct link *link = pointer;

  holding_mark(&link->holding);
  waitlist_mark(&link->waiting);
  waitlist_mark(&link->tidying);
  rb_gc_mark_movable(link->database);
  rb_gc_mark_movable(link->file);
  rb_gc_mark_movable(link->busy_handler);
  rb_gc_mark_movable(link->error);
  rb_gc_mark_movable(link->errors);
  rb_gc_mark_movable(link->permitted);
}

static void link_compact(void *pointer) {
  struct link *link = pointer;

  holding_compact(&link->holding);
  link->self = rb_gc_location(link->self);
  link->database = rb_gc_location(link->database);
  link->file = rb_gc_location(link->file);
  link->busy_handler = rb_gc_location(link->busy_handler);
  link->error = rb_gc_location(link->error);
  link->errors = rb_gc_location(link->errors);
  link->permitted = rb_gc_location(link->permitted);
}

static void link_free(void *pointer) {
  struct link *link = pointer;

  holding_free(&link->holding);
  waitlist_free(&link->waiting);
  waitlist_free(&link->tidying);
  xfree(link);
}

static size_t link_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct link);
}

static const rb_data_type_t link_type = {
  .wrap_struct_name = "Polyphony::SQLiteLink",
  .function = {
    .dmark    = link_mark,
    .dcompact = link_compact,
    .dsize    = link_memsize,
    .dfree    = link_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct link *get(VALUE self) {
  struct link *link;

  TypedData_Get_Struct(self, struct link, &link_type, link);
  return link;
}

/* ---- SQLite's functions ---------------------------------------------------------------------- */

static bool in_transaction_p(const struct link *link) {
  int (*get_autocommit)(void *) = (int (*)(void *))link->api[API_GET_AUTOCOMMIT];

  return link->db && !get_autocommit(link->db);
}

static int execute(struct link *link, const char *sql, int (*row)(void *, int, char **, char **), void *argument) {
  int (*exec)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **) =
    (int (*)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **))link->api[API_EXEC];

  return exec(link->db, sql, row, argument, NULL);
}

/* Neither takes turns nor waits: called where a fiber ends. */
static void execute_firmly(struct link *link, const char *sql) {
  link->firm = true;
  execute(link, sql, NULL, NULL);
  link->firm = false;
}

static void roll_back(struct link *link) { execute_firmly(link, "ROLLBACK"); }

/* Whether a statement has begun and not ended; of those that write, or of all. */
static bool half_done_p(const struct link *link, bool writing) {
  void *(*next)(void *, void *) = (void *(*)(void *, void *))link->api[API_NEXT_STATEMENT];
  int (*busy)(void *) = (int (*)(void *))link->api[API_STATEMENT_BUSY];
  int (*readonly)(void *) = (int (*)(void *))link->api[API_STATEMENT_READONLY];

  for (void *statement = next(link->db, NULL); statement; statement = next(link->db, statement))
    if (busy(statement) && !(writing && readonly(statement))) return true;
  return false;
}

/* Something has passed SQLite's frames. A statement by itself is a transaction that only SQLite can roll back, unless it becomes one of ours. */
static void undo_half(struct link *link) {
  if (!link->db || link->pid != getpid() || !half_done_p(link, true)) return;
  if (!in_transaction_p(link)) execute_firmly(link, "BEGIN");
  roll_back(link);
}

/* The transaction is gone, of which the fiber does not know. It gets another, in which nothing can be done but to roll it back. */
static void doom(struct link *link) {
  execute_firmly(link, "BEGIN");
  link->doomed = in_transaction_p(link);
}

/* ---- one fiber at a time --------------------------------------------------------------------- */

static void let_go(struct link *link) {
  link->depth = 0;
  link->doomed = false;
  link->permitted = Qnil;
  holding_drop(&link->holding);
  waitlist_wake(&link->waiting, Qtrue);
}

/* The file may be free now. The fiber gives way before its next statement, or those who wait would find it taken again. */
static void tell_busy(struct link *link) {
  if (!busy_waiters || NIL_P(link->file)) return;
  if (RTEST(rb_funcall(link->file, id_wake, 0))) link->turn_ends = 0;
}

/* The holder has ended with a transaction open: nobody else can know what was to be done in it. */
static void holder_ended(struct holding *holding) {
  struct link *link = (struct link *)((char *)holding - offsetof(struct link, holding));

  rb_hash_delete(kept, link->database);
  if (link->pid == getpid() && in_transaction_p(link)) roll_back(link);
  let_go(link);
  tell_busy(link);
}

/* Also if an enumerator of the holder's calls. */
static bool mine_p(const struct link *link) {
  VALUE holder = link->holding.fiber;

  if (NIL_P(holder)) return false;
  if (holder == rb_fiber_current()) return true;
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  if (!backend || link->holding.thread != rb_thread_current()) return false;
  for (struct fiber_state *fiber = backend_base_fiber(backend); fiber; fiber = fiber->resumer)
    if (fiber->fiber == holder) return true;
  return false;
}

static bool take_if_free(VALUE self, struct link *link) {
  if (!NIL_P(link->holding.fiber) || link->waiting.woken) return false;
  holding_take(&link->holding, self);
  if (!waitlist_empty_p(&link->waiting)) holding_watch(&link->holding);
  return true;
}

static bool take_or_line_up(VALUE self, struct link *link) {
  if (take_if_free(self, link)) return true;
  VALUE holder = link->holding.fiber;
  if (holding_over_p(&link->holding) && link->holding.fiber == holder) holder_ended(&link->holding);
  if (take_if_free(self, link)) return true;
  holding_watch(&link->holding);
  return false;
}

static void take(VALUE self, struct link *link) {
  if (take_if_free(self, link)) return;
  backend_base_fiber(backend_base_current());  /* opened now: other threads may run meanwhile */
  while (!take_or_line_up(self, link)) waitlist_park(&link->waiting, self, REASON);
}

static struct backend_base *backend_for_turns(void) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  return backend && backend->open && backend_base_may_wait_p(backend) ? backend : NULL;
}

static VALUE take_turns(VALUE nothing) {
  struct backend_base *backend = backend_for_turns();

  if (backend) backend_base_snooze(backend);
  rb_thread_schedule();         /* other threads, too; and interrupts are seen to */
  return nothing;
}

static bool held_by_caller_p(const struct link *link) { return !NIL_P(link->holding.fiber) && mine_p(link); }

/* Many short statements in a row take turns between them, those of a transaction, too. Each takes fewer than STEPS or has looked at
 * the clock itself, so it is enough to do so now and then. Whoever closes the connection meanwhile ends the transaction. */
static void enter(VALUE self, struct link *link) {
  if (link->depth && held_by_caller_p(link)) {
    link->depth++;
    return;
  }
  if (!link->turn_ends || (++link->entries % LOOK_EVERY == 0 && clock_monotonic() >= link->turn_ends)) {
    take_turns(Qnil);
    link->turn_ends = clock_monotonic() + TURN;
  }
  if (!held_by_caller_p(link)) take(self, link);
  link->depth = 1;
}

static void leave(struct link *link) {
  if (--link->depth) return;
  while (!waitlist_empty_p(&link->tidying)) waitlist_wake(&link->tidying, Qtrue);
  if (in_transaction_p(link)) {
    rb_hash_aset(kept, link->database, Qtrue);
    holding_watch(&link->holding);
    return;
  }
  if (RHASH_SIZE(kept)) rb_hash_delete(kept, link->database);
  let_go(link);
  tell_busy(link);
}

/* What was kept while SQLite ran. */
static void raise_kept(struct link *link) {
  VALUE error = link->error;

  link->error = Qnil;
  rb_set_errinfo(Qnil);
  rb_exc_raise(error);
}

/* Whether something has ended the call that SQLite does not know of: it was kept, or has passed SQLite's frames. */
static bool broken_off_p(const struct link *link, int state) {
  return !NIL_P(link->error) || (state && !RTEST(rb_obj_is_kind_of(rb_errinfo(), link->errors)));
}

static void mend(struct link *link, bool in_transaction) {
  if (NIL_P(link->error)) undo_half(link);
  if (in_transaction && link->db && !in_transaction_p(link)) doom(link);
}

/* extralite has a class of its own for one of SQLite's two codes only. */
static bool raised_busy_p(const struct link *link) {
  VALUE error = rb_errinfo();

  if (!RTEST(rb_obj_is_kind_of(error, link->errors))) return false;
  if (strstr(rb_obj_classname(error), "Busy")) return true;
  static const char LOCKED[] = "database is locked";
  const long length = (long)sizeof(LOCKED) - 1;
  VALUE message = rb_obj_as_string(error);
  return RSTRING_LEN(message) >= length && !memcmp(RSTRING_PTR(message), LOCKED, (size_t)length);
}

/* While a statement of this connection is being read, SQLite refuses at once to write to a file that another connection has locked, or has
 * written to meanwhile: who reads and waits for a lock might be waited for. But those are two fibers here, and the one that reads goes on. So
 * the other tries again, outside of the call. A transaction of its own could have read, too: that is refused. */
static bool try_again_p(const struct link *link, int64_t *since) {
  if (link->asked || link->depth != 1 || !link->db || !NIL_P(link->error) || !NIL_P(link->busy_handler)) return false;
  if (!link->turns || NIL_P(link->file) || !backend_for_turns() || !raised_busy_p(link) || !half_done_p(link, false)) return false;
  if (!*since) *since = clock_monotonic();
  return clock_monotonic() - *since < link->busy_timeout;
}

static VALUE pause_for_file(VALUE argument);

struct pause {
  VALUE file;
  int64_t length;
};

static VALUE guarded(VALUE self, VALUE (*function)(VALUE), VALUE argument) {
  struct link *link = get(self);
  VALUE before = rb_errinfo();
  int64_t since = 0;
  int state;

  for (;;) {
    bool open = link->db != NULL;
    enter(self, link);
    if (open && !link->db) {    /* the gem has looked before, and SQLite would speak of memory */
      leave(link);
      rb_raise(rb_eIOError, "the database was closed while %"PRIsVALUE" waited for its turn", rb_fiber_current());
    }
    bool in_transaction = in_transaction_p(link);
    if (link->depth == 1) link->asked = false;
    VALUE result = rb_protect(function, argument, &state);
    bool again = state && !in_transaction && try_again_p(link, &since);
    if (link->depth == 1 && broken_off_p(link, state)) mend(link, in_transaction);
    leave(link);
    if (!NIL_P(link->error)) raise_kept(link);
    if (!again) {
      if (state) rb_jump_tag(state);
      RB_GC_GUARD(self);
      return result;
    }
    rb_set_errinfo(before);
    struct pause pause = { link->file, NSEC_PER_SEC / 1000 };
    pause_for_file((VALUE)&pause);
  }
}

/* ---- what SQLite calls ------------------------------------------------------------------------ */

/* 0, or 1 if something was raised, which is kept. A kill of the thread cannot be kept, and passes SQLite's frames: what they leave behind is
 * the statement, which the gem finalizes then, extralite before it is seen in guarded(). So what it has done is undone here, in the middle of
 * it: nobody comes back to that. One that waits for a file has not begun, or is done and commits. */
static int protected_p(struct link *link, VALUE (*function)(VALUE), VALUE argument, VALUE *result) {
  VALUE before = rb_errinfo();
  int state;
  VALUE value = rb_protect(function, argument, &state);

  if (!state) {
    if (result) *result = value;
    return 0;
  }
  VALUE error = rb_errinfo();
  if (!RTEST(rb_obj_is_kind_of(error, rb_eException))) {
    if (function == take_turns) undo_half(link);
    rb_jump_tag(state);
  }
  RB_OBJ_WRITE(link->self, &link->error, error);
  rb_set_errinfo(before);
  return 1;
}

static bool statement_over_p(struct link *link, int64_t now) {
  if (!link->statement_timeout) return false;
  if (!link->statement_began) link->statement_began = now;
  return now - link->statement_began > link->statement_timeout;
}

static int on_progress(void *argument) {
  if (!ruby_thread_has_gvl_p() || rb_during_gc()) return 0;
  struct link *link = argument;
  int64_t now = clock_monotonic();

  if (link->firm) return 0;
  if (!NIL_P(link->error) || statement_over_p(link, now)) return 1;
  if (now < link->turn_ends || !link->turns) return 0;
  if (protected_p(link, take_turns, Qnil, NULL)) return 1;
  link->turn_ends = clock_monotonic() + TURN;
  return 0;
}

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

static int64_t pause_length(const struct link *link, int count) {
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
static int wait_for_file(struct link *link, int count) {
  if (!count) link->busy_since = clock_now();
  struct pause pause = { link->file, pause_length(link, count) };

  if (pause.length <= 0) return 0;
  if (!ruby_thread_has_gvl_p() || !backend_for_turns() || !link->turns || NIL_P(link->file)) {
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
  struct link *link = argument;

  if (ruby_thread_has_gvl_p() && rb_during_gc()) return 0;
  link->asked = true;
  if (link->firm || !NIL_P(link->error)) return 0;
  if (NIL_P(link->busy_handler) || !ruby_thread_has_gvl_p()) return wait_for_file(link, count);
  struct asking asking = { link->busy_handler, count };
  VALUE answer = Qfalse;
  if (protected_p(link, ask_handler, (VALUE)&asking, &answer)) return 0;
  return answer != Qfalse;
}

/* ---- making it --------------------------------------------------------------------------------- */

static void set_busy_handler(struct link *link, int (*handler)(void *, int)) {
  int (*busy_handler)(void *, int (*)(void *, int), void *) =
    (int (*)(void *, int (*)(void *, int), void *))link->api[API_BUSY_HANDLER];

  if (link->db) busy_handler(link->db, handler, link);
}

static void set_progress_handler(struct link *link, int (*handler)(void *)) {
  void (*progress_handler)(void *, int, int (*)(void *), void *) =
    (void (*)(void *, int, int (*)(void *), void *))link->api[API_PROGRESS_HANDLER];

  if (link->db) progress_handler(link->db, handler ? STEPS : 0, handler, link);
}

static VALUE make(VALUE nothing) {
  struct link *link;
  VALUE self = TypedData_Make_Struct(cLink, struct link, &link_type, link);

  (void)nothing;
  link->self = self;
  link->database = link->file = link->busy_handler = link->error = link->errors = link->permitted = Qnil;
  holding_init(&link->holding, holder_ended);
  waitlist_init(&link->waiting);
  waitlist_init(&link->tidying);
  rb_thread_local_aset(rb_thread_current(), id_attached, self);  /* that is: of the fiber */
  return self;
}

/* SQLite calls it in load_extension, by the name that follows from the file's. */
RUBY_FUNC_EXPORTED int sqlite3_polyphonyext_init(void *db, char **message, const sqlite_function *api) {
  int state;

  (void)message;
  if (!ruby_thread_has_gvl_p()) return 1;
  VALUE self = rb_protect(make, Qnil, &state);
  if (state) {
    rb_set_errinfo(Qnil);
    return 1;
  }
  get(self)->db = db;
  get(self)->api = api;
  get(self)->pid = getpid();
  return SQLITE_OK;
}

/* The connection to which the fiber has loaded it last. */
static VALUE Link_s_fetch(VALUE klass, VALUE database, VALUE file, VALUE errors) {
  void *(*db_mutex)(void *);
  VALUE self = rb_thread_local_aref(rb_thread_current(), id_attached);

  (void)klass;
  if (NIL_P(self)) return Qnil;
  rb_thread_local_aset(rb_thread_current(), id_attached, Qnil);
  struct link *link = get(self);
  RB_OBJ_WRITE(self, &link->errors, errors);
  RB_OBJ_WRITE(self, &link->database, database);
  RB_OBJ_WRITE(self, &link->file, file);
  db_mutex = (void *(*)(void *))link->api[API_DB_MUTEX];
  link->turns = !db_mutex(link->db);
  set_busy_handler(link, on_busy);
  set_progress_handler(link, on_progress);
  return self;
}

static VALUE Link_s_path(VALUE klass) {
  Dl_info info;

  (void)klass;
  return dladdr((void *)(uintptr_t)sqlite3_polyphonyext_init, &info) ? rb_str_new_cstr(info.dli_fname) : Qnil;
}

static uintptr_t function_of(void *handle, const char *name) { return handle ? (uintptr_t)dlsym(handle, name) : 0; }

/* Of the SQLite that a shared object uses: connections opened from now on have no mutex, unless they ask for one. SQLite takes that only
 * before it is initialized, which a gem may have done when it was loaded; if nobody has a connection, it can begin anew. */
static VALUE Link_s_without_mutexes(VALUE klass, VALUE path, VALUE unused) {
  void *handle = dlopen(StringValueCStr(path), RTLD_LAZY | RTLD_NOLOAD);
  int (*config)(int, ...) = (int (*)(int, ...))function_of(handle, "sqlite3_config");
  int (*shutdown)(void) = (int (*)(void))function_of(handle, "sqlite3_shutdown");
  int rc = config ? config(SQLITE_CONFIG_MULTITHREAD) : -1;

  (void)klass;
  if (rc == SQLITE_MISUSE && RTEST(unused) && shutdown && shutdown() == SQLITE_OK) rc = config(SQLITE_CONFIG_MULTITHREAD);
  if (handle) dlclose(handle);
  return rc == SQLITE_OK ? Qtrue : Qfalse;
}

/* ---- for the adapters ------------------------------------------------------------------------- */

static VALUE Link_use(VALUE self) { return guarded(self, rb_yield, Qnil); }

/* For who closes the connection: waits for a call to return, not for a transaction to end. If SQLite refuses, a transaction goes on, and
 * is still of the fiber that has begun it. In a forked child there is nobody to wait for. */
static VALUE Link_close(VALUE self) {
  struct link *link = get(self);
  int state;

  if (link->pid != getpid()) {
    link->db = NULL;
    return rb_yield(Qnil);
  }
  bool of_another = !link->depth && !NIL_P(link->holding.fiber) && !mine_p(link);
  if (!of_another) enter(self, link);
  VALUE result = rb_protect(rb_yield, Qnil, &state);
  if (!state) {
    link->db = NULL;
    rb_hash_delete(kept, link->database);
  }
  if (!of_another) leave(link);
  else if (!state) let_go(link);
  if (state) rb_jump_tag(state);
  return result;
}

/* The handlers are somebody else's from now on. */
static VALUE Link_detach(VALUE self) {
  struct link *link = get(self);

  link->turns = false;
  set_busy_handler(link, NULL);
  set_progress_handler(link, NULL);
  return self;
}

static VALUE Link_turns_p(VALUE self) { return get(self)->turns ? Qtrue : Qfalse; }

static VALUE Link_set_turns(VALUE self, VALUE turns) {
  get(self)->turns = RTEST(turns);
  return turns;
}

static int64_t nanoseconds(VALUE seconds) { return (int64_t)(NUM2DBL(seconds) * (double)NSEC_PER_SEC); }

static VALUE Link_set_busy_timeout(VALUE self, VALUE seconds) {
  struct link *link = get(self);

  link->busy_timeout = nanoseconds(seconds);
  link->busy_handler = Qnil;
  set_busy_handler(link, on_busy);
  return seconds;
}

static VALUE Link_set_busy_handler(VALUE self, VALUE handler) {
  struct link *link = get(self);

  RB_OBJ_WRITE(self, &link->busy_handler, handler);
  if (NIL_P(handler)) link->busy_timeout = 0;
  set_busy_handler(link, on_busy);
  return handler;
}

static VALUE Link_set_statement_timeout(VALUE self, VALUE seconds) {
  struct link *link = get(self);

  link->statement_timeout = nanoseconds(seconds);
  link->statement_began = 0;
  return seconds;
}

/* ---- methods of the gems that call SQLite ------------------------------------------------------ */

struct call {
  int argc;
  VALUE *argv;
  VALUE self;
  VALUE link;
};

/* Past spaces and comments. */
static const char *first_word(const char *sql, const char *end) {
  while (sql < end) {
    if (strchr(" \t\r\n\f;", *sql)) sql++;
    else if (end - sql > 1 && !memcmp(sql, "--", 2)) while (sql < end && *sql != '\n') sql++;
    else if (end - sql > 1 && !memcmp(sql, "/*", 2)) {
      for (sql += 2; end - sql > 1 && memcmp(sql, "*/", 2); sql++);
      sql = end - sql > 1 ? sql + 2 : end;
    } else break;
  }
  return sql;
}

static bool skip_word(const char **sql, const char *end, const char *word) {
  long length = (long)strlen(word);
  const char *at = first_word(*sql, end);

  if (end - at < length || strncasecmp(at, word, (size_t)length)) return false;
  *sql = at + length;
  return true;
}

/* Not to a savepoint: there is none any more. */
static bool rolls_back_p(VALUE string) {
  const char *sql = RSTRING_PTR(string), *end = RSTRING_END(string);

  if (!skip_word(&sql, end, "rollback")) return false;
  skip_word(&sql, end, "transaction");
  return !skip_word(&sql, end, "to");
}

static bool permitted_p(struct call *call, struct link *link) {
  for (int i = 0; i < call->argc && i < 2; i++) {
    if (!RB_TYPE_P(call->argv[i], T_STRING)) continue;
    if (!rolls_back_p(call->argv[i])) return false;
    RB_OBJ_WRITE(call->link, &link->permitted, call->self);
    return true;
  }
  return link->permitted == call->self;
}

static VALUE call_super(VALUE argument) {
  struct call *call = (struct call *)argument;
  struct link *link = get(call->link);

  if (link->doomed && !permitted_p(call, link)) rb_funcall(link->database, id_lost, 0);  /* raises */
  return rb_call_super(call->argc, call->argv);
}

static int read_timeout(void *argument, int count, char **values, char **names) {
  (void)names;
  if (count && values[0]) *(int64_t *)argument = strtoll(values[0], NULL, 10);
  return 0;
}

static bool names_busy_timeout_p(VALUE sql) {
  static const char WORD[] = "busy_timeout";
  const char *bytes = RSTRING_PTR(sql);
  long last = RSTRING_LEN(sql) - (long)(sizeof(WORD) - 1);

  for (long i = 0; i <= last; i++)
    if ((bytes[i] | 0x20) == 'b' && !strncasecmp(bytes + i, WORD, sizeof(WORD) - 1)) return true;
  return false;
}

/* A pragma of that name puts a handler of SQLite's own in the place of ours, which would stop the thread; it does so when it is prepared,
 * and, if SQLite prepares it anew, in its first step. 0 takes any handler away, which is what it says. */
static void mind_pragma(struct link *link) {
  int64_t milliseconds = 0;

  if (!link->db) return;
  execute(link, "PRAGMA busy_timeout", read_timeout, &milliseconds);
  if (!milliseconds) return;
  link->busy_timeout = milliseconds * (NSEC_PER_SEC / 1000);
  link->busy_handler = Qnil;
  set_busy_handler(link, on_busy);
}

static VALUE link_of(VALUE object) {
  return rb_attr_get(object, id_link);  /* nobody else sets it */
}

static VALUE run_guarded(VALUE self, VALUE link, int argc, VALUE *argv) {
  struct call call = { argc, argv, self, link };
  VALUE result = guarded(link, call_super, (VALUE)&call);

  for (int i = 0; i < argc && i < 2; i++)
    if (RB_TYPE_P(argv[i], T_STRING) && names_busy_timeout_p(argv[i])) get(link)->pragma = 3;
  if (get(link)->pragma) {
    get(link)->pragma--;
    mind_pragma(get(link));
  }
  return result;
}

static VALUE Guarded_call(int argc, VALUE *argv, VALUE self) {
  VALUE link = link_of(self);

  return NIL_P(link) ? rb_call_super(argc, argv) : run_guarded(self, link, argc, argv);
}

static bool at_rest_p(VALUE link) { return !get(link)->depth; }

/* For what ends a statement. It waits, whatever comes, while another fiber is within a call, for it may be one of that statement;
 * not for a transaction. SQLite takes no turns in it. */
static VALUE Guarded_tidy(int argc, VALUE *argv, VALUE self) {
  VALUE object = link_of(self);

  if (NIL_P(object)) return rb_call_super(argc, argv);
  struct link *link = get(object);
  if (link->depth && !mine_p(link)) {
    backend_base_fiber(backend_base_current());
    waitlist_wait_firmly(&link->tidying, object, REASON, at_rest_p, object);
  }
  VALUE result = rb_call_super(argc, argv);
  if (NIL_P(link->holding.fiber)) tell_busy(link);
  RB_GC_GUARD(object);
  return result;
}

/* For what a database makes: a statement, whose first argument it is, or a query, which it returns. */
static VALUE Guarded_prepare(int argc, VALUE *argv, VALUE self) {
  VALUE link = argc ? link_of(argv[0]) : Qnil;

  if (NIL_P(link)) return rb_call_super(argc, argv);
  rb_ivar_set(self, id_link, link);
  get(link)->statement_began = 0;
  return run_guarded(self, link, argc, argv);
}

static VALUE define_all(int argc, VALUE *argv, VALUE (*body)(int, VALUE *, VALUE)) {
  for (int i = 1; i < argc; i++) rb_define_method_id(argv[0], rb_to_id(argv[i]), body, -1);
  return argv[0];
}

static VALUE Link_s_guard(int argc, VALUE *argv, VALUE klass) {
  (void)klass;
  return define_all(argc, argv, Guarded_call);
}

static VALUE Link_s_guard_tidying(int argc, VALUE *argv, VALUE klass) {
  (void)klass;
  return define_all(argc, argv, Guarded_tidy);
}

static VALUE Link_s_guard_preparing(int argc, VALUE *argv, VALUE klass) {
  (void)klass;
  return define_all(argc, argv, Guarded_prepare);
}

void class_sqlite_init(void) {
  id_link = rb_intern("@__polyphony_link");
  id_park = rb_intern("park");
  id_wake = rb_intern("wake");
  kept = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
  rb_gc_register_mark_object(kept);
  id_attached = rb_intern("__polyphony_sqlite");
  id_lost = rb_intern("__transaction_lost");
  cLink = rb_define_class_under(mPolyphony, "SQLiteLink", rb_cObject);
  rb_undef_alloc_func(cLink);
  rb_funcall(mPolyphony, rb_intern("private_constant"), 1, ID2SYM(rb_intern("SQLiteLink")));
  rb_define_singleton_method(cLink, "fetch", Link_s_fetch, 3);
  rb_define_singleton_method(cLink, "path", Link_s_path, 0);
  rb_define_singleton_method(cLink, "without_mutexes", Link_s_without_mutexes, 2);
  rb_define_singleton_method(cLink, "guard", Link_s_guard, -1);
  rb_define_singleton_method(cLink, "guard_preparing", Link_s_guard_preparing, -1);
  rb_define_singleton_method(cLink, "guard_tidying", Link_s_guard_tidying, -1);
  rb_define_method(cLink, "use", Link_use, 0);
  rb_define_method(cLink, "close", Link_close, 0);
  rb_define_method(cLink, "detach", Link_detach, 0);
  rb_define_method(cLink, "turns?", Link_turns_p, 0);
  rb_define_method(cLink, "turns=", Link_set_turns, 1);
  rb_define_method(cLink, "busy_timeout=", Link_set_busy_timeout, 1);
  rb_define_method(cLink, "busy_handler=", Link_set_busy_handler, 1);
  rb_define_method(cLink, "statement_timeout=", Link_set_statement_timeout, 1);
}
