/* http1_names.c - names and bytes that we know; see http1.h */
#include <string.h>
#include "http1.h"
#include "http1_scan.h"

const char *const http1_names[HTTP1_NAMES] = {
  NULL,
#define NAME(symbol, text) text,
#include "http1_names.def"
#undef NAME
};

static const uint8_t name_lengths[HTTP1_NAMES] = {
  0,
#define NAME(symbol, text) sizeof(text) - 1,
#include "http1_names.def"
#undef NAME
};

const char *const http1_verbs[HTTP1_VERBS] = {
  NULL,
#define VERB(symbol, text) text,
#include "http1_verbs.def"
#undef VERB
};

#define WORD (SCAN_TOKEN | SCAN_TARGET | SCAN_HOST)
#define MARK (SCAN_TOKEN | SCAN_TARGET)
const uint8_t http1_bytes[256] = {
  ['!'] = MARK, ['"'] = SCAN_TARGET, ['#'] = SCAN_TOKEN, /* a fragment is never sent */
  ['$'] = MARK, ['%'] = WORD, ['&'] = MARK, ['\''] = MARK, ['(' ... ')'] = SCAN_TARGET,
  ['*' ... '+'] = MARK, [','] = SCAN_TARGET, ['-' ... '.'] = WORD, ['/'] = SCAN_TARGET,
  ['0' ... '9'] = WORD | SCAN_HEX | SCAN_DIGIT, [':' ... '@'] = SCAN_TARGET,
  ['A' ... 'F'] = WORD | SCAN_HEX, ['G' ... 'Z'] = WORD, ['[' ... ']'] = SCAN_TARGET,
  ['^'] = MARK, ['_'] = WORD, ['`'] = MARK,
  ['a' ... 'f'] = WORD | SCAN_HEX, ['g' ... 'z'] = WORD,
  ['{'] = SCAN_TARGET, ['|'] = MARK, ['}'] = SCAN_TARGET, ['~'] = WORD,
};

/* Length, first, middle and last byte tell all names of the list apart but for a few, which then follow
 * each other in their slot. */
#define SLOTS 256
static inline unsigned slot_of(const char *name, size_t length) {
  unsigned first = (uint8_t)name[0] | 0x20, middle = (uint8_t)name[length / 2] | 0x20,
           last = (uint8_t)name[length - 1] | 0x20;
  return ((unsigned)length * 7 + first * 31 + middle * 5 + last * 17) % SLOTS;
}

static uint8_t first_in_slot[SLOTS], next_in_slot[HTTP1_NAMES];

/* When the library is loaded, so that no thread meets a table that is being made. */
__attribute__((constructor)) static void fill_slots(void) {
  for (unsigned i = HTTP1_NAMES - 1; i > 0; i--) {
    unsigned slot = slot_of(http1_names[i], name_lengths[i]);
    next_in_slot[i] = first_in_slot[slot];
    first_in_slot[slot] = (uint8_t)i;
  }
}

static bool same_name(const char *name, const char *known, size_t length) {
  for (size_t i = 0; i < length; i++) if (scan_lower(name[i]) != known[i]) return false;
  return true;
}

uint32_t http1_name_find(const char *name, size_t length) {
  if (length == 0 || length > 30) return HTTP1_NAME_NONE;
  for (unsigned i = first_in_slot[slot_of(name, length)]; i; i = next_in_slot[i])
    if (name_lengths[i] == length && same_name(name, http1_names[i], length)) return i;
  return HTTP1_NAME_NONE;
}

/* The common ones stand first. */
uint32_t http1_verb_find(const char *verb, size_t length) {
  for (unsigned i = 1; i < HTTP1_VERBS; i++)
    if (strlen(http1_verbs[i]) == length && memcmp(http1_verbs[i], verb, length) == 0) return i;
  return HTTP1_VERB_NONE;
}
