/* h2_budget.c - see h2_budget.h. */
#include "h2_budget.h"

#include <string.h>

#define HEAD_SIZE 9
#define PREFACE_SIZE 24

enum { DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION };
enum { END_STREAM = 0x1, END_HEADERS = 0x4, PADDED = 0x8 };
enum { PROTOCOL_ERROR = 0x1, ENHANCE_YOUR_CALM = 0xb };

/* A request pays for the frames that come with it: PRIORITY, WINDOW_UPDATE, a PING. */
#define EARNED_BY_REQUEST 8.0
/* One frame of 16 KB may be answered by 32 WINDOW_UPDATEs; clients send one or two. */
#define BYTES_FOR_ONE 512.0
/* A list so many times over the limit is no mistake. Below, it is answered with 431. */
#define BOMB 16

void h2_bucket_init(struct h2_bucket *bucket, double capacity, double rate, double now) {
  bucket->tokens = bucket->capacity = capacity;
  bucket->rate = rate;
  bucket->at = now;
}

void h2_bucket_earn(struct h2_bucket *bucket, double tokens) {
  bucket->tokens += tokens;
  if (bucket->tokens > bucket->capacity) bucket->tokens = bucket->capacity;
}

bool h2_bucket_take(struct h2_bucket *bucket, double now) {
  if (now > bucket->at) {
    h2_bucket_earn(bucket, (now - bucket->at) * bucket->rate);
    bucket->at = now;
  }
  if (bucket->tokens < 1) return false;
  bucket->tokens -= 1;
  return true;
}

void h2_budget_init(struct h2_budget *budget, const struct h2_limits *limits, double now) {
  memset(budget, 0, sizeof(*budget));
  budget->limits = *limits;
  budget->preface = PREFACE_SIZE;
  budget->since = now;
  h2_bucket_init(&budget->resets, limits->resets, limits->reset_rate, now);
  h2_bucket_init(&budget->noise, limits->queue, limits->queue / 10.0, now);
}

void h2_budget_judge(struct h2_budget *budget, enum h2_verdict verdict) {
  if (budget->verdict == H2_FINE) budget->verdict = verdict;
}

static void noise(struct h2_budget *budget, double now) {
  if (!h2_bucket_take(&budget->noise, now)) h2_budget_judge(budget, H2_NOISE);
}

void h2_budget_reset(struct h2_budget *budget, double now) {
  if (!h2_bucket_take(&budget->resets, now)) h2_budget_judge(budget, H2_RESETS);
}

/* Some clients answer each frame, however small, with two of their own. That is fine as long as it is not they who
 * make the frames small, by windows of a few bytes. */
void h2_budget_sent(struct h2_budget *budget, size_t bytes, bool whole) {
  budget->windows += (double)bytes / BYTES_FOR_ONE + (whole ? 2 : 0);
}

static void block_grow(struct h2_budget *budget, uint32_t bytes) {
  budget->block_bytes += bytes;
  if (budget->block_bytes > budget->limits.block) h2_budget_judge(budget, H2_BLOCK);
}

static void headers_frame(struct h2_budget *budget, uint32_t id, uint32_t length, uint8_t flags) {
  if (id > budget->last_id) {
    budget->last_id = id;
    h2_bucket_earn(&budget->noise, EARNED_BY_REQUEST);
  }
  budget->block = !(flags & END_HEADERS);
  budget->block_bytes = budget->block_frames = 0;
  block_grow(budget, length);
}

/* One that belongs to no block is for nghttp2 to refuse. */
static void continuation_frame(struct h2_budget *budget, uint32_t length, uint8_t flags) {
  if (!budget->block) return;
  if (++budget->block_frames > budget->limits.continuations) h2_budget_judge(budget, H2_CONTINUATIONS);
  block_grow(budget, length);
  if (flags & END_HEADERS) budget->block = false;
}

static void data_frame(struct h2_budget *budget, uint32_t length, uint8_t flags, double now) {
  budget->padded = (flags & PADDED) && length > 0;
  budget->since = 0; /* a slow body is judged by its rate */
  if (length == 0 && !(flags & END_STREAM)) noise(budget, now);
}

static void window_frame(struct h2_budget *budget, double now) {
  if (budget->windows >= 1) budget->windows -= 1;
  else noise(budget, now);
}

static void frame(struct h2_budget *budget, double now) {
  const uint8_t *head = budget->head;
  uint32_t length = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
  uint32_t id = ((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8]) & 0x7fffffff;
  uint8_t flags = head[4];

  budget->left = length;
  budget->padded = false;
  switch (head[3]) {
    case DATA:          data_frame(budget, length, flags, now); break;
    case HEADERS:       headers_frame(budget, id, length, flags); break;
    case CONTINUATION:  continuation_frame(budget, length, flags); break;
    case RST_STREAM:    h2_budget_reset(budget, now); break;
    case WINDOW_UPDATE: window_frame(budget, now); break;
    default:            noise(budget, now);
  }
}

static void frame_end(struct h2_budget *budget) {
  budget->have = 0;
  if (!budget->block) budget->since = 0;
}

static size_t take_head(struct h2_budget *budget, const uint8_t *data, size_t size, double now) {
  size_t count = HEAD_SIZE - budget->have;

  if (count > size) count = size;
  if (!budget->have && budget->since == 0) budget->since = now;
  memcpy(budget->head + budget->have, data, count);
  budget->have += (uint32_t)count;
  return count;
}

/* Padding counts for flow control, so it costs the peer; but a flood of frames that are mostly padding keeps us busy. */
static void padding(struct h2_budget *budget, uint8_t pad, double now) {
  budget->padded = false;
  if (budget->left <= 2u * pad) noise(budget, now);
}

static size_t take_payload(struct h2_budget *budget, const uint8_t *data, size_t size, double now) {
  size_t count = budget->left < size ? budget->left : size;

  if (count && budget->padded) padding(budget, data[0], now);
  budget->left -= (uint32_t)count;
  if (!budget->left) frame_end(budget);
  return count;
}

static size_t take_preface(struct h2_budget *budget, size_t size) {
  size_t count = budget->preface < size ? budget->preface : size;

  budget->preface -= (uint32_t)count;
  if (!budget->preface) budget->since = 0;
  return count;
}

size_t h2_budget_scan(struct h2_budget *budget, const uint8_t *data, size_t size, double now) {
  size_t at = 0;

  while (at < size) {
    if (budget->preface) {
      at += take_preface(budget, size - at);
    } else if (budget->have < HEAD_SIZE) {
      size_t begin = at;
      at += take_head(budget, data + at, size - at, now);
      if (budget->have < HEAD_SIZE) break;
      frame(budget, now);
      if (budget->verdict != H2_FINE) return begin;
      if (!budget->left) frame_end(budget);
    } else {
      at += take_payload(budget, data + at, size - at, now);
      if (budget->verdict != H2_FINE) return at;
    }
  }
  return at;
}

void h2_budget_list(struct h2_budget *budget, bool trailers) {
  budget->fields = 0;
  budget->list_bytes = 0;
  budget->list_limit = trailers ? budget->limits.trailers : budget->limits.list;
  budget->too_large = false;
}

bool h2_budget_field(struct h2_budget *budget, size_t name, size_t value) {
  budget->fields += 1;
  budget->list_bytes += name + value + 32;
  if (budget->fields <= budget->limits.fields && budget->list_bytes <= budget->list_limit) return !budget->too_large;

  budget->too_large = true;
  if (budget->fields > BOMB * (uint64_t)budget->limits.fields ||
      budget->list_bytes > BOMB * (uint64_t)budget->limits.list) h2_budget_judge(budget, H2_LIST);
  return false;
}

const char *h2_verdict_text(enum h2_verdict verdict) {
  switch (verdict) {
    case H2_FINE:          return "nothing";
    case H2_RESETS:        return "too many streams had to be reset";
    case H2_NOISE:         return "too many frames without use";
    case H2_CONTINUATIONS: return "too many CONTINUATION frames";
    case H2_BLOCK:         return "header block too large";
    case H2_LIST:          return "header list far too large";
    case H2_QUEUE:         return "too many control frames left unread";
    case H2_STREAM_ID:     return "HEADERS on a closed stream";
  }
  return "?";
}

uint32_t h2_verdict_code(enum h2_verdict verdict) {
  return verdict == H2_STREAM_ID ? PROTOCOL_ERROR : ENHANCE_YOUR_CALM;
}
