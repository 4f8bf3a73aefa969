/* class_sqlite.c - Polyphony::SQLiteLink: what fibers need of a connection of SQLite, whichever gem has opened it. Layer 2.
 *
 * This shared object is also an extension of SQLite's own (sqlite3_load_extension), so that SQLite hands over the connection
 * and the table of its functions. No header of SQLite is needed, and no symbol: gems have it linked in and hidden. The table
 * only ever grows at its end ("add new interfaces to the end of this structure only", sqlite3ext.h). */
#include "errors.h"  /* first: Ruby's configuration decides what dlfcn.h has */
#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>
#include "clock.h"
#include "sqlite_link.h"

static ID id_link, id_attached, id_lost;

static VALUE link_of(VALUE object) {
  return rb_attr_get(object, id_link);  /* nobody else sets it */
}

static VALUE make(VALUE nothing) {
  VALUE self = sqlite_link_make();

  (void)nothing;
  rb_thread_local_aset(rb_thread_current(), id_attached, self);  /* that is: of the fiber */
  return self;
}

/* SQLite calls it in load_extension, by the name that follows from the file's. */
RUBY_FUNC_EXPORTED int sqlite3_polyphonyext_init(void *db, char **message, const sqlite_function *api) {
  int state;

  (void)message;
  if (!sqlite_handlers_lock_held_p()) return 1;
  VALUE self = rb_protect(make, Qnil, &state);
  if (state) {
    rb_set_errinfo(Qnil);
    return 1;
  }
  sqlite_link_get(self)->db = db;
  sqlite_link_get(self)->api = api;
  sqlite_link_get(self)->pid = getpid();
  return SQLITE_OK;
}

/* The connection to which the fiber has loaded it last. From here on each of the two keeps the other: a link that outlived its connection,
 * because something was raised before, would have a pointer to what is not there. */
static VALUE Link_s_fetch(VALUE klass, VALUE database, VALUE file, VALUE errors) {
  void *(*db_mutex)(void *);
  VALUE self = rb_thread_local_aref(rb_thread_current(), id_attached);

  (void)klass;
  if (NIL_P(self)) return Qnil;
  rb_thread_local_aset(rb_thread_current(), id_attached, Qnil);
  struct sqlite_link *link = sqlite_link_get(self);
  RB_OBJ_WRITE(self, &link->errors, errors);
  RB_OBJ_WRITE(self, &link->database, database);
  RB_OBJ_WRITE(self, &link->file, file);
  rb_ivar_set(database, id_link, self);
  sqlite_fork_know(link);
  db_mutex = (void *(*)(void *))link->api[API_DB_MUTEX];
  link->turns = !db_mutex(link->db);
  sqlite_handlers_set_busy(link, true);
  sqlite_handlers_set_progress(link, true);
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

static VALUE Link_use(VALUE self) { return sqlite_link_call(self, rb_yield, Qnil); }

/* Something may have been raised when it was closed already: the gem says whether it was. */
static VALUE closed_p(VALUE database) { return rb_funcall(database, rb_intern("closed?"), 0); }

static bool has_closed_p(const struct sqlite_link *link, int state) {
  VALUE error = rb_errinfo();
  int unknown = 0;

  if (!state) return true;
  VALUE closed = rb_protect(closed_p, link->database, &unknown);
  rb_set_errinfo(error);
  return !unknown && RTEST(closed);
}

/* For who closes the connection: waits for a call to return, not for a transaction to end. If SQLite refuses, a transaction goes on, and
 * is still of the fiber that has begun it. In a forked child there is nobody to wait for. */
static VALUE Link_close(VALUE self) {
  struct sqlite_link *link = sqlite_link_get(self);
  int state;

  if (link->pid != getpid()) {
    link->db = NULL;
    return rb_yield(Qnil);
  }
  bool of_another = !link->depth && !NIL_P(link->holding.fiber) && !sqlite_link_mine_p(link);
  if (!of_another) sqlite_link_enter(self, link);
  VALUE result = rb_protect(rb_yield, Qnil, &state);
  bool closed = has_closed_p(link, state);
  if (closed) {
    link->db = NULL;
    sqlite_link_forget(link);
  }
  if (!of_another) sqlite_link_leave(link);
  else if (closed) sqlite_link_let_go(link);
  if (state) rb_jump_tag(state);
  return result;
}

/* In a forked child. */
static VALUE Link_s_disown(VALUE klass) {
  (void)klass;
  return sqlite_fork_disown() ? Qtrue : Qfalse;
}

static VALUE Link_s_empty(VALUE klass, VALUE object) {
  VALUE link = link_of(object);

  (void)klass;
  if (!NIL_P(link) && sqlite_link_get(link)->parents) sqlite_fork_empty(object);
  return object;
}

/* The handlers are somebody else's from now on. A statement that another fiber has begun goes on with ours. */
static VALUE Link_detach(VALUE self) {
  struct sqlite_link *link = sqlite_link_get(self);

  sqlite_link_enter(self, link);
  link->turns = false;
  sqlite_handlers_set_busy(link, false);
  sqlite_handlers_set_progress(link, false);
  sqlite_link_leave(link);
  return self;
}

static VALUE Link_turns_p(VALUE self) { return sqlite_link_get(self)->turns ? Qtrue : Qfalse; }

static VALUE Link_set_turns(VALUE self, VALUE turns) {
  sqlite_link_get(self)->turns = RTEST(turns);
  return turns;
}

static int64_t nanoseconds(VALUE seconds) { return (int64_t)(NUM2DBL(seconds) * (double)NSEC_PER_SEC); }

static VALUE Link_set_busy_timeout(VALUE self, VALUE seconds) {
  struct sqlite_link *link = sqlite_link_get(self);

  link->busy_timeout = nanoseconds(seconds);
  link->busy_handler = Qnil;
  sqlite_handlers_set_busy(link, true);
  return seconds;
}

static VALUE Link_set_busy_handler(VALUE self, VALUE handler) {
  struct sqlite_link *link = sqlite_link_get(self);

  RB_OBJ_WRITE(self, &link->busy_handler, handler);
  if (NIL_P(handler)) link->busy_timeout = 0;
  sqlite_handlers_set_busy(link, true);
  return handler;
}

static VALUE Link_set_statement_timeout(VALUE self, VALUE seconds) {
  struct sqlite_link *link = sqlite_link_get(self);

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

static bool permitted_p(struct call *call, struct sqlite_link *link) {
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
  struct sqlite_link *link = sqlite_link_get(call->link);

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
static void mind_pragma(struct sqlite_link *link) {
  int64_t milliseconds = 0;

  if (!link->db) return;
  sqlite_link_execute(link, "PRAGMA busy_timeout", read_timeout, &milliseconds);
  if (!milliseconds) return;
  link->busy_timeout = milliseconds * (NSEC_PER_SEC / 1000);
  link->busy_handler = Qnil;
  sqlite_handlers_set_busy(link, true);
}

static VALUE run_guarded(VALUE self, VALUE link, int argc, VALUE *argv) {
  struct call call = { argc, argv, self, link };
  VALUE result = sqlite_link_call(link, call_super, (VALUE)&call);

  for (int i = 0; i < argc && i < 2; i++)
    if (RB_TYPE_P(argv[i], T_STRING) && names_busy_timeout_p(argv[i])) sqlite_link_get(link)->pragma = 3;
  if (sqlite_link_get(link)->pragma) {
    sqlite_link_get(link)->pragma--;
    mind_pragma(sqlite_link_get(link));
  }
  return result;
}

static VALUE Guarded_call(int argc, VALUE *argv, VALUE self) {
  VALUE link = link_of(self);

  return NIL_P(link) ? rb_call_super(argc, argv) : run_guarded(self, link, argc, argv);
}

/* For what ends a statement. It waits, whatever comes, while another fiber is within a call, for it may be one of that statement;
 * not for a transaction. SQLite takes no turns in it. */
static VALUE Guarded_tidy(int argc, VALUE *argv, VALUE self) {
  VALUE object = link_of(self);

  if (NIL_P(object)) return rb_call_super(argc, argv);
  struct sqlite_link *link = sqlite_link_get(object);
  if (link->parents) return self;
  sqlite_link_wait_for_rest(object, link);
  VALUE result = rb_call_super(argc, argv);
  if (NIL_P(link->holding.fiber)) sqlite_link_tell_busy(link);
  RB_GC_GUARD(object);
  return result;
}

/* For what a database makes: a statement, whose first argument it is, or a query, which it returns. */
static VALUE Guarded_prepare(int argc, VALUE *argv, VALUE self) {
  VALUE link = argc ? link_of(argv[0]) : Qnil;

  if (NIL_P(link)) return rb_call_super(argc, argv);
  rb_ivar_set(self, id_link, link);
  sqlite_link_get(link)->statement_began = 0;
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
  id_attached = rb_intern("__polyphony_sqlite");
  id_lost = rb_intern("__transaction_lost");
  VALUE cLink = rb_define_class_under(mPolyphony, "SQLiteLink", rb_cObject);
  rb_undef_alloc_func(cLink);
  sqlite_link_init(cLink);
  rb_funcall(mPolyphony, rb_intern("private_constant"), 1, ID2SYM(rb_intern("SQLiteLink")));
  rb_define_singleton_method(cLink, "fetch", Link_s_fetch, 3);
  rb_define_singleton_method(cLink, "path", Link_s_path, 0);
  rb_define_singleton_method(cLink, "without_mutexes", Link_s_without_mutexes, 2);
  rb_define_singleton_method(cLink, "guard", Link_s_guard, -1);
  rb_define_singleton_method(cLink, "guard_preparing", Link_s_guard_preparing, -1);
  rb_define_singleton_method(cLink, "guard_tidying", Link_s_guard_tidying, -1);
  rb_define_singleton_method(cLink, "disown", Link_s_disown, 0);
  rb_define_singleton_method(cLink, "empty", Link_s_empty, 1);
  rb_define_method(cLink, "use", Link_use, 0);
  rb_define_method(cLink, "close", Link_close, 0);
  rb_define_method(cLink, "detach", Link_detach, 0);
  rb_define_method(cLink, "turns?", Link_turns_p, 0);
  rb_define_method(cLink, "turns=", Link_set_turns, 1);
  rb_define_method(cLink, "busy_timeout=", Link_set_busy_timeout, 1);
  rb_define_method(cLink, "busy_handler=", Link_set_busy_handler, 1);
  rb_define_method(cLink, "statement_timeout=", Link_set_statement_timeout, 1);
}

