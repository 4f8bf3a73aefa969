/* sqlite_link.h - a connection of SQLite's, and the fibers that use it: one at a time, with turns for others in the middle of
 * a statement. Layer 1. No header of SQLite is needed: it hands over the table of its functions.
 * Owner: an object of Polyphony::SQLiteLink, which the gem's object of the connection has. */
#ifndef POLYPHONY_SQLITE_LINK_H
#define POLYPHONY_SQLITE_LINK_H

#include <sys/types.h>
#include "generator.h"
#include "holding.h"
#include "waitlist.h"

typedef void (*sqlite_function)(void);

enum { SQLITE_OK = 0, SQLITE_MISUSE = 21, SQLITE_CONFIG_MULTITHREAD = 2 };

/* Places in the table. */
enum {
  API_BUSY_HANDLER = 13, API_EXEC = 55, API_GET_AUTOCOMMIT = 60, API_VERSION_NUMBER = 67, API_PROGRESS_HANDLER = 75,
  API_FILE_CONTROL = 127, API_NEXT_STATEMENT = 152, API_DB_MUTEX = 164, API_DB_FILENAME = 180, API_DB_READONLY = 181,
  API_STATEMENT_BUSY = 184, API_STATEMENT_READONLY = 185, API_DB_NAME = 264
};

#define SQLITE_TURN (NSEC_PER_SEC / 1000)

struct sqlite_link {
  VALUE self;                   /* the wrapping object */
  void *db;                     /* sqlite3 *; NULL when closed */
  const sqlite_function *api;
  pid_t pid;                    /* who has opened it: in a forked child SQLite must not be called with it */
  struct list all;              /* in that of sqlite_fork.c */
  bool parents;                 /* it was left to the process that has forked this one */
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

void sqlite_link_init(VALUE klass);
VALUE sqlite_link_make(void);           /* raises */
struct sqlite_link *sqlite_link_get(VALUE self);

bool sqlite_link_in_transaction_p(const struct sqlite_link *link);
int sqlite_link_execute(struct sqlite_link *link, const char *sql, int (*row)(void *, int, char **, char **), void *argument);
/* Something has passed SQLite's frames: what a statement has written so far is rolled back. */
void sqlite_link_undo_half(struct sqlite_link *link);

bool sqlite_link_mine_p(const struct sqlite_link *link);        /* also if an enumerator of the holder's calls */
void sqlite_link_enter(VALUE self, struct sqlite_link *link);   /* switches, raises */
void sqlite_link_leave(struct sqlite_link *link);
void sqlite_link_let_go(struct sqlite_link *link);
/* The connection is closed: nothing of its transaction is left. */
void sqlite_link_forget(struct sqlite_link *link);
/* Calls it between the two above. Raises what was kept while SQLite ran. */
VALUE sqlite_link_call(VALUE self, VALUE (*function)(VALUE), VALUE argument);
/* Whatever comes, until no other fiber is within a call. Switches. */
void sqlite_link_wait_for_rest(VALUE self, struct sqlite_link *link);
/* The file may be free: who waits for it tries again. */
void sqlite_link_tell_busy(struct sqlite_link *link);

/* NULL where nobody can wait */
struct backend_base *sqlite_link_backend_for_turns(void);
VALUE sqlite_link_take_turns(VALUE nothing);

/* ---- sqlite_handlers.c: what SQLite calls */

void sqlite_handlers_set_busy(struct sqlite_link *link, bool ours);
void sqlite_handlers_set_progress(struct sqlite_link *link, bool ours);
/* Until somebody may have let go of the file, at most so many nanoseconds. Switches, raises. */
void sqlite_handlers_pause(struct sqlite_link *link, int64_t length);
/* Whether this thread may touch Ruby: SQLite also calls from threads to which a gem has given it without the interpreter's lock. */
bool sqlite_handlers_lock_held_p(void);
bool sqlite_handlers_pausing_p(void);   /* whether any fiber does */
void sqlite_handlers_init(void);

/* ---- sqlite_fork.c: what a forked child inherits */

void sqlite_fork_know(struct sqlite_link *link);
/* In the child, before it calls SQLite. Whether there are connections that are left to the parent. */
bool sqlite_fork_disown(void);
/* An object of a gem's with such a connection becomes one that is closed; what it was is leaked. */
void sqlite_fork_empty(VALUE object);

#endif
