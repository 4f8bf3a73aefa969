#include "ws_utf8.h"
#include <string.h>

void ws_utf8_init(struct ws_utf8 *utf8) {
  *utf8 = (struct ws_utf8){.low = 0x80, .high = 0xbf, .ascii = true};
}

/* How far there is nothing but ASCII. */
static size_t skip_ascii(const uint8_t *data, size_t size) {
  size_t i = 0;
  uint64_t word[2];

  for (; i + 16 <= size; i += 16) {
    memcpy(word, data + i, 16);
    if ((word[0] | word[1]) & UINT64_C(0x8080808080808080)) break;
  }
  while (i < size && data[i] < 0x80) i++;
  return i;
}

/* The first byte of a character of several. The bounds of the second keep out what is overlong, surrogates,
 * and what is too high. */
static bool begin(struct ws_utf8 *utf8, uint8_t byte) {
  utf8->low = 0x80;
  utf8->high = 0xbf;
  if (byte >= 0xc2 && byte <= 0xdf) utf8->missing = 1;
  else if (byte >= 0xe0 && byte <= 0xef) utf8->missing = 2;
  else if (byte >= 0xf0 && byte <= 0xf4) utf8->missing = 3;
  else return false;

  if (byte == 0xe0) utf8->low = 0xa0;
  if (byte == 0xed) utf8->high = 0x9f;
  if (byte == 0xf0) utf8->low = 0x90;
  if (byte == 0xf4) utf8->high = 0x8f;
  return true;
}

bool ws_utf8_feed(struct ws_utf8 *utf8, const uint8_t *data, size_t size) {
  size_t i = 0;

  while (i < size) {
    if (utf8->missing) {
      if (data[i] < utf8->low || data[i] > utf8->high) return false;
      utf8->low = 0x80;
      utf8->high = 0xbf;
      utf8->missing--;
      i++;
      continue;
    }
    i += skip_ascii(data + i, size - i);
    if (i == size) break;
    utf8->ascii = false;
    if (!begin(utf8, data[i++])) return false;
  }
  return true;
}
