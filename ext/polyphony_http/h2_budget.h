/* h2_budget.h - what a client of HTTP/2 may cost us, counted where its bytes come in: before nghttp2 sees a frame, its
 * header was weighed here. So the limits hold with every version of that library.
 * Plain C. Owner: struct h2_session; nothing here allocates. Times are seconds of a clock that never goes back. */
#ifndef H2_BUDGET_H
#define H2_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum h2_verdict {
  H2_FINE,
  H2_RESETS,           /* too many streams reset by the peer, or by us for its faults */
  H2_NOISE,            /* too many frames that carry nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA ... */
  H2_CONTINUATIONS,    /* too many frames for one header block */
  H2_BLOCK,            /* too many bytes in one header block, as sent */
  H2_LIST,             /* a header list far over the limit: a bomb */
  H2_QUEUE,            /* too many answers to control frames waiting for a peer that does not read */
  H2_STREAM_ID,        /* HEADERS for a stream that was closed, or skipped */
};

struct h2_limits {
  uint32_t streams;
  uint32_t list;           /* bytes of a decoded header list, 32 added for each field */
  uint32_t fields;
  uint32_t trailers;       /* bytes of a decoded trailer list, counted the same way */
  uint32_t block;          /* bytes of a header block as sent */
  uint32_t continuations;
  uint32_t queue;          /* control frames waiting; also the size of the bucket for noise */
  double resets, reset_rate;
};

/* Tokens come back with time, up to the capacity. */
struct h2_bucket {
  double tokens, capacity, rate, at;
};

void h2_bucket_init(struct h2_bucket *bucket, double capacity, double rate, double now);
bool h2_bucket_take(struct h2_bucket *bucket, double now);   /* false: it is empty */
void h2_bucket_earn(struct h2_bucket *bucket, double tokens);

struct h2_budget {
  struct h2_limits limits;
  struct h2_bucket resets, noise;
  double windows;          /* WINDOW_UPDATEs that DATA of ours has paid for */
  enum h2_verdict verdict;
  /* where in the stream of bytes we are */
  uint32_t preface;        /* bytes of the connection preface still to come */
  uint8_t head[9];
  uint32_t have;           /* bytes of the head that are there */
  uint32_t left;           /* bytes of the payload that are not */
  bool padded;             /* the next byte is the length of DATA's padding */
  double since;            /* when the frame or header block in progress began; 0: none that has to hurry */
  /* the header block in progress */
  bool block;
  uint32_t block_bytes, block_frames;
  uint32_t last_id;        /* the highest stream seen */
  /* the header list being decoded */
  uint32_t fields, list_limit;
  uint64_t list_bytes;
  bool too_large;
};

void h2_budget_init(struct h2_budget *budget, const struct h2_limits *limits, double now);

/* How many of these bytes may go on to nghttp2: all, unless budget->verdict says why not. */
size_t h2_budget_scan(struct h2_budget *budget, const uint8_t *data, size_t size, double now);

void h2_budget_judge(struct h2_budget *budget, enum h2_verdict verdict); /* the first one counts */
/* A stream was reset for a fault of the peer. */
void h2_budget_reset(struct h2_budget *budget, double now);
/* DATA was sent, which may be answered by WINDOW_UPDATE. `whole`: it was all there was; not so if a window is too small. */
void h2_budget_sent(struct h2_budget *budget, size_t bytes, bool whole);

/* A header list begins; a field of it was decoded. False: the list is too large and the field not to be kept. */
void h2_budget_list(struct h2_budget *budget, bool trailers);
bool h2_budget_field(struct h2_budget *budget, size_t name, size_t value);

/* For the log, and for GOAWAY. */
const char *h2_verdict_text(enum h2_verdict verdict);
uint32_t h2_verdict_code(enum h2_verdict verdict);

#endif
