/* driver_table.c - see driver.h */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "driver.h"

const struct driver *const driver_table[] = {
#ifdef HAVE_LIBURING
  &driver_uring,
#endif
#ifdef HAVE_LIBEV
  &driver_libev,
#endif
  NULL
};

const struct driver *driver_find(const char *name) {
  for (const struct driver *const *driver = driver_table; *driver; driver++)
    if (strcmp((*driver)->name, name) == 0) return *driver;
  return NULL;
}

/* Adds at the end of text, as far as there is room. */
static void append(char *text, size_t size, const char *addition) {
  size_t used = strlen(text);

  if (used < size) snprintf(text + used, size - used, "%s", addition);
}

static void append_refusal(char *why, size_t size, const struct driver *driver,
                           const char *reason) {
  if (*why) append(why, size, "; ");
  append(why, size, driver->name);
  append(why, size, " is refused: ");
  append(why, size, reason);
}

static const struct driver *choose_ordered(const char *name, char *why, size_t size) {
  const struct driver *driver = driver_find(name);
  char reason[512] = "";

  if (!driver) {
    append(why, size, "no driver called \"");
    append(why, size, name);
    append(why, size, "\" is compiled in; there is:");
    for (const struct driver *const *each = driver_table; *each; each++) {
      append(why, size, " ");
      append(why, size, (*each)->name);
    }
    return NULL;
  }
  if (driver->probe(reason, sizeof(reason)) == 0) return driver;
  append_refusal(why, size, driver, reason);
  return NULL;
}

static const struct driver *choose_first(char *why, size_t size) {
  char reason[512];

  for (const struct driver *const *driver = driver_table; *driver; driver++) {
    *reason = '\0';
    if ((*driver)->probe(reason, sizeof(reason)) == 0) return *driver;
    append_refusal(why, size, *driver, reason);
  }
  return NULL;
}

const struct driver *driver_choose(const char *name, char *why, size_t size) {
  if (size > 0) *why = '\0';
  if (!name || !*name || strcmp(name, "auto") == 0) return choose_first(why, size);
  return choose_ordered(name, why, size);
}
