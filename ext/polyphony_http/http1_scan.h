/* http1_scan.h - how far bytes of a kind reach. Plain C. */
#ifndef POLYPHONY_HTTP1_SCAN_H
#define POLYPHONY_HTTP1_SCAN_H

#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { SCAN_TOKEN = 1, SCAN_TARGET = 2, SCAN_HOST = 4, SCAN_HEX = 8, SCAN_DIGIT = 16 };
extern const uint8_t http1_bytes[256];  /* byte => the kinds it is of */

static inline bool scan_is(char byte, int kind) { return http1_bytes[(uint8_t)byte] & kind; }

/* The first byte that is not of this kind, or end. */
static inline const char *scan_kind(const char *p, const char *end, int kind) {
  while (p < end && scan_is(*p, kind)) p++;
  return p;
}

static inline bool scan_text_p(char c) {
  uint8_t byte = (uint8_t)c;
  return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

/* The first control byte (TAB is none), or end: field values, which are most of what a head has. */
static inline const char *scan_text(const char *p, const char *end) {
#ifdef __SSE2__
  const __m128i space = _mm_set1_epi8(0x20), del = _mm_set1_epi8(0x7f), tab = _mm_set1_epi8('\t');
  for (; end - p >= 16; p += 16) {
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    __m128i printable = _mm_cmpeq_epi8(_mm_max_epu8(x, space), x);
    __m128i good = _mm_or_si128(_mm_andnot_si128(_mm_cmpeq_epi8(x, del), printable),
                                _mm_cmpeq_epi8(x, tab));
    unsigned bad = ~(unsigned)_mm_movemask_epi8(good) & 0xffff;
    if (bad) return p + __builtin_ctz(bad);
  }
#endif
  while (p < end && scan_text_p(*p)) p++;
  return p;
}

static inline char scan_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

#endif
