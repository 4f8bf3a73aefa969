/* fuzz.h - what the targets share. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition) do { \
  if (!(condition)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); abort(); } \
} while (0)

/* A copy that ends where its memory ends, so that the sanitizer sees who reads further. */
static inline char *exact_copy(const char *bytes, size_t size) {
  char *copy = calloc(size ? size : 1, 1);  /* gcc 14 warns of the byte that an empty one has */
  if (size) memcpy(copy, bytes, size);
  return copy;
}

/* How many bytes come next; the same for the same seed. */
static inline size_t next_piece(uint32_t *seed, size_t left) {
  *seed = *seed * 1664525u + 1013904223u;
  size_t piece = 1 + ((*seed >> 16) % ((*seed >> 8) % 4 ? 7 : 64));
  return piece < left ? piece : left;
}

#endif
