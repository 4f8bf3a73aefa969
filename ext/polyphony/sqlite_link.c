/* sqlite_link.c - see sqlite_link.h
 *
 * A kill of the thread cannot be kept while SQLite runs, and the gems let exceptions of functions that are written in Ruby pass as well. SQLite
 * does not know then that the statement has failed, and would commit the part that is done when the gem finalizes it: see sqlite_link_undo_half.
 *
 * SQLite rolls the whole transaction back when a statement that writes is interrupted. What the fiber does next would be committed by itself,
 * so it is refused: see doom. */
#include "sqlite_link.h"
#include <unistd.h>
#include "clock.h"
#include "errors.h"

/* Of a thread that calls many times in a row. */
static const unsigned LOOK_EVERY = 16;
static const char *const REASON = "a database connection";

static void holder_ended(struct holding *holding);

static VALUE cLink;
static VALUE kept;              /* databases with a transaction that some fiber has begun => true */
static ID id_wake;

static void link_mark(void *pointer) {
  struct sqlite_link *link = pointer;

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
  struct sqlite_link *link = pointer;

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
  struct sqlite_link *link = pointer;

  list_remove(&link->all);
  holding_free(&link->holding);
  waitlist_free(&link->waiting);
  waitlist_free(&link->tidying);
  xfree(link);
}

static size_t link_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct sqlite_link);
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

struct sqlite_link *sqlite_link_get(VALUE self) {
  return typed_data(self, &link_type);
}

VALUE sqlite_link_make(void) {
  struct sqlite_link *link;
  VALUE self = TypedData_Make_Struct(cLink, struct sqlite_link, &link_type, link);

  link->self = self;
  link->database = link->file = link->busy_handler = link->error = link->errors = link->permitted = Qnil;
  holding_init(&link->holding, holder_ended);
  waitlist_init(&link->waiting);
  waitlist_init(&link->tidying);
  list_init(&link->all);
  return self;
}

/* ---- SQLite's functions ---------------------------------------------------------------------- */

bool sqlite_link_in_transaction_p(const struct sqlite_link *link) {
  int (*get_autocommit)(void *) = (int (*)(void *))link->api[API_GET_AUTOCOMMIT];

  return link->db && !get_autocommit(link->db);
}

int sqlite_link_execute(struct sqlite_link *link, const char *sql, int (*row)(void *, int, char **, char **), void *argument) {
  int (*exec)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **) =
    (int (*)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **))link->api[API_EXEC];

  return exec(link->db, sql, row, argument, NULL);
}

/* Neither takes turns nor waits: called where a fiber ends. */
static void execute_firmly(struct sqlite_link *link, const char *sql) {
  link->firm = true;
  sqlite_link_execute(link, sql, NULL, NULL);
  link->firm = false;
}

static void roll_back(struct sqlite_link *link) { execute_firmly(link, "ROLLBACK"); }

/* Whether a statement has begun and not ended; of those that write, or of all. */
static bool half_done_p(const struct sqlite_link *link, bool writing) {
  void *(*next)(void *, void *) = (void *(*)(void *, void *))link->api[API_NEXT_STATEMENT];
  int (*busy)(void *) = (int (*)(void *))link->api[API_STATEMENT_BUSY];
  int (*readonly)(void *) = (int (*)(void *))link->api[API_STATEMENT_READONLY];

  for (void *statement = next(link->db, NULL); statement; statement = next(link->db, statement))
    if (busy(statement) && !(writing && readonly(statement))) return true;
  return false;
}

/* Something has passed SQLite's frames. A statement by itself is a transaction that only SQLite can roll back, unless it becomes one of ours. */
void sqlite_link_undo_half(struct sqlite_link *link) {
  if (!link->db || link->pid != getpid() || !half_done_p(link, true)) return;
  if (!sqlite_link_in_transaction_p(link)) execute_firmly(link, "BEGIN");
  roll_back(link);
}

/* The transaction is gone, of which the fiber does not know. It gets another, in which nothing can be done but to roll it back. */
static void doom(struct sqlite_link *link) {
  execute_firmly(link, "BEGIN");
  link->doomed = sqlite_link_in_transaction_p(link);
}

/* ---- one fiber at a time --------------------------------------------------------------------- */

void sqlite_link_let_go(struct sqlite_link *link) {
  link->depth = 0;
  link->doomed = false;
  link->permitted = Qnil;
  holding_drop(&link->holding);
  waitlist_wake(&link->waiting, Qtrue);
}

/* The file may be free now. The fiber gives way before its next statement, or those who wait would find it taken again. */
void sqlite_link_tell_busy(struct sqlite_link *link) {
  if (!sqlite_handlers_pausing_p() || NIL_P(link->file)) return;
  if (RTEST(rb_funcall(link->file, id_wake, 0))) link->turn_ends = 0;
}

void sqlite_link_forget(struct sqlite_link *link) {
  if (RHASH_SIZE(kept)) rb_hash_delete(kept, link->database);
}

/* The holder has ended with a transaction open: nobody else can know what was to be done in it. Or in the middle of a statement: the fiber was
 * one of Ruby's, whose thread has ended. */
static void holder_ended(struct holding *holding) {
  struct sqlite_link *link = (struct sqlite_link *)((char *)holding - offsetof(struct sqlite_link, holding));

  sqlite_link_forget(link);
  if (link->depth) sqlite_link_undo_half(link);
  if (link->pid == getpid() && sqlite_link_in_transaction_p(link)) roll_back(link);
  sqlite_link_let_go(link);
  sqlite_link_tell_busy(link);
}

bool sqlite_link_mine_p(const struct sqlite_link *link) {
  VALUE holder = link->holding.fiber;

  if (NIL_P(holder)) return false;
  if (holder == rb_fiber_current()) return true;
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());
  if (!backend || link->holding.thread != rb_thread_current()) return false;
  for (struct fiber_state *fiber = backend_base_fiber(backend); fiber; fiber = fiber->resumer)
    if (fiber->fiber == holder) return true;
  return false;
}

static bool take_if_free(VALUE self, struct sqlite_link *link) {
  if (!NIL_P(link->holding.fiber) || link->waiting.woken) return false;
  holding_take(&link->holding, self);
  if (!waitlist_empty_p(&link->waiting)) holding_watch(&link->holding);
  return true;
}

static bool take_or_line_up(VALUE self, struct sqlite_link *link) {
  if (take_if_free(self, link)) return true;
  VALUE holder = link->holding.fiber;
  if (holding_over_p(&link->holding) && link->holding.fiber == holder) holder_ended(&link->holding);
  if (take_if_free(self, link)) return true;
  holding_watch(&link->holding);
  return false;
}

static void take(VALUE self, struct sqlite_link *link) {
  if (take_if_free(self, link)) return;
  backend_base_fiber(backend_base_current());  /* opened now: other threads may run meanwhile */
  while (!take_or_line_up(self, link)) waitlist_park(&link->waiting, self, REASON);
}

struct backend_base *sqlite_link_backend_for_turns(void) {
  struct backend_base *backend = backend_base_of_thread(rb_thread_current());

  return backend && backend->open && backend_base_may_wait_p(backend) ? backend : NULL;
}

VALUE sqlite_link_take_turns(VALUE nothing) {
  struct backend_base *backend = sqlite_link_backend_for_turns();

  if (backend) backend_base_snooze(backend);
  rb_thread_schedule();         /* other threads, too; and interrupts are seen to */
  return nothing;
}

static bool held_by_caller_p(const struct sqlite_link *link) { return !NIL_P(link->holding.fiber) && sqlite_link_mine_p(link); }

/* Many short statements in a row take turns between them, those of a transaction, too. Each takes fewer than STEPS or has looked at
 * the clock itself, so it is enough to do so now and then. Whoever closes the connection meanwhile ends the transaction. */
void sqlite_link_enter(VALUE self, struct sqlite_link *link) {
  if (link->depth && held_by_caller_p(link)) {
    link->depth++;
    return;
  }
  if (!link->turn_ends || (++link->entries % LOOK_EVERY == 0 && clock_monotonic() >= link->turn_ends)) {
    sqlite_link_take_turns(Qnil);
    link->turn_ends = clock_monotonic() + SQLITE_TURN;
  }
  if (!held_by_caller_p(link)) take(self, link);
  link->depth = 1;
}

void sqlite_link_leave(struct sqlite_link *link) {
  if (--link->depth) return;
  while (!waitlist_empty_p(&link->tidying)) waitlist_wake(&link->tidying, Qtrue);
  if (sqlite_link_in_transaction_p(link)) {
    rb_hash_aset(kept, link->database, Qtrue);
    holding_watch(&link->holding);
    return;
  }
  sqlite_link_forget(link);
  sqlite_link_let_go(link);
  sqlite_link_tell_busy(link);
}

static bool at_rest_p(VALUE self) { return !sqlite_link_get(self)->depth; }

void sqlite_link_wait_for_rest(VALUE self, struct sqlite_link *link) {
  if (!link->depth || sqlite_link_mine_p(link)) return;
  backend_base_fiber(backend_base_current());
  waitlist_wait_firmly(&link->tidying, self, REASON, at_rest_p, self);
}

/* What was kept while SQLite ran. */
static void raise_kept(struct sqlite_link *link) {
  VALUE error = link->error;

  link->error = Qnil;
  rb_set_errinfo(Qnil);
  rb_exc_raise(error);
}

/* Whether something has ended the call that SQLite does not know of: it was kept, or has passed SQLite's frames. */
static bool broken_off_p(const struct sqlite_link *link, int state) {
  return !NIL_P(link->error) || (state && !RTEST(rb_obj_is_kind_of(rb_errinfo(), link->errors)));
}

static void mend(struct sqlite_link *link, bool in_transaction) {
  if (NIL_P(link->error)) sqlite_link_undo_half(link);
  if (in_transaction && link->db && !sqlite_link_in_transaction_p(link)) doom(link);
}

/* extralite has a class of its own for one of SQLite's two codes only. */
static bool raised_busy_p(const struct sqlite_link *link) {
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
static bool try_again_p(const struct sqlite_link *link, int64_t *since) {
  if (link->asked || link->depth != 1 || !link->db || !NIL_P(link->error) || !NIL_P(link->busy_handler)) return false;
  if (!link->turns || NIL_P(link->file) || !sqlite_link_backend_for_turns() || !raised_busy_p(link) || !half_done_p(link, false)) return false;
  if (!*since) *since = clock_monotonic();
  return clock_monotonic() - *since < link->busy_timeout;
}

VALUE sqlite_link_call(VALUE self, VALUE (*function)(VALUE), VALUE argument) {
  struct sqlite_link *link = sqlite_link_get(self);
  VALUE before = rb_errinfo();
  int64_t since = 0;
  int state;

  if (link->parents) rb_raise(link->errors, "this connection is the parent process's: a forked child has to open its own");
  for (;;) {
    bool open = link->db != NULL;
    sqlite_link_enter(self, link);
    if (open && !link->db) {    /* the gem has looked before, and SQLite would speak of memory */
      sqlite_link_leave(link);
      rb_raise(rb_eIOError, "the database was closed while %"PRIsVALUE" waited for its turn", rb_fiber_current());
    }
    bool in_transaction = sqlite_link_in_transaction_p(link);
    if (link->depth == 1) link->asked = false;
    VALUE result = rb_protect(function, argument, &state);
    bool again = state && !in_transaction && try_again_p(link, &since);
    if (link->depth == 1 && broken_off_p(link, state)) mend(link, in_transaction);
    sqlite_link_leave(link);
    if (!NIL_P(link->error)) raise_kept(link);
    if (!again) {
      if (state) rb_jump_tag(state);
      RB_GC_GUARD(self);
      return result;
    }
    rb_set_errinfo(before);
    sqlite_handlers_pause(link, NSEC_PER_SEC / 1000);
  }
}

void sqlite_link_init(VALUE klass) {
  rb_gc_register_address(&cLink);
  cLink = klass;
  id_wake = rb_intern("wake");
  kept = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
  rb_gc_register_mark_object(kept);
  sqlite_handlers_init();
}
