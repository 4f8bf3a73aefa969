/* sqlite_fork.c - see sqlite_link.h
 *
 * A child must not call SQLite with a connection of its parent's, "do not even call sqlite3_close()" (sqlite.org/howtocorrupt.html): what
 * ends a transaction writes to the file in which the parent is writing. And a statement must not be ended, as it is when its object is collected or
 * the child ends: it commits what it has done, and where the gem has closed the files it touches what is not there (sqlite3 2 does so, and
 * crashes; with fibers there is often a statement that has been begun). So the objects are emptied, and what SQLite has is leaked.
 *
 * But SQLite counts locks by file and process, and a connection of the child's own to that file would think that it has
 * those of its parent: the files are closed. That lets go of no lock of the parent's. */
#include "sqlite_link.h"
#include <unistd.h>

/* Larger than any structure of the gems'. */
enum { ROOM = 256 };
enum { FCNTL_FILE_POINTER = 7, FIRST_WITH_DB_NAME = 3039000 };

/* What SQLite's header promises of them. */
struct file_methods {
  int version;
  int (*close)(void *file);
};

struct file {
  const struct file_methods *methods;   /* NULL when it is not open */
};

static struct list all = { &all, &all };

void sqlite_fork_know(struct sqlite_link *link) { list_push(&all, &link->all); }

static bool has_no_file_p(const struct sqlite_link *link) {
  const char *(*filename)(void *, const char *) = (const char *(*)(void *, const char *))link->api[API_DB_FILENAME];
  const char *name = filename(link->db, "main");

  return !name || !*name;
}

static bool readonly_p(const struct sqlite_link *link) {
  int (*readonly)(void *, const char *) = (int (*)(void *, const char *))link->api[API_DB_READONLY];

  return readonly(link->db, "main") == 1;
}

static void close_file(const struct sqlite_link *link, const char *name) {
  int (*control)(void *, const char *, int, void *) =
    (int (*)(void *, const char *, int, void *))link->api[API_FILE_CONTROL];
  struct file *file = NULL;

  if (control(link->db, name, FCNTL_FILE_POINTER, &file) == SQLITE_OK && file && file->methods)
    file->methods->close(file);
}

static void close_files(const struct sqlite_link *link) {
  int (*version)(void) = (int (*)(void))link->api[API_VERSION_NUMBER];
  const char *(*db_name)(void *, int) = (const char *(*)(void *, int))link->api[API_DB_NAME];
  const char *name;

  if (version() < FIRST_WITH_DB_NAME) close_file(link, "main");
  else for (int i = 0; (name = db_name(link->db, i)); i++) close_file(link, name);
}

/* The other fibers are gone, with their calls. A memory is nobody else's, and who only reads may go on as the gems allow it; but not in the
 * middle of what another fiber had begun. */
static void take_over(struct sqlite_link *link) {
  link->pid = getpid();
  if (!NIL_P(link->holding.fiber) && !sqlite_link_mine_p(link)) link->holding.ended(&link->holding);
}

static void leave_to_parent(struct sqlite_link *link) {
  bool within = link->depth && sqlite_link_mine_p(link);  /* a function in Ruby has forked */

  link->parents = true;
  if (link->db && !within) close_files(link);
  link->db = NULL;
  sqlite_link_forget(link);
  if (!within) sqlite_link_let_go(link);
}

bool sqlite_fork_disown(void) {
  bool left = false;

  list_each(node, &all) {
    struct sqlite_link *link = list_entry(node, struct sqlite_link, all);
    if (link->pid == getpid() || link->parents) continue;
    waitlist_free(&link->waiting);
    waitlist_free(&link->tidying);
    link->waiting.woken = link->tidying.woken = 0;
    if (link->db && !link->depth && (has_no_file_p(link) || readonly_p(link))) {
      take_over(link);
    } else {
      leave_to_parent(link);
      left = true;
    }
  }
  return left;
}

/* In the gems' structures a pointer to a connection or a statement that is not there is NULL, as it is in what they have just allocated. */
void sqlite_fork_empty(VALUE object) {
  if (!RB_TYPE_P(object, T_DATA)) return;
  void *nothing = ruby_xcalloc(1, ROOM);
  if (RTYPEDDATA_P(object)) RTYPEDDATA_DATA(object) = nothing;
  else RDATA(object)->data = nothing;   /* sqlite3 before 1.7 */
}
