/* reason.c - see reason.h */
#include <stdlib.h>
#include <string.h>
#include "reason.h"
#include "timeline.h"

/* While a trace is made, so many are kept that nobody has any more: a program may make up new ones all the time. Those that
 * come then are one and the same. */
enum { MOST_KEPT = 1 << 14 };
static const char *const NAMELESS = "something";

struct reason {
  unsigned users;
  struct reason *next;          /* of those that are about to be freed */
  char text[];
};

static st_table *reasons;       /* struct reason by its text */
static unsigned kept;           /* those without users */

static struct reason *reason_of(const char *text) { return (struct reason *)(text - offsetof(struct reason, text)); }

static const char *add(const char *text) {
  size_t size = strlen(text) + 1;
  struct reason *reason;

  if (kept >= MOST_KEPT) return NAMELESS;
  if (!(reason = malloc(sizeof(*reason) + size))) rb_memerror();
  reason->users = 1;
  memcpy(reason->text, text, size);
  st_add_direct(reasons, (st_data_t)reason->text, (st_data_t)reason);
  return reason->text;
}

const char *reason_acquire(VALUE text) {
  const char *bytes = StringValueCStr(text);
  st_data_t found;

  if (!reasons) reasons = st_init_strtable();
  if (!st_lookup(reasons, (st_data_t)bytes, &found)) return add(bytes);
  struct reason *reason = (struct reason *)found;
  if (reason->users++ == 0) kept--;
  return reason->text;
}

void reason_release(const char *text) {
  if (!text || text == NAMELESS || --reason_of(text)->users > 0) return;
  kept++;
  if (timeline_on) return;
  st_delete(reasons, &(st_data_t){ (st_data_t)text }, NULL);
  free(reason_of(text));
  kept--;
}

/* The table still looks at the text of what it deletes. */
static int drop_unused(st_data_t text, st_data_t value, st_data_t dropped) {
  struct reason *reason = (struct reason *)value;

  (void)text;
  if (reason->users > 0) return ST_CONTINUE;
  reason->next = *(struct reason **)dropped;
  *(struct reason **)dropped = reason;
  return ST_DELETE;
}

void reason_trace_over(void) {
  struct reason *dropped = NULL, *next;

  if (kept == 0) return;
  st_foreach(reasons, drop_unused, (st_data_t)&dropped);
  for (; dropped; dropped = next) {
    next = dropped->next;
    free(dropped);
  }
  kept = 0;
}
