/* ws.c - fuzzes the reader of WebSocket frames, with inflating. The first byte of the input chooses: bit 0 masked, bit 1
 * deflate, bit 2 takeover, the rest where to cut. Whatever the cuts, the same must come out, and never more than the limits allow. */
#include "fuzz.h"
#include "ws_reader.h"

enum { FRAME = 1000, MESSAGE = 3000, FRAGMENTS = 8, BIG = MESSAGE + 1 };

static bool grow(struct ws_sink *sink, size_t room) {
  MUST(room <= BIG); /* more than a message may have */
  sink->data = realloc(sink->data, room);
  sink->room = room;
  return sink->data != NULL;
}

static uint64_t hash(uint64_t h, const void *data, size_t size) {
  for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)data)[i]) * UINT64_C(1099511628211);
  return h;
}

static uint64_t note(uint64_t h, const struct ws_reader *r, enum ws_event event, const struct ws_sink *sink) {
  h = hash(h, &event, sizeof(event));
  if (event == WS_EVENT_BAD) return hash(h, &r->code, sizeof(r->code));
  h = hash(h, &r->kind, 1);
  if (event == WS_EVENT_CONTROL) return hash(h, r->payload, r->control_size);
  MUST(sink->size <= MESSAGE && (r->kind == WS_TEXT || r->kind == WS_BINARY));
  if (r->kind == WS_TEXT) {
    struct ws_utf8 utf8;
    ws_utf8_init(&utf8);
    MUST(ws_utf8_feed(&utf8, sink->data, sink->size) && ws_utf8_whole_p(&utf8));
  }
  return hash(h, sink->data, sink->size);
}

/* As the Ruby side does it: what was not consumed is shown again, with more behind it. */
static uint64_t run(const uint8_t *input, size_t size, uint8_t flags, size_t step) {
  struct ws_reader reader;
  struct ws_sink sink = {.grow = grow};
  size_t have = 0, offset = 0, used;
  uint64_t h = UINT64_C(14695981039346656037);
  bool over = false;

  ws_reader_init(&reader, (struct ws_limits){FRAME, MESSAGE, FRAGMENTS}, flags & 1);
  reader.deflate = flags & 2;
  reader.inflater.takeover = flags & 4;
  while (have < size && !over) {
    have += size - have < step ? size - have : step;
    for (;;) {
      char *view = exact_copy((const char *)input + offset, have - offset);
      enum ws_event event = ws_reader_next(&reader, (uint8_t *)view, have - offset, &used, &sink);
      free(view);
      MUST(used <= have - offset);
      offset += used;
      if (event == WS_EVENT_MORE) break;
      h = note(h, &reader, event, &sink);
      if ((over = event == WS_EVENT_BAD)) break;
    }
  }
  ws_reader_free(&reader);
  free(sink.data);
  return h;
}

/* What we send, we can read. */
static void round_trip(const uint8_t *data, size_t size) {
  struct ws_deflater deflater = {.bits = 15};
  struct ws_inflater inflater = {0};
  struct ws_sink sink = {.grow = grow};

  if (size > MESSAGE || size == 0) return;
  uint8_t *out = malloc(ws_deflate_bound(size));
  size_t deflated = ws_deflate(&deflater, data, size, out);
  MUST(deflated);
  MUST(ws_inflate(&inflater, out, deflated, &sink, MESSAGE) == WS_INFLATED);
  MUST(ws_inflate_end(&inflater, &sink, MESSAGE) == WS_INFLATED);
  MUST(sink.size == size && !memcmp(sink.data, data, size));
  free(sink.data);
  free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  uint8_t flags = *data++;
  size--;
  uint64_t whole = run(data, size, flags, size);
  MUST(run(data, size, flags, 1) == whole);
  MUST(run(data, size, flags, (flags >> 3) + 2u) == whole);
  round_trip(data, size);
  return 0;
}
