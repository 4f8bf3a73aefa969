/* ws_utf8.h - is it UTF-8? Asked piece by piece, as the bytes come; RFC 3629: no surrogates, nothing
 * overlong, nothing beyond U+10FFFF. Plain C. */
#ifndef WS_UTF8_H
#define WS_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ws_utf8 {
  uint8_t missing; /* bytes of the present character that are still to come */
  uint8_t low;     /* bounds of the next of these */
  uint8_t high;
  bool ascii;      /* nothing else so far */
};

void ws_utf8_init(struct ws_utf8 *utf8);
bool ws_utf8_feed(struct ws_utf8 *utf8, const uint8_t *data, size_t size); /* false: it is not */

/* Whether no character is cut off. */
static inline bool ws_utf8_whole_p(const struct ws_utf8 *utf8) { return utf8->missing == 0; }

#endif
