/* http1_chunk.c - chunked bodies: the same result in whatever pieces they come, and the same as that of
 * a decoder which is slow and simple. The first two bytes say how it is split and how tight the limits are. */
#include <ctype.h>
#include "fuzz.h"
#include "http1.h"

#define MOST 65536

struct run {
  struct http1_limits limits;
  struct http1_chunks chunks;
  enum http1_result result;
  size_t used, size;                    /* of the input; of the body */
  char body[MOST];
};

static void begin(struct run *run, uint8_t tight) {
  run->limits = (struct http1_limits){ .chunk_line = tight & 1 ? 10 : 4096, .chunk_overhead = tight & 2 ? 20 : 16384,
                                       .body = tight & 4 ? 100 : UINT64_MAX };
  http1_chunks_begin(&run->chunks, &run->limits);
  run->result = HTTP1_MORE;
  run->used = run->size = 0;
}

/* What was looked at is not given again, as the server does it. */
static void feed(struct run *run, const char *bytes, size_t size) {
  char *copy = exact_copy(bytes, size);
  struct http1_span data;
  size_t pos = 0;

  while ((run->result = http1_chunks_parse(&run->chunks, copy, size, &pos, &data)) == HTTP1_DATA) {
    MUST(data.at <= size && data.length <= size - data.at && data.length > 0);
    memcpy(run->body + run->size, copy + data.at, data.length);
    run->size += data.length;
  }
  MUST(pos <= size);
  run->used += pos;
  if (run->result == HTTP1_MORE) MUST(pos == size);
  free(copy);
}

static void feed_in_pieces(struct run *run, const char *bytes, size_t size, uint32_t seed) {
  for (size_t fed = 0; fed < size && run->result == HTTP1_MORE;) {
    size_t piece = next_piece(&seed, size - fed);
    feed(run, bytes + fed, piece);
    fed += piece;
  }
}

/* The decoder that is simple: without limits, for what is whole. Returns the bytes used, or -1. */
static long decode(const char *bytes, size_t size, char *body, size_t *length) {
  size_t p = 0;
  for (*length = 0;;) {
    size_t digits = p;
    unsigned long long chunk = 0;
    for (; p < size && isxdigit((unsigned char)bytes[p]); p++)
      chunk = chunk * 16 + (unsigned)(isdigit((unsigned char)bytes[p]) ? bytes[p] - '0' : tolower(bytes[p]) - 'a' + 10);
    if (p == digits || p - digits > 16) return -1;
    if (p < size && bytes[p] == ';')
      while (p < size && (((unsigned char)bytes[p] >= ' ' && bytes[p] != 0x7f) || bytes[p] == '\t')) p++;
    if (size - p < 2 || memcmp(bytes + p, "\r\n", 2) != 0) return -1;
    p += 2;
    if (!chunk) return (long)p;
    if (chunk > size - p || size - p - chunk < 2 || memcmp(bytes + p + chunk, "\r\n", 2) != 0) return -1;
    memcpy(body + *length, bytes + p, chunk);
    *length += chunk;
    p += chunk + 2;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct run whole, split;
  static char body[MOST];
  size_t length;
  if (size < 2 || size > MOST) return 0;
  const char *bytes = (const char *)data + 2;
  size -= 2;

  begin(&whole, data[1]);
  if (size) feed(&whole, bytes, size);
  begin(&split, data[1]);
  feed_in_pieces(&split, bytes, size, data[0]);
  MUST(whole.result == split.result && whole.chunks.fault.status == split.chunks.fault.status);
  MUST(whole.result == HTTP1_BAD || (whole.size == split.size && memcmp(whole.body, split.body, whole.size) == 0));
  long used = decode(bytes, size, body, &length);
  if (whole.result == HTTP1_DONE) {
    MUST(used == (long)whole.used && used == (long)split.used && length == whole.size);
    MUST(memcmp(body, whole.body, length) == 0);
  } else if (!(data[1] & 7)) MUST(used < 0 || length > 0x100000 || whole.result == HTTP1_BAD);
  return 0;
}
