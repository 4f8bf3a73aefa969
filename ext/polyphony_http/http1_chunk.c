/* http1_chunk.c - bodies in chunks; see http1.h */
#include "http1.h"
#include "http1_scan.h"

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, END };

static enum http1_result refuse(struct http1_chunks *chunks, int status, const char *reason) {
  chunks->fault = (struct http1_fault){ status, reason };
  return HTTP1_BAD;
}

void http1_chunks_begin(struct http1_chunks *chunks, const struct http1_limits *limits) {
  *chunks = (struct http1_chunks){ .limits = limits };
}

static unsigned hex(char c) { return scan_is(c, SCAN_DIGIT) ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10; }

/* Returns how far the digits go. */
static const char *parse_size(struct http1_chunks *chunks, const char *p, const char *end) {
  for (; p < end && scan_is(*p, SCAN_HEX) && chunks->digits < 17; p++, chunks->digits++)
    chunks->left = chunks->left << 4 | hex(*p);
  return p;
}

static enum http1_result end_size(struct http1_chunks *chunks, char byte) {
  if (chunks->digits == 0 || chunks->digits > 16) return refuse(chunks, 400, "a chunk size that is none");
  if (byte != '\r' && byte != ';') return refuse(chunks, 400, "a chunk size that is none");
  /* Nothing overflows: total is never above the limit. */
  if (chunks->left > chunks->limits->body - chunks->total) return refuse(chunks, 413, "body too long");
  chunks->total += chunks->left;
  chunks->state = byte == ';' ? EXTENSION : SIZE_LF;
  return HTTP1_MORE;
}

static enum http1_result parse_extension(struct http1_chunks *chunks, const char **pos, const char *end) {
  const struct http1_limits *limits = chunks->limits;
  const char *p = *pos;
  size_t length = (size_t)((*pos = scan_text(p, end)) - p);

  /* length is at most what was read at once, and the sums at most their limit, so nothing overflows. */
  if (length > limits->chunk_line - chunks->line) return refuse(chunks, 400, "chunk line too long");
  if (length > limits->chunk_overhead - chunks->overhead)
    return refuse(chunks, 400, "too many bytes of chunk extensions");
  chunks->line += (uint32_t)length;
  chunks->overhead += (uint32_t)length;
  if (*pos == end) return HTTP1_MORE;
  if (**pos != '\r') return refuse(chunks, 400, "a control byte in a chunk extension");
  (*pos)++;
  chunks->state = SIZE_LF;
  return HTTP1_MORE;
}

static void next_chunk(struct http1_chunks *chunks) {
  chunks->state = SIZE;
  chunks->left = chunks->digits = chunks->line = 0;
}

enum http1_result http1_chunks_parse(struct http1_chunks *chunks, const char *base, size_t length,
                                     size_t *pos, struct http1_span *data) {
  const char *p = base + *pos, *end = base + length;
  size_t part;

  for (; p < end; *pos = (size_t)(p - base)) switch (chunks->state) {
    case SIZE:
      p = parse_size(chunks, p, end);
      if (p < end && end_size(chunks, *p++) == HTTP1_BAD) return HTTP1_BAD;
      break;
    case EXTENSION:
      if (parse_extension(chunks, &p, end) == HTTP1_BAD) return HTTP1_BAD;
      break;
    case SIZE_LF:
      if (*p++ != '\n') return refuse(chunks, 400, "CR without LF in a chunk line");
      chunks->state = chunks->left ? DATA : END;
      break;
    case DATA:
      part = (size_t)(end - p) < chunks->left ? (size_t)(end - p) : (size_t)chunks->left;
      *data = (struct http1_span){ (uint32_t)(p - base), (uint32_t)part };
      chunks->left -= part;
      if (!chunks->left) chunks->state = DATA_CR;
      *pos = (size_t)(p - base) + part;
      return HTTP1_DATA;
    case DATA_CR:
      if (*p++ != '\r') return refuse(chunks, 400, "a chunk longer than its size");
      chunks->state = DATA_LF;
      break;
    case DATA_LF:
      if (*p++ != '\n') return refuse(chunks, 400, "CR without LF behind a chunk");
      next_chunk(chunks);
      break;
    default:
      return HTTP1_DONE;
  }
  return chunks->state == END ? HTTP1_DONE : HTTP1_MORE;
}
